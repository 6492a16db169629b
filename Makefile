# Everything is installed into .venv, a virtual environment of this checkout's own. The stamp files in it say what has
# been installed, so that a second call starts at once; a change of pyproject.toml installs again.
PYTHON ?= python3
BIN := .venv/bin
unexport PYTHONPATH PYTHONHOME VIRTUAL_ENV PYTEST_ADDOPTS

# A file of tests stays in one process: some of them look back on what the others of their file met.
PYTEST := $(BIN)/python -m pytest -q -n auto --maxprocesses 4 --dist loadfile

# Wheels that are installed for the real model files inside them, and for nothing else.
MODEL_WHEELS := rapidocr-onnxruntime==1.4.4 magika==1.0.3 silero-vad==6.2.3

# The build of PyTorch without CUDA has a package index of its own; the other one is several GB larger.
TORCH := $(shell sed -n 's/.*"\(torch==[0-9.]*\)".*/\1/p' pyproject.toml)
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu

.PHONY: demo test test-all lint examples clean

demo: .venv/.core  ## plan a real ONNX network on a 2x4 mesh, check the proof, run the plan on eight simulated devices
	@$(BIN)/python examples/demo.py

test: .venv/.dev  ## the test suite, without what takes minutes and without the heavy frameworks
	@echo "== tests"
	@$(PYTEST) -m "not slow"

test-all: .venv/.dev .venv/.models .venv/.frameworks lint examples  ## everything, with the heavy frameworks
	@echo "== all tests"
	@$(PYTEST)

lint: .venv/.dev  ## style and types
	@echo "== style (ruff)"
	@$(BIN)/ruff check .
	@echo "== types (mypy)"
	@$(BIN)/mypy

examples: .venv/.dev  ## run every example
	@set -e; for example in examples/*.py; do echo "== $$example"; $(BIN)/python "$$example"; done

clean:  ## remove the environment and what tools left
	rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

.venv/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "shardproof needs Python 3.11 or newer; this is " + sys.version.split()[0] + " (make PYTHON=... names another)")'
	@echo "== making the virtual environment .venv"
	@$(PYTHON) -m venv .venv
	@touch $@

.venv/.core: .venv/.created pyproject.toml
	@echo "== installing shardproof with the onnx extra into .venv (about a minute, once)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[onnx]'
	@touch $@

.venv/.dev: .venv/.core
	@echo "== installing the development tools into .venv (once)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[onnx,dev]'
	@touch $@

.venv/.frameworks: .venv/.dev
	@echo "== installing PyTorch, JAX, PaddlePaddle and transformers into .venv (2 GB, minutes, once)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --extra-index-url $(TORCH_INDEX) $(TORCH)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[onnx,dev,frameworks]'
	@touch $@

.venv/.models: .venv/.dev
	@echo "== installing wheels that hold real model files into .venv (once)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps $(MODEL_WHEELS)
	@touch $@
