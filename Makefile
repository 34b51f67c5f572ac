# Two commands on a fresh machine: `make run` and `make test`. Needs Python 3.11 or newer, a C compiler and pip.
PYTHON ?= python3
VENV ?= .venv
FUZZ_SECONDS ?= 60
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --disable-pip-version-check
KERNELS := $(shell find src -name '*.pyx' -o -name '*.pxd' -o -name '*.h')

# Two installations at once would trip over each other.
.NOTPARALLEL:
.PHONY: run test demo check bench bench-guard docs test-compat test-spark test-hostile test-sim sim test-cluster chaos fuzz clean help

help:  ## what can be made
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Ottla needs Python 3.11 or newer; this is $$($(PYTHON) --version). Try make PYTHON=python3.11" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

# Compiled first, where it can be seen: the installations below find the kernels compiled (setup.py keeps them).
$(VENV)/.compiled: setup.py $(KERNELS) | $(BIN)/python
	@echo "== installing what compiles the kernels"
	$(INSTALL) 'setuptools>=77' 'Cython>=3.1'
	@echo "== compiling the kernels, about a minute"
	$(BIN)/python setup.py -q build_ext --inplace
	@touch $@

# The package itself is in each of these, so that a changed list of dependencies is noticed by pip.
$(VENV)/.installed: pyproject.toml $(VENV)/.compiled
	@echo "== installing Ottla"
	$(INSTALL) --no-build-isolation --editable .
	@touch $@

$(VENV)/.installed-%: $(VENV)/.installed
	@echo "== installing what $* needs"
	$(INSTALL) --no-build-isolation --editable '.[$*]'
	@touch $@

run: $(VENV)/.installed  ## set up and start the broker
	$(BIN)/ottla serve

test: $(VENV)/.installed-dev  ## set up and run the tests
	$(BIN)/python -m pytest -n auto

demo: $(VENV)/.installed-spark  ## a broker, a stream of orders, a pipeline on Spark killed in the middle, and a count
	$(BIN)/python -m examples.demo

check: $(VENV)/.installed-dev  ## style, types, layers, tidiness
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python -m pytest tests/test_tidy.py

test-compat: $(VENV)/.installed-compat  ## real Kafka, its tools and foreign clients (tests/compat/prepare gets them)
	$(BIN)/python -m pytest tests/compat --ignore tests/compat/client_suite
	$(BIN)/python -m tests.compat.client_suite

test-spark: $(VENV)/.installed-dev $(VENV)/.installed-spark  ## real Spark: reads, writes, kills, pipelines (tests/compat/prepare gets Kafka); not the long runs
	$(BIN)/python -m pytest tests/spark -m "not long and not install"

test-hostile: $(VENV)/.installed-dev  ## clients that break every rule, kill -9, a full disk (as root, to mount a small one)
	$(BIN)/python -m pytest tests/hostile tests/crash

test-sim: $(VENV)/.installed-dev  ## a cluster's life from 100 seeds, classic failures, planted bugs, determinism
	$(BIN)/python -m ottla.sim --seeds 0..100 --jobs 2
	$(BIN)/python -m pytest tests/simulation -n 2

sim: $(VENV)/.installed-dev  ## the same from 2,000 seeds, and every planted bug
	$(BIN)/python -m ottla.sim --seeds 0..2000 --jobs $$(nproc)
	OTTLA_SIM_MUTANTS=all $(BIN)/python -m pytest tests/simulation -n auto

test-cluster: $(VENV)/.installed-dev $(VENV)/.installed-spark $(VENV)/.installed-cluster  ## three brokers, real ZooKeeper, cut networks, kills (as root; tests/compat/prepare gets Java and ip)
	$(BIN)/python -m pytest tests/cluster tests/chaos -m "not long"

chaos: $(VENV)/.installed-dev $(VENV)/.installed-spark $(VENV)/.installed-cluster  ## the same for ten minutes and more
	$(BIN)/python -m pytest tests/cluster tests/chaos -s

bench: $(VENV)/.installed-compat $(VENV)/.installed-spark  ## every benchmark, with ratios
	$(BIN)/python -m benchmarks

bench-guard: $(VENV)/.installed-dev  ## the few ratios that must not get worse, in three minutes
	$(BIN)/python -m benchmarks.guard

docs: $(VENV)/.installed-docs  ## the documentation as a site, into build/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "open build/site/index.html, or run: $(BIN)/mkdocs serve"

fuzz: $(VENV)/.installed-dev  ## the kernels under address sanitizer, for FUZZ_SECONDS=60
	PYTHON=$(abspath $(BIN)/python) tests/fuzz/run --seconds $(FUZZ_SECONDS)

clean:  ## remove what was built and installed
	rm -rf $(VENV) build src/*.egg-info
	find src \( -name '*.so' -o -name '*.c' \) -delete
