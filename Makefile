# Two commands on a fresh machine: `make run` and `make test`. Needs Python 3.11 or newer, a C compiler and pip.
PYTHON ?= python3
VENV ?= .venv
FUZZ_SECONDS ?= 60
SIM_SECONDS ?= 80
BIN := $(VENV)/bin
# Many tests wait for processes and timeouts: two for each core keep the cores busy.
WORKERS ?= $(shell echo $$((2 * $$(nproc))))
# The simulator and the fuzzer try different seeds for each commit.
FIRST_SEED ?= $(shell $(BIN)/python -m tests.simulation.first_seed)
# The tests write thousands of data dirs and flush them; on a RAM disk, if there is one with 4 GB left, this costs little.
RAM_DISK ?= $(shell test "$$(df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 {print $$4}')" -ge 4194304 2>/dev/null && echo /dev/shm)
# pip itself connects again where the network fails, but gives up when a download breaks off: in CI it is started again.
INSTALL := $(if $(CI),tests/retry 900 )$(BIN)/python -m pip install --disable-pip-version-check
# In CI, a test that fails is run once more: what passes then is flaky.
PYTEST := $(BIN)/python -m pytest$(if $(CI), --rerun-failed)
ON_RAM_DISK := $(if $(RAM_DISK),TMPDIR=$(RAM_DISK) )
KERNELS := $(shell find src -name '*.pyx' -o -name '*.pxd' -o -name '*.h')

# The tests start hundreds of Python processes: each would compile every module again if none were kept.
export PYTHONDONTWRITEBYTECODE :=

# Two installations at once would trip over each other.
.NOTPARALLEL:
.PHONY: run test test-slow test-unit test-under-load test-newest demo check bench bench-guard docs wheels test-arm test-kernel-tls test-compat compat compat-record test-spark test-console screenshots test-hostile test-sim sim test-cluster chaos fuzz clean help

help:  ## list these targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-15s %s\n", $$1, $$2}'

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

# Most tests of brokers wait.
test: WORKERS = $(shell echo $$((4 * $$(nproc))))
test: $(VENV)/.installed-dev  ## set up and run the tests
	OTTLA_HYPOTHESIS=quick $(ON_RAM_DISK)$(PYTEST) --workers $(WORKERS) -m "not slow"

test-slow: $(VENV)/.installed-dev  ## what make test leaves out: every random example, and tests that take a second of CPU time, such as damage to every bit of a file
	$(ON_RAM_DISK)$(PYTEST) --workers $(WORKERS) -m "slow or random"

test-unit: $(VENV)/.installed-dev  ## the tests that start no broker: in seconds
	$(PYTEST) tests/unit --workers $(WORKERS) -m "not slow"

test-under-load: $(VENV)/.installed-dev  ## the suites beside busy loops and stopped processes, three times in a row; or some: SUITES="'make test'"
	$(BIN)/python -m tests.under_load $(SUITES)

# The newest supported interpreter here that has headers and can make environments.
USABLE := import ensurepip, os, sys, sysconfig; os.path.exists(sysconfig.get_path("include") + "/Python.h") and print(sys.version_info[1], sys.executable)
NEWEST = $(or $(NEWEST_PYTHON),$(shell for python in python3.12 python3.13 python3.14 $(wildcard $(HOME)/.pyenv/versions/3.1[234].*/bin/python); do $$python -c '$(USABLE)' 2>/dev/null; done | sort -n | tail -1 | cut -d' ' -f2))
test-newest:  ## make test-unit with the newest Python on this machine, up to 3.14, or with NEWEST_PYTHON=...
	@test -n "$(NEWEST)" || echo "no Python newer than 3.11 with headers here: nothing is tested"
	$(if $(NEWEST),$(MAKE) test-unit PYTHON=$(NEWEST) VENV=.venv-newest)

demo: $(VENV)/.installed-spark  ## a broker, a stream of orders, and a Spark pipeline that is killed and loses nothing
	$(BIN)/python -m examples.demo

check: $(VENV)/.installed-dev  ## style, types, layers, tidiness, the build
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(PYTEST) tests/test_tidy.py tests/test_setup.py tests/test_fetching.py tests/test_workers.py tests/test_processes.py tests/test_differences.py --workers 2

# `make test` runs the others of these files: only here are these clients installed.
FOREIGN_LOGINS := tests/broker/logins/test_foreign_clients.py tests/broker/test_secured_listeners.py
test-compat: $(VENV)/.installed-compat  ## real Kafka, its tools and foreign clients (install them with tests/compat/prepare)
	$(PYTEST) tests/compat --ignore tests/compat/client_suite --workers 3 -m "not long"
	$(PYTEST) $(FOREIGN_LOGINS) -k "aiokafka or kafka_python" --workers 3
	$(BIN)/python -m tests.compat.client_suite

compat: $(VENV)/.installed-compat  ## the same with a running Kafka in every comparison, and the long runs: MirrorMaker from Kafka to Ottla and back
	OTTLA_KAFKA=live OTTLA_COMPAT_RESTARTS=1 $(PYTEST) tests/compat --ignore tests/compat/client_suite --workers 2
	$(BIN)/python -m tests.compat.client_suite

