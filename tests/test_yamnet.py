"""YAMNet against its own ONNX graph, the quantising nodes passed over: on a made file, and on the published one."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
import torch

from earmark.errors import DataError
from earmark.model.pretrained import find
from earmark.model.yamnet import CLASSES, HOP, PATCH, YamNet, class_names

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")


@pytest.fixture(scope="session")
def published() -> Path:
    try:
        return find("yamnet", fetch=False)
    except DataError as error:
        pytest.skip(str(error))


def made_file(folder: Path, seed: int = 0) -> Path:
    """An ONNX file of YAMNet's structure and random weights, with quantising nodes around everything."""
    rng = np.random.default_rng(seed)
    nodes, initializers, value = [], [], "audio"

    def quantised(name: str) -> str:
        for op, inputs, output in (("Quantize", name, f"{name}_q"), ("Dequantize", f"{name}_q", f"{name}_qdq")):
            nodes.append(onnx.helper.make_node(f"{op}Linear", [inputs, "scale", "zero"], [output]))
        return f"{name}_qdq"

    def weight(name: str, values: np.ndarray) -> str:
        initializers.append(onnx.numpy_helper.from_array(values.astype(np.float32), name))
        return name

    initializers.append(onnx.numpy_helper.from_array(np.float32(0.02), "scale"))
    initializers.append(onnx.numpy_helper.from_array(np.uint8(128), "zero"))
    made = YamNet()
    for place, layer in enumerate(made.layers):
        conv, shape = layer.conv, tuple(layer.conv.weight.shape)
        values = rng.standard_normal(shape) * np.sqrt(2 / np.prod(shape[1:]))
        pads = [0, 0, 1, 1] if conv.stride[0] == 2 else [conv.padding[0]] * 4
        inputs = [quantised(value), quantised(weight(f"w{place}", values))]
        inputs.append(weight(f"b{place}", rng.standard_normal(shape[0]) * 0.1))
        attributes = {"kernel_shape": list(shape[2:]), "strides": list(conv.stride), "group": conv.groups, "pads": pads}
        nodes.append(onnx.helper.make_node("Conv", inputs, [f"c{place}"], **attributes))
        nodes.append(onnx.helper.make_node("Relu", [f"c{place}"], [f"r{place}"]))
        value = f"r{place}"
    nodes.append(onnx.helper.make_node("GlobalAveragePool", [value], ["pooled"]))
    nodes.append(onnx.helper.make_node("Flatten", ["pooled"], ["flat"]))
    inputs = [quantised("flat"), weight("classifier", rng.standard_normal((CLASSES, 1024)) * 0.1)]
    inputs.append(weight("bias", rng.standard_normal(CLASSES)))
    nodes.append(onnx.helper.make_node("Gemm", inputs, ["scores"], transB=1))
    float_info = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        nodes,
        "yamnet",
        [float_info("audio", onnx.TensorProto.FLOAT, [1, 1, 96, 64])],
        [float_info("scores", onnx.TensorProto.FLOAT, [1, CLASSES])],
        initializers,
    )
    folder.mkdir(exist_ok=True)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, folder / "model.onnx", save_as_external_data=True, location="model.data", size_threshold=1024)
    names = "\n".join(f'{place},/m/{place},"Kind {place}, of sound"' for place in range(CLASSES))
    (folder / "yamnet_class_map.csv").write_text(f"index,mid,display_name\n{names}\n")
    return folder


class Reference:
    """The file's graph in onnxruntime, with QuantizeLinear and DequantizeLinear passed over."""

    def __init__(self, path: Path) -> None:
        model = onnx.load(path)
        graph = model.graph
        behind = {node.output[0]: node.input[0] for node in graph.node if "uantizeLinear" in node.op_type}
        kept = [node for node in graph.node if "uantizeLinear" not in node.op_type]
        for node in kept:
            for place, name in enumerate(node.input):
                while name in behind:
                    name = behind[name]
                node.input[place] = name
        pooled = next(node.input[0] for node in kept if node.op_type == "Gemm")
        del graph.node[:], graph.value_info[:], graph.output[:]
        graph.node.extend(kept)
        used = {name for node in kept for name in node.input}
        weights = [each for each in graph.initializer if each.name in used]
        del graph.initializer[:]
        graph.initializer.extend(weights)
        for name in (pooled, kept[-1].output[0]):
            graph.output.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None))
        graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.FLOAT
        self.input = graph.input[0].name
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])

    def __call__(self, patches: torch.Tensor) -> np.ndarray:
        """[patch, 1,024 + classes], one patch at a time."""
        rows = []
        for patch in patches.numpy():
            pooled, scores = self.session.run(None, {self.input: patch[None, None]})
            rows.append(np.concatenate([pooled.ravel(), 1 / (1 + np.exp(-scores.ravel().astype(np.float64)))]))
        return np.stack(rows)


