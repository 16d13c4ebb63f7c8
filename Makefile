# One command for each thing a developer does; CONTRIBUTING.md says more. Everything goes into .venv and build/.
PYTHON ?= python3
FUZZ_SECONDS ?= 60
# The ops are built for this one.
TENSORFLOW ?= tensorflow-cpu>=2.21,<2.22
# Without its dependencies, which would bring the large TensorFlow beside the small one.
KERAS_2 ?= tf_keras>=2.21,<2.22
DEVICES ?= rxe0 siw0
# Collecting the tests of the ops, none of which needs a device, would import TensorFlow: 20 s there.
PYTEST_VERBS := pytest -v -m 'verbs or netem' -p no:cacheprovider --ignore=tests/ops
SANITIZERS := asan-ubsan tsan

export PATH := $(CURDIR)/.venv/bin:$(PATH)
export TF_RDMABATCH_BUILD_DIR := $(CURDIR)/build/release

.PHONY: help setup build test test-cc test-python test-verbs test-package test-models sanitize fuzz lint demo bench clean

help:
	@echo "make setup         Debian packages, .venv, editable install"
	@echo "make build         the library, the Python module and the C++ tests"
	@echo "make test          everything that needs no RDMA device"
	@echo "make test-verbs    the rest, under a kernel with the devices $(DEVICES)"
	@echo "make test-models   the protocol models, with spin"
	@echo "make test-package  pip install . in a fresh environment"
	@echo "make sanitize      the C++ tests under $(SANITIZERS)"
	@echo "make fuzz          each fuzz target for FUZZ_SECONDS=$(FUZZ_SECONDS)"
	@echo "make lint          pre-commit on all files"
	@echo "make demo          trains with two workers and a server, beside TensorFlow's own strategy"
	@echo "make bench         the engine's benchmark"

setup: .venv/installed

.venv/installed: pyproject.toml setup.py
	tools/debian-packages
	test -x .venv/bin/python || $(PYTHON) -m venv .venv
	pip install --quiet --upgrade pip setuptools 'pybind11<4' cmake ninja '$(TENSORFLOW)'
	pip install --quiet --no-build-isolation --editable '.[dev]'
	pip install --quiet --no-deps '$(KERAS_2)'
	tools/link-pyverbs .venv/bin/python
	touch $@

build: .venv/installed
	cmake --preset release -DRDMABATCH_PYTHON=ON -DPython_EXECUTABLE=$(CURDIR)/.venv/bin/python >/dev/null
	cmake --build --preset release
	cmake --install build/release --component python --prefix . >/dev/null

test: test-cc test-python

test-cc: build
	ctest --preset release

test-python: build
	pytest -m "not verbs"

test-verbs: $(DEVICES:%=test-on-%)

# The transports that need no device are tested outside, where a system call costs a fiftieth.
$(DEVICES:%=test-on-%): test-on-%: build
	TF_RDMABATCH_DEVICE=$* RDMA_TESTBED_TIMEOUT=1500 tests/testbed/run \
	  sh -c "build/release/tests/rdmabatch_tests --gtest_filter='*erbs*:ChoiceTest.*' && $(PYTEST_VERBS)"

test-models:
	tests/models/run

test-package:
	tests/package/run $(PYTHON)

$(SANITIZERS:%=build-%) build-fuzz: build-%: .venv/installed
	cmake --preset $* >/dev/null
	cmake --build --preset $*

$(SANITIZERS:%=sanitize-%): sanitize-%: build-%
	ctest --preset $*

sanitize: $(SANITIZERS:%=sanitize-%)

fuzz: build-fuzz
	tests/fuzz/run build/fuzz/tests $(FUZZ_SECONDS)

lint: build
	pre-commit run --all-files --show-diff-on-failure

demo: .venv/installed
	python -m examples.demo.run

bench: build
	tf-rdmabatch bench engine --json build/bench.json

clean:
	rm -rf build .venv tf_rdmabatch/*.so *.egg-info