# Of these tests, `make test-compat` compares Ottla with the recorded answers, but for a tenth of them.
compat-record: $(VENV)/.installed-compat  ## ask a running Kafka again for its answers in tests/golden/kafka-4.3
	rm -f tests/golden/kafka-*/*.json
	OTTLA_KAFKA=record $(PYTEST) tests/compat --ignore tests/compat/client_suite --workers 2

test-spark: $(VENV)/.installed-dev $(VENV)/.installed-spark  ## real Spark: reads, writes, kills, pipelines, without the long runs (install Kafka with tests/compat/prepare)
	$(PYTEST) tests/spark -m "not long and not install" --workers 2

test-console: $(VENV)/.installed-browser  ## the web console in a real browser (install Chromium with tests/console/prepare)
	$(PYTEST) tests/console --workers 2

screenshots: $(VENV)/.installed-browser  ## every page of the console, in three sizes, light and dark, in build/screenshots
	$(BIN)/python -m tests.console.screenshots

test-hostile: $(VENV)/.installed-dev  ## hostile clients, kill -9, a full disk (as root, to mount a small disk)
	$(PYTEST) tests/hostile --workers 2
	$(PYTEST) tests/crash --workers $(WORKERS)

test-sim: $(VENV)/.installed-dev  ## simulated clusters from this commit's seeds, for SIM_SECONDS=80; seeds that failed once, classic failures, planted bugs, determinism
	$(BIN)/python -m ottla.sim --seeds $(FIRST_SEED).. --seconds $(SIM_SECONDS) --jobs 2
	$(PYTEST) tests/simulation --workers 2

sim: $(VENV)/.installed-dev  ## the same from 2,000 seeds, always the same, and every planted bug
	$(BIN)/python -m ottla.sim --seeds 0..2000 --jobs $$(nproc)
	OTTLA_SIM_MUTANTS=all $(PYTEST) tests/simulation --workers $$(nproc)

test-cluster: $(VENV)/.installed-dev $(VENV)/.installed-spark $(VENV)/.installed-cluster  ## three brokers, real ZooKeeper, cut networks, kills (as root; install Java and ip with tests/compat/prepare)
	$(PYTEST) tests/cluster -m "not long" --workers $(WORKERS)
	$(PYTEST) tests/chaos -m "not long" --workers 1

chaos: $(VENV)/.installed-dev $(VENV)/.installed-spark $(VENV)/.installed-cluster  ## the same for ten minutes and more
	$(BIN)/python -m pytest tests/cluster tests/chaos -s

bench: $(VENV)/.installed-compat $(VENV)/.installed-spark  ## every benchmark, with ratios
	$(BIN)/python -m benchmarks

bench-guard: $(VENV)/.installed-dev  ## the few ratios that must not get worse, in three minutes
	$(BIN)/python -m benchmarks.guard

docs: $(VENV)/.installed-docs  ## build the documentation site in build/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "open build/site/index.html, or run: $(BIN)/mkdocs serve"

# All supported interpreters on the PATH that have headers and can make environments, or those that you name. The wheels are
# built from the unpacked sdist, so it has everything that they need; kernels that setup.py has kept are not compiled again.
WHEEL_PYTHONS ?= $(shell for each in 3.11 3.12 3.13 3.14; do python$$each -c '$(USABLE)' 2>/dev/null | cut -d' ' -f2; done)
wheels: $(VENV)/.installed-wheels  ## sdist and a manylinux wheel in dist/ for each WHEEL_PYTHONS, installed and tried without a compiler
	rm -rf dist build/wheels build/sdist
	$(BIN)/python -m build --no-isolation --sdist --outdir dist
	mkdir -p build/sdist/build build/kernels
	tar -xzf dist/*.tar.gz -C build/sdist --strip-components 1
	ln -s $(abspath build/kernels) build/sdist/build/kernels
	for each in $(or $(WHEEL_PYTHONS),$(abspath $(BIN)/python)); do \
		$(BIN)/python -m pip --python $$each wheel --no-deps --wheel-dir build/wheels build/sdist || exit 1; done
	PATH=$(abspath $(BIN)):$$PATH $(BIN)/auditwheel repair --strip --wheel-dir dist build/wheels/*.whl
	$(BIN)/python -m tests.wheels.check_wheel dist $(or $(WHEEL_PYTHONS),$(abspath $(BIN)/python))

test-arm: $(VENV)/.installed-dev  ## the kernels and a broker on 64-bit ARM, emulated (prepare with tests/arm64/prepare)
	$(BIN)/python -m tests.arm64.check_kernels
	$(BIN)/python -m tests.arm64.run_tests

test-kernel-tls: $(VENV)/.installed-dev  ## TLS that the kernel encrypts, in an emulated machine (prepare with tests/kernel_tls/prepare)
	tests/kernel_tls/run

fuzz: $(VENV)/.installed-dev  ## the kernels under address sanitizer, with this commit's seed, for FUZZ_SECONDS=60
	PYTHON=$(abspath $(BIN)/python) tests/fuzz/run --seconds $(FUZZ_SECONDS) --seed $(FIRST_SEED)

clean:  ## remove what was built and installed
	rm -rf $(VENV) build src/*.egg-info
	find src \( -name '*.so' -o -name '*.c' \) -delete
