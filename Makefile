# Two commands on a fresh machine: `make run` and `make test`. Needs Python 3.11 or newer, a C compiler and pip.
PYTHON ?= python3
VENV ?= .venv
FUZZ_SECONDS ?= 60
BIN := $(VENV)/bin
KERNELS := $(shell find src -name '*.pyx' -o -name '*.pxd' -o -name '*.h')

.PHONY: run test demo check bench bench-guard test-compat test-spark test-hostile test-sim sim test-cluster chaos fuzz clean help

help:  ## what can be made
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Ottla needs Python 3.11 or newer; this is $$($(PYTHON) --version). Try make PYTHON=python3.11" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

# Kernels are built by the install; a changed one, or a changed list of dependencies, installs again.
$(VENV)/.installed: pyproject.toml setup.py $(KERNELS) | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

$(VENV)/.installed-compat: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[compat]'
	touch $@

$(VENV)/.installed-spark: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,spark]'
	touch $@

$(VENV)/.installed-cluster: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,spark,cluster]'
	touch $@

run: $(VENV)/.installed  ## set up and start the broker
	$(BIN)/ottla serve

test: $(VENV)/.installed  ## set up and pass the tests
	$(BIN)/python -m pytest -n auto

demo: $(VENV)/.installed-spark  ## a broker, a stream of orders, a pipeline on Spark killed in the middle, and a count
	$(BIN)/python -m examples.demo

check: $(VENV)/.installed  ## style, types, layers, tidiness
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python -m pytest tests/test_tidy.py

test-compat: $(VENV)/.installed-compat  ## real Kafka, its tools and foreign clients (tests/compat/prepare gets them)
	$(BIN)/python -m pytest tests/compat --ignore tests/compat/client_suite
	$(BIN)/python -m tests.compat.client_suite

test-spark: $(VENV)/.installed-spark  ## real Spark: reads, writes, kills, pipelines (tests/compat/prepare gets Kafka); not the long runs
	$(BIN)/python -m pytest tests/spark -m "not long and not install"

test-hostile: $(VENV)/.installed  ## clients that break every rule, kill -9, a full disk (as root, to mount a small one)
	$(BIN)/python -m pytest tests/hostile tests/crash

test-sim: $(VENV)/.installed  ## a cluster's life from 100 seeds, classic failures, planted bugs, determinism
	$(BIN)/python -m ottla.sim --seeds 0..100 --jobs 2
	$(BIN)/python -m pytest tests/simulation -n 2

sim: $(VENV)/.installed  ## the same from 2,000 seeds, and every planted bug
	$(BIN)/python -m ottla.sim --seeds 0..2000 --jobs $$(nproc)
	OTTLA_SIM_MUTANTS=all $(BIN)/python -m pytest tests/simulation -n auto

test-cluster: $(VENV)/.installed-cluster  ## three brokers, real ZooKeeper, cut networks, kills (as root; tests/compat/prepare gets Java and ip)
	$(BIN)/python -m pytest tests/cluster tests/chaos -m "not long"

chaos: $(VENV)/.installed-cluster  ## the same for ten minutes and more
	$(BIN)/python -m pytest tests/cluster tests/chaos -s

bench: $(VENV)/.installed-compat $(VENV)/.installed-spark  ## every benchmark, with ratios
	$(BIN)/python -m benchmarks

bench-guard: $(VENV)/.installed  ## the few ratios that must not get worse, in three minutes
	$(BIN)/python -m benchmarks.guard

fuzz: $(VENV)/.installed  ## the kernels under address sanitizer, for FUZZ_SECONDS=60
	PYTHON=$(abspath $(BIN)/python) tests/fuzz/run --seconds $(FUZZ_SECONDS)

clean:  ## remove what was built and installed
	rm -rf $(VENV) build src/*.egg-info
	find src \( -name '*.so' -o -name '*.c' \) -delete
