"""Builds each view as a DataFrame over the views that it reads, and separates rejected rows from good ones.

Nothing is read or computed here; Spark checks names and types. Each query has its own views, so that its consumer
group commits its own offsets.
"""

import importlib.util
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ottla.spark.pipelines.dataframes.added_columns import REJECTED
from ottla.spark.pipelines.dataframes.rejections import good_rows, with_expectations
from ottla.spark.pipelines.dataframes.sources import source_rows, stream_rows
from ottla.spark.pipelines.declaration.problems import Problem, ProjectError
from ottla.spark.pipelines.declaration.project import PROJECT_FILE, Project, Step
from ottla.spark.pipelines.declaration.project_file import parse_watermark
from ottla.spark.pipelines.declaration.step_files import FUNCTION
from ottla.spark.pipelines.running.failure_reasons import failure_reason

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A view: all rows, with `_rejected` if it can reject any, and the good rows that other steps read."""

    everything: "DataFrame"
    good: "DataFrame"


class ViewBuilder:
    """Builds the views of one project in one session. Python steps are loaded once."""

    def __init__(self, spark: "SparkSession", project: Project) -> None:
        self._spark = spark
        self._project = project
        self._modules: dict[str, ModuleType] = {}
        self.rejecting: set[str] = set()
        """The views built so far that can reject rows."""

    def build(self, root: str, query: str) -> View:
        """A view with all views that it depends on, for one query. Raises `ProjectError` with file and line."""
        views: dict[str, View] = {}
        for name in self._project.needed_for(root):
            views[name] = self._view(name, views, query)
        return views[root]

    def build_rejected(self, root: str, query: str) -> "DataFrame":
        """All rows of a view with `_rejected`, as a stream."""
        source = self._project.settings.sources.get(root)
        if source is not None and source.latest_by_key:
            rows = stream_rows(self._spark, self._project, root, group_id=self._project.group_id(query))
            return self._checked(root, rows)
        return self.build(root, query).everything

    def build_all(self, names: Iterable[str]) -> None:
        """Builds these views; raises what Spark finds wrong with them."""
        for name in names:
            self.build(name, "validate")

    def _view(self, name: str, views: dict[str, View], query: str) -> View:
        project = self._project
        step = project.steps.get(name)
        if step is None:
            rows = self._guarded(PROJECT_FILE, name, lambda: self._source(name, query))
        else:
            rows = self._guarded(step.file, name, lambda: self._step(step, views))
        everything = self._checked(name, rows)
        if REJECTED in everything.columns:
            self.rejecting.add(name)
        good = good_rows(everything, name, is_kept=project.settings.dead_letters is not None)
        watermark = project.watermark(name)
        if watermark is not None:
            column, delay = parse_watermark(watermark)
            good = self._guarded(PROJECT_FILE, name, lambda: _analysed(good.withWatermark(column, delay)))
        good.createOrReplaceTempView(name)
        return View(everything=everything, good=good)

    def _source(self, name: str, query: str) -> "DataFrame":
        return _analysed(source_rows(self._spark, self._project, name, group_id=self._project.group_id(query)))

    def _checked(self, name: str, rows: "DataFrame") -> "DataFrame":
        expected = self._project.expectations(name)
        return self._guarded(PROJECT_FILE, name, lambda: _analysed(with_expectations(rows, name, expected)))

    def _step(self, step: Step, views: dict[str, View]) -> "DataFrame":
        if step.language == "sql":
            # The temporary view may have been replaced for another query in between.
            for name in step.reads:
                views[name].good.createOrReplaceTempView(name)
            return _analysed(self._spark.sql(step.text.rstrip().removesuffix(";")))
        if step.view not in self._modules:
            self._modules[step.view] = _load(self._project, step)
        rows = getattr(self._modules[step.view], FUNCTION)(
            self._spark, **{name: views[name].good for name in step.reads}
        )
        if not hasattr(rows, "createOrReplaceTempView"):
            raise TypeError(f"{FUNCTION} returned {type(rows).__name__}, not a DataFrame")
        return _analysed(rows)

    def _guarded(self, file: str, view: str, work: Any) -> Any:
        """Does the work; raises errors as `ProjectError` with the file and line of the step."""
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        try:
            return work()
        except ProjectError:
            raise
        except Exception as error:
            words = f"{type(error).__name__}: {error}"
            if isinstance(error, PySparkException):
                words = _first_words(str(error))
            elif isinstance(error, Py4JError):
                words = failure_reason(str(error))
            line = _sql_line(str(error)) if file.endswith(".sql") else _python_line(error, file)
            raise ProjectError([Problem(file=file, line=line, message=f"{view}: {words}")]) from error


def _analysed(rows: "DataFrame") -> "DataFrame":
    """The rows, after Spark has checked names and types, which Spark Connect defers."""
    _ = rows.schema
    return rows


def _load(project: Project, step: Step) -> ModuleType:
    """A Python step as a module whose functions are pickled by value for executors."""
    from pyspark import cloudpickle

    name = f"ottla_pipeline_{re.sub(r'[^A-Za-z0-9_]', '_', project.name)}_{step.view}"
    spec = importlib.util.spec_from_file_location(name, project.folder / step.file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{step.file} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    cloudpickle.register_pickle_by_value(module)
    return module


def _first_words(text: str) -> str:
    """The message of Spark, without the plan of the query and the stack."""
    text = re.split(r"\n\s*(?:== SQL|JVM stacktrace|;)|;\n|\nDataFrame|\n'", text)[0]
    return re.sub(r"\s+", " ", text).strip()


def _sql_line(text: str) -> int:
    found = re.search(r"[Ll]ine:? (\d+)[, ]+pos(?:ition)? ?\d+", text)
    return int(found[1]) if found else 0


def _python_line(error: Exception, file: str) -> int:
    at, line = error.__traceback__, 0
    while at is not None:
        if at.tb_frame.f_code.co_filename.endswith(file):
            line = at.tb_lineno
        at = at.tb_next
    return line
