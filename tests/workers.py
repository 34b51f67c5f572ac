"""Runs the collected tests in several processes: `pytest --workers 4`.

The tests are collected once, then the workers are forked: none needs seconds to import everything again. Each takes one
module after the other, so what the tests of a module share is made once (`--take test`: one test after the other, for
suites that share nothing in modules). Tests that start brokers and processes come
first, since they wait; the pure ones, which only compute, fill the gaps at the end.

With `--rerun-failed` a test that fails is run once more when all others have ended, in a worker of its own. If it
passes then, it is FLAKY: listed as such, with its first failure in `build/failures`, and the run does not fail.
"""

import os
import random
import signal
import sys
import tempfile
import traceback
import warnings
from collections import deque
from contextlib import suppress
from itertools import groupby
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import Any, Final, NoReturn

import pytest

from tests import failures

PURE_FOLDERS: Final = ("tests/unit/", "tests/state/", "tests/golden/", "tests/scenarios/", "tests/test_tidy.py")
"""No test in these starts a process or opens a port."""
NUMBER_BYTES: Final = 4
RERUNS_MAX: Final = 20
"""Where more tests fail, they do not fail by chance."""


def add_options(parser: pytest.Parser) -> None:
    """`--workers` and `--rerun-failed`."""
    group = parser.getgroup("ottla")
    group.addoption("--workers", type=int, default=0, metavar="N", help="run the tests in N forked processes")
    group.addoption("--take", choices=("module", "test"), default="module", help="what a worker takes at once")
    group.addoption("--rerun-failed", action="store_true", help="run what fails once more, alone: what passes is FLAKY")


class WorkerPool:
    """A pytest plugin that runs tests in workers and passes their reports on to the other plugins."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._reruns = bool(config.option.rerun_failed)
        self._workers: dict[Connection, _Worker] = {}
        self._failed: dict[int, list[pytest.TestReport]] = {}
        self._flaky: list[str] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Runs all tests. None if there were errors in collecting them: pytest itself says so then."""
        if session.testsfailed and not session.config.option.continue_on_collection_errors:
            return None
        with tempfile.TemporaryDirectory(prefix="ottla-", ignore_cleanup_errors=True) as folder:
            option = self._config.option
            tests = _modules(session.items) if option.take == "module" else [[at] for at in range(len(session.items))]
            self._run(session, tests, Path(folder), option.workers)
            if self._failed and self._reruns:
                self._rerun(session, Path(folder))
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        return True

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Lists what is flaky."""
        for line in self._flaky:
            terminalreporter.write_line(line, yellow=True)

    def _run(self, session: pytest.Session, portions: list[list[int]], folder: Path, workers: int) -> None:
        """Runs the tests with these numbers. A worker that dies is replaced; its test fails, its module goes on."""
        todo = _Todo(portions)
        try:
            for _ in range(min(workers, len(portions))):
                self._start(session, todo, folder, [])
            while self._workers:
                for connection in wait(list(self._workers)):
                    assert isinstance(connection, Connection)
                    worker = self._workers[connection]
                    with suppress(EOFError):
                        self._hear(session, worker, *connection.recv())
                        continue
                    # Outside of any handler, whose exception would be the context of all errors in the next worker.
                    del self._workers[connection]
                    self._end(session, worker)
                    if worker.left:
                        self._start(session, todo, folder, worker.left)
                if session.shouldfail or session.shouldstop:
                    todo.clear()
        finally:
            todo.close()
            for worker in self._workers.values():
                os.kill(worker.process, signal.SIGINT)
                os.waitpid(worker.process, 0)

    def _rerun(self, session: pytest.Session, folder: Path) -> None:
        """Decides what is flaky, and reports the others as failed."""
        first_failures, self._failed = self._failed, {}
        for number, first in first_failures.items():
            if len(first_failures) > RERUNS_MAX:
                self._report(first)
                continue
            self._run(session, [[number]], folder, 1)
            if number in self._failed:
                self._report(self._failed[number])
            else:
                self._flaky.append(failures.line("FLAKY", first))
                failures.mark_flaky(first[0].nodeid)

    def _start(self, session: pytest.Session, todo: "_Todo", folder: Path, tests: list[int]) -> None:
        """Forks a worker, which begins with these tests."""
        here, there = Pipe(duplex=False)
        sys.stdout.flush()
        sys.stderr.flush()
        process = os.fork()
        if process == 0:
            for connection in (here, *self._workers):
                connection.close()
            self._config.pluginmanager.unregister(self)
            _work(session, todo, tests, there, Path(tempfile.mkdtemp(dir=folder, prefix="")))
        there.close()
        self._workers[here] = _Worker(process, list(tests))

    def _hear(self, session: pytest.Session, worker: "_Worker", kind: str, content: Any) -> None:
        match kind:
            case "taken":
                worker.left += content
            case "start":
                worker.left.remove(content)
                worker.test = content
            case "report":
                worker.reports.append(
                    self._config.hook.pytest_report_from_serializable(config=self._config, data=content)
                )
            case "finish":
                self._finish(session, worker)
            case "warning":
                self._config.hook.pytest_warning_recorded.call_historic(kwargs=content)

    def _finish(self, session: pytest.Session, worker: "_Worker") -> None:
        """Reports a test, unless it is to be run again first."""
        assert worker.test is not None
        test, reports, worker.test, worker.reports = worker.test, worker.reports, None, []
        has_failed = any(report.failed for report in reports)
        if has_failed:
            failures.keep(reports)  # at once: the run may be ended before the test is run again
        if has_failed and self._reruns:
            self._failed[test] = reports
        else:
            self._report(reports)

    def _report(self, reports: list[pytest.TestReport]) -> None:
        hook = self._config.hook
        hook.pytest_runtest_logstart(nodeid=reports[0].nodeid, location=reports[0].location)
        for report in reports:
            hook.pytest_runtest_logreport(report=report)
        hook.pytest_runtest_logfinish(nodeid=reports[0].nodeid, location=reports[0].location)

    def _end(self, session: pytest.Session, worker: "_Worker") -> None:
        """Fails the test in the middle of which a worker ended."""
        code = os.waitstatus_to_exitcode(os.waitpid(worker.process, 0)[1])
        if worker.test is not None:
            how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
            item = session.items[worker.test]
            what = f"the process of this test ended with {how}"
            worker.reports.append(pytest.TestReport(item.nodeid, item.location, {}, "failed", what, "call"))
            self._finish(session, worker)


class _Worker:
    """A worker process: the test that it runs, the reports of that test so far, and the tests that it runs next."""

    def __init__(self, process: int, left: list[int]) -> None:
        self.process = process
        self.left = left
        self.test: int | None = None
        self.reports: list[pytest.TestReport] = []


class _Todo:
    """Portions of tests that no worker has taken yet. Their numbers stand in a pipe: each worker takes the next."""

    def __init__(self, portions: list[list[int]]) -> None:
        self._portions = portions
        self._reads, self._writes = os.pipe()
        os.set_blocking(self._reads, False)
        os.set_blocking(self._writes, False)  # more portions than a pipe can hold are an error
        for number in range(len(portions)):
            os.write(self._writes, number.to_bytes(NUMBER_BYTES))

    def take(self) -> list[int]:
        """The tests of the next portion; empty if all are taken."""
        try:
            return self._portions[int.from_bytes(os.read(self._reads, NUMBER_BYTES))]
        except BlockingIOError:
            return []

    def clear(self) -> None:
        """Nothing more is taken."""
        while self.take():
            pass

    def close(self) -> None:
        """Gives the pipe back."""
        os.close(self._reads)
        os.close(self._writes)


class _Reporter:
    """In a worker: sends reports and warnings to the process that forked it."""

    def __init__(self, connection: Connection, config: pytest.Config) -> None:
        self._connection = connection
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A phase of a test has ended."""
        content = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._connection.send(("report", content))

    def pytest_warning_recorded(
        self, warning_message: warnings.WarningMessage, when: str, nodeid: str, location: tuple[str, int, str] | None
    ) -> None:
        """Leaves out the object that a warning may be about."""
        about = warning_message
        copy = warnings.WarningMessage(str(about.message), about.category, about.filename, about.lineno)
        content = {"warning_message": copy, "when": when, "nodeid": nodeid, "location": location}
        self._connection.send(("warning", content))


