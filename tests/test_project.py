"""What holds for the tree as a whole: layers, public names, the table of cases, the README's tree."""

from __future__ import annotations

import ast
import csv
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "earmark"
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path.name not in ("__init__.py", "__main__.py"))


def tree() -> list[str]:
    """The modules in the order of the README's annotated tree, as dotted names."""
    block = (ROOT / "README.md").read_text().split("```\nearmark/\n")[1].split("\n```")[0]
    folder, found = "", []
    for line in block.splitlines():
        name = line.split()[0]
        if not line.startswith(" "):
            break
        if name.endswith("/"):
            folder = name[:-1] + "."
        elif name.endswith(".py"):
            found.append("earmark." + (folder if line.startswith("    ") else "") + name[:-3])
    return found


def dotted(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def imported(path: Path) -> set[str]:
    """The modules of earmark that a module imports at run time, anywhere in it."""
    found: set[str] = set()
    parsed = ast.parse(path.read_text())
    typing_only = {
        id(inner)
        for node in ast.walk(parsed)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for inner in ast.walk(node)
    }
    for node in ast.walk(parsed):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("earmark"):
            found |= {f"{node.module}.{alias.name}" for alias in node.names} | {str(node.module)}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    known = {dotted(each) for each in MODULES}
    return found & known


def test_the_readmes_tree_is_the_tree():
    assert sorted(tree()) == [dotted(path) for path in MODULES]


@pytest.mark.parametrize("path", MODULES, ids=dotted)
def test_a_module_imports_only_from_those_above_it(path):
    order = tree()
    own = order.index(dotted(path))
    below = {name for name in imported(path) if order.index(name) >= own}
    assert not below


def test_the_public_names_are_those_that_all_lists():
    import earmark

    for name in earmark.__all__:
        assert getattr(earmark, name) is not None
    assert sorted(earmark.__all__) == earmark.__all__


@pytest.mark.parametrize("module", ["earmark", "earmark.audio.decode", "earmark.cli", "earmark.measure.metrics"])
def test_importing_loads_nothing_heavy(module):
    heavy = "torch transformers scipy pandas soundfile av"
    code = f"import sys, {module}; print([name for name in '{heavy}'.split() if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_what_is_said_to_be_installed_is_an_extra_of_earmarks_folder():
    """Earmark is on no package index: nobody may be sent there."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    pages = [path.read_text() for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *PACKAGE.rglob("*.py"))]
    told = {
        name for page in pages for name in re.findall(r"install\(['\"](\w+)['\"]\)|pip install '\.\[(\w+)\]'", page)
    }
    assert {first or second for first, second in told} == set(extras) - {"dev"}
    assert not [page for page in pages if re.search(r"pip install ['\"]?earmark", page)]


# Cases: rows of known trouble


def marked() -> dict[str, list[str]]:
    """Row → the tests that are marked with it."""
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "tests").glob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.FunctionDef):
                continue
            for mark in node.decorator_list:
                if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.case":
                    for argument in mark.args:
                        found.setdefault(ast.literal_eval(argument), []).append(f"{path.stem}::{node.name}")
    return found


def table() -> dict[str, dict[str, str]]:
    with (ROOT / "tests" / "cases.csv").open(newline="") as file:
        return {row["row"]: row for row in csv.DictReader(file)}


def test_the_table_of_cases_names_the_tests_that_are_marked():
    stated = {row: cells["tests"].split() for row, cells in table().items() if cells["tests"]}
    assert stated == marked()


def test_every_case_has_a_test_or_a_reason():
    for row, cells in table().items():
        assert bool(cells["tests"]) != bool(cells["not_yet"]), row


def test_the_table_holds_every_row_that_touches_these_parts(real_data):
    cases = real_data.parent / "cases.md"
    if not cases.exists():
        pytest.skip(f"no {cases}")
    rows = set(re.findall(r"^\| ([AMNRCISL]\d\d) \|", cases.read_text(), re.MULTILINE))
    assert rows <= set(table())
