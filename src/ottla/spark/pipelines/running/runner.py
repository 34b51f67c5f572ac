"""Runs the queries of a project: starts and watches them, and stops them on request or when one has failed.

A run that is stopped lets each query complete its micro-batch. Exactly-once does not depend on that: the next run
repeats an incomplete micro-batch.
"""

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ottla.model.errors import OttlaError
from ottla.spark.launch.session import build_session
from ottla.spark.pipelines.dataframes.sources import option_text, place_of
from ottla.spark.pipelines.dataframes.view_builder import ViewBuilder
from ottla.spark.pipelines.declaration.loading import unused_views
from ottla.spark.pipelines.declaration.problems import ProjectError
from ottla.spark.pipelines.declaration.project import Project
from ottla.spark.pipelines.running.failure_reasons import failure_reason
from ottla.spark.pipelines.running.parquet_files import set_aside_uncommitted
from ottla.spark.pipelines.running.queries import PlannedQuery, plan_queries
from ottla.spark.pipelines.running.query_report import QueryReport, when_begun, when_idle, with_progress
from ottla.spark.pipelines.running.run_files import (
    ERROR_LOG,
    SPARK_LOG,
    checkpoint_folder,
    run_lock,
    state_folder,
    write_progress,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POLL_SECONDS: Final = 0.25
STOP_SECONDS: Final = 60.0
"""How long a query may take to complete its micro-batch before it is interrupted."""

SETTLE_SECONDS: Final = 10.0
START_SECONDS: Final = 120.0
START_TRIES: Final = 15
_LATE: Final = "Python worker failed to connect back"

_SPARK_LOGGERS: Final = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")
"""Loggers of PySpark that log every error that it raises."""

Watch = Callable[[list[QueryReport]], None]


class PipelineFailedError(OttlaError):
    """A query of a pipeline failed."""


def validate_deeply(project: Project, *, master: str) -> None:
    """Lets Spark check every view and every sink without running them. Raises `ProjectError`."""
    with _session(project, master) as spark:
        ViewBuilder(spark, project).build_all(unused_views(project))
        plan_queries(spark, project, once=True)


def run_project(
    project: Project, *, master: str, once: bool, watch: Watch, ready: Callable[[], None]
) -> list[QueryReport]:
    """Runs a project until it is done (`once`), or until SIGINT or SIGTERM; returns the final reports of the queries.

    Calls `ready` when all queries have started, and `watch` repeatedly with their progress. Raises
    `PipelineFailedError`, `ProjectError` and `AlreadyRunningError`.
    """
    with run_lock(project), _session(project, master) as spark:
        return run_queries(spark, project, once=once, watch=watch, ready=ready)


def run_queries(
    spark: "SparkSession", project: Project, *, once: bool, watch: Watch, ready: Callable[[], None]
) -> list[QueryReport]:
    """Runs a project in an existing session. The caller makes sure that it does not run elsewhere."""
    state_folder(project).mkdir(parents=True, exist_ok=True)
    run = _Run(spark, project, watch)
    with _stopped_by_signals(run.stop):
        try:
            planned = plan_queries(spark, project, once=once)
            _clean_parquet(project)
            run.start(planned)
            ready()
            run.wait()
        finally:
            run.close()
    run.tell()
    return run.reports


def _clean_parquet(project: Project) -> None:
    """Moves away files of uncommitted batches, which a crash left; this run writes the batches again.

    Only in folders of this machine, and not if Spark's log expires files (option `retention`).
    """
    for name, sink in project.settings.sinks.items():
        if sink.parquet is None or any(key.lower() == "retention" for key in sink.options):
            continue
        folder = place_of(project, sink.parquet).removeprefix("file://")
        checkpoint = checkpoint_folder(project, name)
        if "://" in folder or checkpoint is None or not (checkpoint / "metadata").exists():
            continue
        # `metadata` is written when the query first starts: older files do not belong to it.
        set_aside_uncommitted(Path(folder), (checkpoint / "metadata").stat().st_mtime)


class _Run:
    """The queries of one run."""

    def __init__(self, spark: "SparkSession", project: Project, watch: Watch) -> None:
        self._spark = spark
        self._project = project
        self._watch = watch
        self._queries: dict[str, Any] = {}
        self._planned: dict[str, PlannedQuery] = {}
        self._reports: dict[str, QueryReport] = {}
        self._tries: dict[str, int] = {}
        self._lock = threading.Lock()
        self._stops = 0
        self._follower: Any = None
        self._listener: Any = None

    @property
    def reports(self) -> list[QueryReport]:
        with self._lock:
            return list(self._reports.values())

    def stop(self) -> None:
        """Requests a stop; the second request does not wait for micro-batches."""
        self._stops += 1

    def start(self, planned: list[PlannedQuery]) -> None:
        """Starts all queries; if one fails to start, stops the others."""
        from ottla.spark import follow_groups

        self._follower = follow_groups(self._spark, self._project.kafka_security())
        self._listener = _listener(self._on_progress, self._on_idle)
        self._spark.streams.addListener(self._listener)
        self._planned = {each.name: each for each in planned}
        self._reports = {each.name: QueryReport(name=each.name, to=each.to) for each in planned}
        for each in planned:
            if not self._stops:
                self._start_query(each)
                self._wait_begun(each.name)

    def _start_query(self, planned: PlannedQuery) -> None:
        self._tries[planned.name] = self._tries.get(planned.name, 0) + 1
        try:
            self._queries[planned.name] = planned.writer.start()
        except Exception as error:
            self._end_others()
            raise self._failure(planned.name, str(error)) from None

    def _wait_begun(self, name: str) -> None:
        """Waits until the sources of a query have started.

        Spark gives the Python process of a source 10 seconds to start, which is too short for many at once on a busy
        machine; so queries start one after the other.
        """
        deadline = time.monotonic() + START_SECONDS
        query = self._queries[name]
        while query.isActive and "nitializing" in query.status["message"] and time.monotonic() < deadline:
            if self._stops:
                return
            time.sleep(POLL_SECONDS / 5)
        with self._lock:
            self._reports[name] = when_begun(self._reports[name])

    def wait(self) -> None:
        """Returns when all queries have ended. Raises `PipelineFailedError` if one fails, after stopping the others."""
        while True:
            # Read once per round: a query that ends after this is found in the next round, with its error.
            active = {name for name, query in self._queries.items() if query.isActive}
            active |= {name for name in self._queries.keys() - active if self._goes_on(name)}
            self.tell()
            if not active:
                return
            if self._stops:
                self._end_all(active)
                self.tell()
                return
            time.sleep(POLL_SECONDS)

    def close(self) -> None:
        """Waits for the commits of consumer groups; Spark reports the last micro-batches with a delay."""
        if self._follower is not None:
            self._follower.settle(self._spark, SETTLE_SECONDS)
            self._follower.close()
        for listener in (self._follower, self._listener):
            if listener is not None:
                self._spark.streams.removeListener(listener)

    def _goes_on(self, name: str) -> bool:
        """Whether a query that ended was restarted. Raises `PipelineFailedError` if it failed."""
        error = self._queries[name].exception()
        if error is None:
            self._reports[name].state = "done"
            return False
        if _LATE in str(error) and self._tries[name] < START_TRIES:
            # The machine was too slow for the timeout of Spark. A restart is safe: it continues from the checkpoint.
            self._start_query(self._planned[name])
            self._wait_begun(name)
            return True
        self._reports[name].state = "failed"
        self._end_others()
        self.tell()
        raise self._failure(name, str(error))

    def _on_progress(self, query: str, progress: Mapping[str, Any]) -> None:
        name = query.removeprefix(f"{self._project.name}.")
        with self._lock:
            if name in self._reports:
                self._reports[name] = with_progress(self._reports[name], progress)

    def _on_idle(self, run_id: str) -> None:
        with self._lock:
            for name, query in self._queries.items():
                if str(query.runId) == run_id:
                    self._reports[name] = when_idle(self._reports[name])

    def tell(self) -> None:
        """Publishes the progress of all queries."""
        reports = self.reports
        write_progress(self._project, {"at": time.time(), "queries": reports})
        self._watch(reports)

    def _end_all(self, active: set[str]) -> None:
        """Lets each query complete its micro-batch, then stops it."""
        deadline = time.monotonic() + STOP_SECONDS
        batches = {name: self._reports[name].batch for name in active}
        while active and time.monotonic() < deadline and self._stops < 2:
            for name in sorted(active):
                query = self._queries[name]
                is_between = not query.status["isTriggerActive"] or self._reports[name].batch != batches[name]
                if is_between or not query.isActive:
                    self._stop_query(name)
                    active.discard(name)
            if active:
                time.sleep(POLL_SECONDS / 5)
        for name in sorted(active):
            self._stop_query(name)

    def _stop_query(self, name: str) -> None:
        with suppress(Exception):
            self._queries[name].stop()
        self._reports[name].state = "stopped"

    def _end_others(self) -> None:
        for name, query in self._queries.items():
            if query.isActive:
                self._stop_query(name)

    def _failure(self, name: str, error_text: str) -> PipelineFailedError:
        path = state_folder(self._project) / ERROR_LOG
        path.write_text(error_text)
        planned = self._planned[name]
        project = self._project
        files = [project.steps[view].file for view in project.needed_for(planned.view) if view in project.steps]
        blamed = [file for file in files if file in error_text]
        step = f" in {blamed[-1]}" if blamed else ""
        return PipelineFailedError(
            f"query {name} (view {planned.view} to {planned.to}) failed{step}: {failure_reason(error_text)}\n"
            f"The full error is in {path}. The next run continues after the last committed batch."
        )


def _listener(told: Callable[[str, Mapping[str, Any]], None], is_idle: Callable[[str], None]) -> Any:
    """A Spark listener that reports each micro-batch, and idle queries."""
    from pyspark.sql.streaming import StreamingQueryListener

    class Listener(StreamingQueryListener):
        def onQueryStarted(self, event: Any) -> None: ...

        def onQueryProgress(self, event: Any) -> None:
            told(event.progress.name or "", msgspec.json.decode(event.progress.json))

        def onQueryIdle(self, event: Any) -> None:
            is_idle(str(event.runId))

        def onQueryTerminated(self, event: Any) -> None: ...

    return Listener()


@contextmanager
def _session(project: Project, master: str) -> Iterator["SparkSession"]:
    """A session whose JVM and child processes log into a file of the project instead of the terminal."""
    folder = state_folder(project)
    folder.mkdir(parents=True, exist_ok=True)
    settings = {key: option_text(value) for key, value in project.settings.spark.items()}
    log = folder / SPARK_LOG
    log.write_bytes(b"")
    with _stderr_into(log):
        spark = build_session(
            project.name, master=master, settings={"spark.ui.showConsoleProgress": "false"} | settings
        )
    try:
        with _errors_logged_into(log):
            yield spark
    except ProjectError as error:
        raise ProjectError(error.problems, remark=f"The full error of Spark is in {log}") from error
    finally:
        with suppress(Exception):
            spark.stop()


@contextmanager
def _errors_logged_into(path: Path) -> Iterator[None]:
    """Redirects the errors that PySpark logs as JSON into a file."""
    from pyspark.logger import PySparkLogger

    loggers = [PySparkLogger.getLogger(name) for name in _SPARK_LOGGERS]
    before = [list(logger.handlers) for logger in loggers]
    handler = logging.FileHandler(path)
    try:
        for logger in loggers:
            logger.handlers = []
            logger.addHandler(handler)
        yield
    finally:
        for logger, handlers in zip(loggers, before, strict=True):
            logger.handlers = handlers
        handler.close()


@contextmanager
def _stderr_into(path: Path) -> Iterator[None]:
    """Redirects stderr into a file for processes that are started inside."""
    sys.stderr.flush()
    kept = os.dup(2)
    with path.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


@contextmanager
def _stopped_by_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Makes SIGINT and SIGTERM request a clean stop; only the main thread can handle signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, lambda *_: stop()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
