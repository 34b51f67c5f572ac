"""The words of a project: what `pipeline.toml` may say, and what a whole project is. Pure.

Reading it from files: `project_file.py`, `step_files.py`; all together: `loading.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

PROJECT_FILE: Final = "pipeline.toml"
STEPS_FOLDER: Final = "steps"
DECLARATIVE_FILES: Final = ("spark-pipeline.yml", "spark-pipeline.yaml")

Scalar = str | int | float | bool
ValueFormat = Literal["json", "avro", "registry", "string", "bytes"]
SinkFormat = Literal["json", "string", "bytes"]


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """`[sources.<view>]`: a topic, or Parquet or Delta files, as a view of that name."""

    topic: str | None = None
    parquet: str | None = None
    delta: str | None = None
    format: ValueFormat = "json"
    """What a record's value is."""
    schema: str | None = None
    """Spark's DDL (`id STRING, amount DOUBLE`), or a file with it; an Avro schema for `avro`."""
    starting_offsets: str = "earliest"
    """Where the first run begins: `earliest`, `latest`, or the connector's JSON."""
    watermark: str | None = None
    """`column delay`: how late a row may come, as in `at 30 seconds`."""
    latest_by_key: bool | str = False
    """The last value of each key, as a table to join with, as it is when a micro-batch begins.

    A text is the name of the column with the key; else it is `key`.
    """
    static: bool = False
    """Files as a table to join with, as they are when the run begins."""
    registry: str | None = None
    """The schema registry's address, for `registry`."""
    expect: dict[str, str] = {}
    """What must hold for each row: a reason, and a condition in SQL."""
    options: dict[str, Scalar] = {}
    """Further options of the data source."""

    @property
    def key_column(self) -> str | None:
        """How the column with the record's key is called in the table of latest values; None if that is not said."""
        return self.latest_by_key if isinstance(self.latest_by_key, str) else None


class StepRules(msgspec.Struct, frozen=True, kw_only=True):
    """`[steps.<view>]`: what must hold for the rows of a step."""

    expect: dict[str, str] = {}
    watermark: str | None = None


class Sink(msgspec.Struct, frozen=True, kw_only=True):
    """`[sinks.<name>]`: where the rows of a view go."""

    view: str = msgspec.field(name="from")
    topic: str | None = None
    parquet: str | None = None
    delta: str | None = None
    format: SinkFormat = "json"
    key: str | None = None
    """The record's key: a column, or an expression in SQL."""
    mode: Literal["append", "complete"] = "append"
    partition_by: list[str] = []
    options: dict[str, Scalar] = {}


class DeadLetters(msgspec.Struct, frozen=True, kw_only=True):
    """`[dead_letters]`: where rows go that cannot be read, or that a step rejects."""

    topic: str


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The keys of `pipeline.toml` that stand outside of any table, and its tables."""

    name: str
    bootstrap: str = "localhost:9092"
    mode: Literal["continuous", "once"] = "continuous"
    trigger: str = "1s"
    """How often a micro-batch begins, in continuous mode."""
    checkpoints: str | None = None
    """The folder of what has been done; `.ottla/<name>` if it is not named."""
    spark: dict[str, Scalar] = {}
    sources: dict[str, Source] = {}
    steps: dict[str, StepRules] = {}
    sinks: dict[str, Sink] = {}
    dead_letters: DeadLetters | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A file of `steps/`: one view, made from others."""

    view: str
    file: str
    """Relative to the project's folder."""
    language: Literal["sql", "python"]
    text: str
    reads: tuple[str, ...]
    """The views it reads; for a Python step, in the order of the arguments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """A project that was read and has been found right."""

    folder: Path
    settings: Settings
    steps: Mapping[str, Step]
    order: tuple[str, ...]
    """All views, each behind those it reads."""

    @property
    def name(self) -> str:
        return self.settings.name

    def reads(self, view: str) -> tuple[str, ...]:
        """The views that one reads directly; none for a source."""
        return self.steps[view].reads if view in self.steps else ()

    def needed_for(self, view: str) -> tuple[str, ...]:
        """A view and all that it stands on, in their order."""
        needed = {view}
        for each in reversed(self.order):
            if each in needed:
                needed.update(self.reads(each))
        return tuple(each for each in self.order if each in needed)

    def expectations(self, view: str) -> Mapping[str, str]:
        """What must hold for each row of a view: reasons and conditions."""
        if view in self.settings.sources:
            return self.settings.sources[view].expect
        return self.settings.steps[view].expect if view in self.settings.steps else {}

    def watermark(self, view: str) -> str | None:
        """How late rows of a view may come, if it was said."""
        if view in self.settings.sources:
            return self.settings.sources[view].watermark
        return self.settings.steps[view].watermark if view in self.settings.steps else None

    def group_id(self, query: str) -> str:
        """The consumer group whose offsets follow one query."""
        return f"{self.name}.{query}"

    def with_changes(self, **changes: Any) -> "Project":
        """The same project with other settings."""
        return Project(
            folder=self.folder,
            settings=msgspec.structs.replace(self.settings, **changes),
            steps=self.steps,
            order=self.order,
        )
