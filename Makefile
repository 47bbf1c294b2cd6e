# Everything a person needs: `make help` lists the targets from their comments.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PACKAGES := core client operator extender device-plugin runtime simulator sdk cli
export UV_SYSTEM_CERTS := 1
# The cache is on another file system than the checkout on many machines: say "copy" then without a warning.
export UV_LINK_MODE ?= hardlink

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-14s %s\n", $$1, $$2}'

$(VENV)/synced: requirements/dev.txt requirements/uv.txt pyproject.toml $(PACKAGES:%=%/pyproject.toml)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "kompakt needs Python 3.11 or later; name one with PYTHON=..."; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || tools/install-venv
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/uv.txt
	$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements/dev.txt
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation $(PACKAGES:%=-e %)
	touch $@

$(VENV)/torch: $(VENV)/synced requirements/torch.txt
	$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements/torch.txt
	touch $@

sync: $(VENV)/synced ## the development environment in .venv (200 MB)

sync-torch: $(VENV)/torch ## PyTorch and scikit-learn into .venv as well (5.3 GB, shared with uv's cache)

$(VENV)/docs: $(VENV)/synced requirements/docs.txt
	$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements/docs.txt
	touch $@

sync-docs: $(VENV)/docs ## what builds the documentation site into .venv as well (110 MB)

$(VENV)/frameworks: $(VENV)/torch requirements/frameworks.txt
	$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements/frameworks.txt
	touch $@

sync-frameworks: $(VENV)/frameworks $(VENV)/zoo ## training frameworks into .venv as well, for examples/frameworks (200 MB)

$(VENV)/zoo: $(VENV)/torch requirements/zoo.txt
	$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements/zoo.txt
	touch $@

sync-zoo: $(VENV)/zoo ## timm, torchvision, transformers and peft into .venv as well, for benchmarks/zoo and tests (100 MB)

# Hours on two cores; a run that was stopped goes on where it stopped.
zoo: $(VENV)/zoo ## models of others under compression: what they keep, lose and take; rows go to .zoo.jsonl
	HF_HUB_OFFLINE=1 KINETO_LOG_LEVEL=99 OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.zoo --record .zoo.jsonl $(ARGS)

# Beside the checkout's own environment: two versions of PyTorch cannot share one. Named by version; shared by all checkouts.
OTHER_TORCHS := old-torch between-torch
other_torch = $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/kompakt/torch-$(shell sed -n 's/^torch==//p' requirements/$(1).in)

define with_other_torch
$(call other_torch,$(1))/synced: $(VENV)/synced requirements/$(1).txt
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python $$(@D)
	$(BIN)/uv pip install --quiet --python $$(@D)/bin/python --require-hashes -r requirements/$(1).txt
	touch $$@
endef
$(foreach name,$(OTHER_TORCHS),$(eval $(call with_other_torch,$(name))))

sync-old-torch: $(foreach name,$(OTHER_TORCHS),$(call other_torch,$(name))/synced) ## the oldest PyTorch that the runtime works with, and one between it and the newest, in the cache folder (10 GB)

check: sync ## formatting, lint, types, import contracts, docs against code, class names of two meanings
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tools.docs --check
	$(BIN)/python -m tools.homonyms

docs: sync ## write the made parts of docs anew (modules, index of decisions) and break long lines of prose
	$(BIN)/python -m tools.docs

site: $(VENV)/docs ## the documentation as a site in the folder site/, without network: open site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict $(ARGS)

format: sync ## format and mend what ruff can mend
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

test: sync sync-docs ## every test level this machine can run; names what it skips and why
	$(BIN)/python -m tools.test $(ARGS)

test-fast: sync sync-docs ## static checks, unit tests without the runtime's, contract tests: two minutes
	$(BIN)/python -m tools.test --fast $(ARGS)

coverage: sync ## which share of each package's statements the unit and contract tests reach
	$(BIN)/python -m tools.covered $(ARGS)

# What a machine with a GPU and without network needs beside the checkout and gcc; it is not installed there.
GPU_PACKAGES := .gpu
GPU_PYTHON ?= 3.11

