# Every target is one line of tools/dev.py, which needs nothing but Python; another version of it
# is `make test PYTHON=python3.13`.
PYTHON ?= python3
DEV = $(PYTHON) tools/dev.py

.DEFAULT_GOAL := help
.PHONY: help venv venv-torch demo examples test test-fast test-all test-onnx test-cuda test-language test-layers test-scale test-targets test-torch test-wheel test-other-python fuzz gate docs docs-test docs-links docs-versions lint types layers size api bench bench-kernels bench-compile clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

venv: ## set up the virtual environment in .venv, once
	$(DEV) venv

demo: ## compile ResNet-50, check it, profile it, export it, run the artifact
	$(DEV) demo

venv-torch: ## the same with torch and what its tests need
	$(DEV) venv-torch

examples: ## run the other examples briefly
	$(DEV) examples

gate: ## all of .ci/run, with the time of each part
	$(PYTHON) tools/gate.py

test: ## the tests, of long tables a sample; test-onnx and test-torch run two more suites
	$(DEV) test

test-fast: ## the tests that take seconds
	$(DEV) test-fast

test-all: ## every test of all suites, long tables whole (hours)
	$(DEV) test-all

test-onnx: ## the backend suite of the onnx package, with counts
	$(DEV) test-onnx

test-cuda: ## every operator case on an emulated GPU, with the PTX of LLVM and of libnvvm
	$(DEV) test-cuda

test-language: ## models in every format beside transformers and llama.cpp, 20,000 damaged files
	$(DEV) test-language

test-layers: ## all layers of weft.nn beside torch's (a larger download)
	$(DEV) test-layers

test-scale: ## what takes several processes: executors, Dask, collectives, faults
	$(DEV) test-scale

test-targets: ## operator cases and models on emulated Arm and RISC-V, and as WebAssembly (hours)
	$(DEV) test-targets

test-torch: ## PyTorch models and torch.compile (a larger download)
	$(DEV) test-torch

test-wheel: ## install the built wheel into an empty environment and use it
	$(DEV) test-wheel

test-other-python: ## a hundred tests with the newest other Python that is found
	$(DEV) test-other-python

fuzz: ## a minute of random programs, with a new seed
	$(DEV) fuzz

docs: ## build the site in out/site; open out/site/index.html
	$(DEV) docs

docs-test: ## the site in Chromium, every program of every page, the notebooks
	$(DEV) docs-test

docs-links: ## ask every address that the pages link to (needs a network)
	$(DEV) docs-links

docs-versions: ## build the sites of all versions side by side in out/versions
	$(DEV) docs-versions

lint: ## ruff over everything
	$(DEV) lint

types: ## the type checker
	$(DEV) types

layers: ## the import order of the design
	$(DEV) layers

size: ## files and functions short enough to read
	$(DEV) size

api: ## public names against the record of them
	$(DEV) api

bench: ## latency beside onnxruntime, OpenVINO and torch (installs them)
	$(DEV) bench

bench-kernels: ## single kernels beside the same, and the limits of the machine
	$(DEV) bench-kernels

bench-compile: ## how long the code of each of these kernels, and each model, takes to be ready
	$(DEV) bench-compile

clean: ## remove the virtual environment and caches of tools
	rm -rf .venv .venv-3.* build dist .pytest_cache .ruff_cache .hypothesis
