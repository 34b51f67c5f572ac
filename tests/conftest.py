"""What every test shares: how Hypothesis runs, what garbage collection leaves out, and which tests are pure.

How many random examples they try is in `tests/effort.py`.

Tests that start a broker or another process, or open a port, lie in `tests/broker` and in the suites beside it. A test
in one of the pure folders that does it fails.
"""

import asyncio
import gc
import signal
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvloop
from hypothesis import settings

from tests import differences, failures, workers
from tests.effort import effort

# Assertions of the modules that tests share also say what they compared.
pytest.register_assert_rewrite(
    *(f"tests.{folder.name}" for folder in Path(__file__).parent.iterdir() if folder.is_dir())
)

# Programs that tests interrupt inherit it: a shell that starts pytest in the background has it ignored.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

gc.disable()  # until everything is collected: imports make millions of objects and next to no garbage

settings.register_profile("house", effort(100))
settings.load_profile("house")

IMPURE_EVENTS = frozenset({"os.fork", "os.posix_spawn", "socket.bind", "subprocess.Popen"})
"""Python's audit events of what a pure test does not do."""

LONG_TEST_MAX_S = 3600
"""How long a test that takes minutes may take; the limit of the others is in `pyproject.toml`."""

_pure_test: str | None = None
"""The test that runs, if it is pure."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of the workers."""
    workers.add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Without `--workers` the tests run in this process."""
    config.pluginmanager.register(differences)
    if config.option.workers and not config.option.collectonly:
        config.pluginmanager.register(workers.WorkerPool(config))


@pytest.hookimpl(tryfirst=True)  # before `-m` selects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Gives long tests more time, and marks those that try random examples."""
    for item in items:
        if item.nodeid.startswith("tests/state/") or getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
            item.add_marker("random")
        if item.get_closest_marker("long") or item.get_closest_marker("install"):
            item.add_marker(pytest.mark.timeout(LONG_TEST_MAX_S))


def pytest_asyncio_loop_factories(item: pytest.Item) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Tests run on asyncio's own event loop, those of what depends on the loop on both that Ottla supports."""
    loops = {"asyncio": asyncio.new_event_loop}
    return {**loops, "uvloop": uvloop.new_event_loop} if item.get_closest_marker("both_loops") else loops


def pytest_collection_finish() -> None:
    """gc.freeze(): fifteen thousand collected tests are left out of every garbage collection from here on."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Tells the audit hook which test runs."""
    global _pure_test
    _pure_test = item.nodeid if item.nodeid.startswith(workers.PURE_FOLDERS) else None
    try:
        return (yield)
    finally:
        _pure_test = None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Keeps the files of a test that fails; a broker's data are among them."""
    report = yield
    folder = getattr(item, "funcargs", {}).get("tmp_path")
    if report.failed and isinstance(folder, Path):
        failures.keep_files(item.nodeid, folder)
    return report


def _audit(event: str, _: tuple[Any, ...]) -> None:
    if _pure_test is not None and event in IMPURE_EVENTS and threading.current_thread() is threading.main_thread():
        raise RuntimeError(f"{_pure_test} causes {event}; move it to tests/broker")


sys.addaudithook(_audit)