$(GPU_PACKAGES)/pynvml.py:
	$(MAKE) sync
	$(BIN)/uv pip install --quiet --target $(GPU_PACKAGES) --python-version $(GPU_PYTHON) --only-binary :all: $$(sed -nE 's/^ *"((nvidia-[a-z-]*|PyYAML|msgspec)==[0-9.]*)".*/\1/p' */pyproject.toml pyproject.toml | sort -u)

gpu-packages: $(GPU_PACKAGES)/pynvml.py ## fetch what `make test-gpu` needs on a machine without network, of Python GPU_PYTHON=3.11, into .gpu (4 MB)

test-gpu: $(GPU_PACKAGES)/pynvml.py ## the NVML reader and the codec on this machine's true GPUs; reports go to docs/benchmarks, or to the folder OUT
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "kompakt needs Python 3.11 or later; name one with PYTHON=..."; exit 1; }
	PYTHONPATH=$(GPU_PACKAGES):core:device-plugin:. $(PYTHON) -S -m tests.gpu.nvml_report $(or $(OUT),docs/benchmarks) $(if $(LIBRARY),--library $(LIBRARY))
	@$(PYTHON) -c 'import pytest, torch, triton; assert torch.cuda.is_available()' 2> /dev/null || { echo "no torch with CUDA, Triton and pytest: the codec is left out"; exit 0; }; \
	export PYTHONPATH=runtime:.; $(PYTHON) -m pytest -c /dev/null -p no:cacheprovider tests/gpu/test_codec_gpu.py tests/gpu/test_offload_gpu.py tests/gpu/test_uses_gpu.py tests/gpu/test_compiled_gpu.py \
	&& { $(PYTHON) -m benchmarks.codec && $(PYTHON) -m benchmarks.gpu_steps; } > $(or $(OUT),docs/benchmarks)/codec-gpu.txt

requirements: sync ## pin all packages anew, with hashes and without host names
	$(BIN)/python -m tools.pin

# As root, with buildah. BASE_IMAGE is a name with @sha256:..., BUILDER a URI; SOURCE, INVOCATION and OUT if wanted: docs/operations.md.
images: sync ## images to be published, with provenance and SBOM, from HEAD on BASE_IMAGE=...@sha256:..., by BUILDER=...
	$(BIN)/python -m tools.publish --base-image '$(BASE_IMAGE)' --builder '$(BUILDER)' $(if $(SOURCE),--source '$(SOURCE)') $(if $(INVOCATION),--invocation '$(INVOCATION)') $(if $(OUT),--out '$(OUT)')

# With BASE_IMAGE also the images, as `make images`: as root, with buildah.
release: sync ## packages, the chart, notes, checksums and statements of HEAD in dist/release, or OUT=...; with BASE_IMAGE=... images too
	$(BIN)/python -m tools.release $(if $(OUT),--out '$(OUT)') $(if $(BASE_IMAGE),--base-image '$(BASE_IMAGE)') $(if $(BUILDER),--builder '$(BUILDER)') $(if $(SOURCE),--source '$(SOURCE)') $(if $(INVOCATION),--invocation '$(INVOCATION)')

push: sync ## copy the images and the chart of a release, of dist/release or OUT=..., into REGISTRY=host[:port][/path]
	$(BIN)/python -m tools.push $(or $(OUT),dist/release) '$(REGISTRY)' $(ARGS)

tour: sync ## place, schedule and train on this machine in a minute (kompakt tour)
	$(BIN)/kompakt tour

demo: sync ## the whole path on a cluster of its own, or on another with KOMPAKT_CLUSTER=kind or kubeconfig: see README
	$(BIN)/python -m tools.kube demo

demo-down: sync ## remove all that the demo brought up (of another cluster: kompakt and the demo's jobs)
	$(BIN)/python -m tools.kube down

.PHONY: help sync sync-torch sync-docs sync-frameworks sync-zoo zoo sync-old-torch check docs site format test test-fast coverage gpu-packages test-gpu requirements images release push tour demo demo-down
