# Each target is enough alone on a fresh clone: it makes .venv first. All that is needed is Python 3.10 to 3.13.
#   make demo     export two real models at five opsets, and show how far each is from eager PyTorch
#   make test     the tests
#   make lint     ruff and mypy
#   make sweep    the tests over every operator, model and opset; then every sample of torch's own databases,
#                 beside torch.onnx, into sweep-results: hours on two cores
#   make bench    export time and memory against torch.onnx
#   make toolchains
#                 models in a dozen runtimes and compilers, each in an environment of its own, into docs/toolchains
#   make descriptors
#                 the descriptor sets of other frameworks' messages, from the .proto files beside them
#   make vision
#                 torchvision's seven detectors against PyTorch, in an environment of its own with torch and torchvision
#                 from the package index, whose CUDA builds (6.5 GB) run without a GPU
#   make docs     the site, in build/site
#   make dist     the wheel and the source distribution, in dist
#   make test-dist
#                 make dist, then install and try both in new environments: with and without torch, Python 3.10 and 3.13;
#                 before, let pip resolve constraints.txt for each Python from 3.10 to 3.13
#   make test-torch TORCH=2.10.0
#                 the tests of capture and export with that release of torch, in an environment of its own
#
# PIP_FLAGS is handed to pip. Where torch's CPU build does not come by itself (Linux with the plain PyPI):
#   make test PIP_FLAGS="--extra-index-url https://download.pytorch.org/whl/cpu"

# Tests start hundreds of processes: without stored bytecode each one compiles the whole package again.
export PYTHONDONTWRITEBYTECODE :=

PYTHON ?= python3
PIP_FLAGS ?=
PYTEST_FLAGS ?=
SWEEP_FLAGS ?=
TOOLCHAIN_FLAGS ?=
DIST_FLAGS ?=
WORKERS ?= 2
TORCH ?= 2.10.0
VISION_FLAGS ?=
TORCH_TESTS ?= tests/exporter/test_export.py tests/exporter/capture tests/exporter/torch_boundary

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
TORCH_VENV ?= .venv-torch-$(TORCH)
TORCH_INSTALLED := $(TORCH_VENV)/.installed
VISION_VENV ?= .venv-vision
VISION_INSTALLED := $(VISION_VENV)/.installed
# The site needs no torch.
DOCS_VENV ?= .venv-docs
DOCS_INSTALLED := $(DOCS_VENV)/.installed
# The package's folder under the package's name, where mypy looks for it.
NAMED := $(VENV)/source

.PHONY: demo test test-torch lint mypy sweep bench vision toolchains descriptors docs dist test-dist clean

demo: $(INSTALLED)
	$(BIN)/python examples/demo.py

test: $(INSTALLED)
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile $(PYTEST_FLAGS)

test-torch: $(TORCH_INSTALLED)
	$(TORCH_VENV)/bin/python -m pytest -n $(WORKERS) --dist loadfile $(TORCH_TESTS) $(PYTEST_FLAGS)

sweep: $(INSTALLED)
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --sweep $(PYTEST_FLAGS)
	$(BIN)/python -m tests.sweep --workers $(WORKERS) $(SWEEP_FLAGS)

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(MAKE) --no-print-directory mypy

mypy: $(INSTALLED)
	MYPYPATH=$(NAMED) $(BIN)/mypy -m opsetta -m opsetta.huggingface -p opsetta.registration -p opsetta.symbolics -p opsetta.passes -p opsetta.exporter -p opsetta.torch_onnx

bench: $(INSTALLED)
	$(BIN)/python benchmarks/export_time.py
	$(BIN)/python benchmarks/memory.py

vision: $(VISION_INSTALLED)
	$(VISION_VENV)/bin/python -m tests.vision $(VISION_FLAGS)

toolchains: $(INSTALLED)
	$(BIN)/python -m tests.toolchains $(TOOLCHAIN_FLAGS)

descriptors: $(INSTALLED)
	$(BIN)/python -m tests.descriptors

docs: $(DOCS_INSTALLED)
	NO_MKDOCS_2_WARNING=1 $(DOCS_VENV)/bin/mkdocs build --strict
	@echo "build/site/index.html"

dist: $(INSTALLED)
	rm -rf dist
	$(BIN)/python -m build --outdir dist

test-dist: dist
	$(BIN)/python -m tests.distribution --pip-flags="$(PIP_FLAGS)" $(DIST_FLAGS)

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] < (3, 14))' \
	    || { echo "opsetta needs Python 3.10 to 3.13: make PYTHON=python3.11 ..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet $(PIP_FLAGS) -c constraints.txt -e '.[dev]'
	mkdir -p $(NAMED)
	ln -sfn ../../ $(NAMED)/opsetta
	touch $(INSTALLED)

$(TORCH_INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(TORCH_VENV)
	grep -v '^torch==' constraints.txt > $(TORCH_VENV)/constraints.txt
	$(TORCH_VENV)/bin/python -m pip install --quiet $(PIP_FLAGS) -c $(TORCH_VENV)/constraints.txt torch==$(TORCH) -e '.[dev]'
	touch $(TORCH_INSTALLED)

$(VISION_INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VISION_VENV)
	grep -v '^torch==' constraints.txt > $(VISION_VENV)/constraints.txt
	$(VISION_VENV)/bin/python -m pip install --quiet $(PIP_FLAGS) \
		-c $(VISION_VENV)/constraints.txt torch torchvision -e '.[dev]'
	touch $(VISION_INSTALLED)

$(DOCS_INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(DOCS_VENV)
	$(DOCS_VENV)/bin/python -m pip install --quiet $(PIP_FLAGS) -c constraints.txt -e '.[docs]'
	touch $(DOCS_INSTALLED)

clean:
	rm -rf $(VENV) .venv-torch-* .venv-docs .toolchains build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