def _modules(items: list[pytest.Item]) -> list[list[int]]:
    """The numbers of the tests of each module, the pure modules last."""
    modules = [list(module) for _, module in groupby(range(len(items)), lambda number: items[number].path)]
    return sorted(modules, key=lambda module: items[module[0]].nodeid.startswith(PURE_FOLDERS))


def _work(session: pytest.Session, todo: _Todo, tests: list[int], connection: Connection, temporary: Path) -> NoReturn:
    """Runs tests in a worker process until none is left, and ends it."""
    config = session.config
    manager = config.pluginmanager
    os.environ["PYTEST_DEBUG_TEMPROOT"] = str(temporary)
    random.seed()
    capture = manager.getplugin("capturemanager")
    capture.stop_global_capturing()  # its files are shared with the process that forked this one
    capture.start_global_capturing()
    manager.unregister(name="terminalreporter")
    silent = pytest.TerminalReporter(config, open(os.devnull, "w"))  # noqa: SIM115
    silent.pytest_sessionstart(session)
    manager.register(silent, "terminalreporter")
    manager.register(_Reporter(connection, config))

    def take() -> list[int]:
        taken = todo.take()
        connection.send(("taken", taken))
        return taken

    queue = deque(tests or take())
    try:
        while queue and not session.shouldfail:
            number = queue.popleft()
            # Before the last test of a module: it keeps what the next module needs, too.
            queue.extend(() if queue else take())
            connection.send(("start", number))
            following = session.items[queue[0]] if queue else None
            config.hook.pytest_runtest_protocol(item=session.items[number], nextitem=following)
            connection.send(("finish", None))
    except BaseException as error:  # an interrupt, or an error of pytest's own: the pool sees this process end
        with suppress(BaseException):
            session._setupstate.teardown_exact(None)
        capture.stop_global_capturing()
        if not isinstance(error, KeyboardInterrupt):
            traceback.print_exc()
        os._exit(1)
    os._exit(0)