def loaded(folder: Path, *, classes: bool = True) -> YamNet:
    tower = YamNet(classes=classes)
    tower.load(folder / "model.onnx")
    return tower.eval()


def patches_of(window: torch.Tensor) -> torch.Tensor:
    return window.unfold(0, PATCH, HOP).transpose(1, 2).contiguous()


def test_a_made_file_gives_what_its_graph_gives(tmp_path):
    folder = made_file(tmp_path / "yamnet")
    patches = torch.randn(5, PATCH, 64)
    with torch.inference_mode():
        found = loaded(folder).patch_vectors(patches).numpy()
    np.testing.assert_allclose(found, Reference(folder / "model.onnx")(patches), atol=1e-4)


def test_real_sounds_give_what_the_published_graph_gives(published, real_data):
    tower, reference = loaded(published), Reference(published / "model.onnx")
    with (real_data / "library.csv").open(newline="") as file:
        paths = [real_data / "library" / row["file"] for row in csv.DictReader(file)][::120]
    for path in paths:
        [window] = tower.read(path).windows
        patches = patches_of(window)[:8]
        with torch.inference_mode():
            found = tower.patch_vectors(patches).numpy()
        np.testing.assert_allclose(found, reference(patches), atol=1e-3)


def test_it_names_a_real_sound(published, real_data):
    tower, names = loaded(published), class_names(published)
    sound = next(real_data.glob("library/esc10/*Dog bark*/*.ogg"))
    with torch.inference_mode():
        probabilities = tower([tower.read(sound).windows[0]])[0, 1024:]
    best = {names[at] for at in probabilities.topk(5).indices}
    assert best & {"Dog", "Bark", "Animal", "Domestic animals, pets"}


@pytest.mark.parametrize("samples", [1, 100, 15_600, 15_601, 23_280, 23_281, 48_000])
def test_every_sample_is_in_a_patch(samples):
    tower = YamNet()
    window = tower.window(np.ones(samples, np.float32))
    frames = 96 + 48 * max(0, -(-(samples - 15_600) // 7_680))
    assert len(window) == frames
    assert len(patches_of(window)) == 1 + (frames - 96) // 48


def test_batch_mates_change_nothing(tmp_path):
    tower = loaded(made_file(tmp_path / "yamnet"), classes=False)
    rng = np.random.default_rng(0)
    windows = [tower.window(0.1 * rng.standard_normal(n).astype(np.float32)) for n in (16_000, 480_000, 40_000)]
    with torch.inference_mode():
        together, alone = tower(windows), torch.cat([tower([window]) for window in windows])
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-5)
    assert together.shape == (3, 1024)


def test_all_layers_learn():
    tower = YamNet(classes=True).train()
    tower([torch.randn(96, 64), torch.randn(200, 64)]).square().sum().backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in tower.parameters())


def test_other_files_are_refused(tmp_path):
    (tmp_path / "model.onnx").write_text("not an ONNX file")
    with pytest.raises(DataError, match="not YAMNet's ONNX file"):
        YamNet().load(tmp_path / "model.onnx")
    with pytest.raises(DataError, match="not YAMNet's ONNX file"):
        YamNet().load(tmp_path / "none.onnx")
    folder = made_file(tmp_path / "cut")
    (folder / "model.data").write_bytes(b"short")
    with pytest.raises(DataError, match="not YAMNet's ONNX file"):
        YamNet().load(folder / "model.onnx")
    (folder / "yamnet_class_map.csv").write_text("index,mid,display_name\n0,/m/0,Speech\n")
    with pytest.raises(DataError, match="1 classes; expected 521"):
        class_names(folder)
    (folder / "yamnet_class_map.csv").unlink()
    with pytest.raises(DataError, match="no table of class names"):
        class_names(folder)
