"""The data types of a project: the settings in `pipeline.toml`, the steps, and the whole project. Pure.

`project_file.py` and `step_files.py` read them from files, `loading.py` the whole project.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from ottla.model.errors import MisuseError

PROJECT_FILE: Final = "pipeline.toml"
STEPS_FOLDER: Final = "steps"
DECLARATIVE_FILES: Final = ("spark-pipeline.yml", "spark-pipeline.yaml")

Scalar = str | int | float | bool
ValueFormat = Literal["json", "avro", "protobuf", "registry", "string", "bytes"]
SinkFormat = Literal["json", "avro", "protobuf", "string", "bytes"]


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """`[sources.<view>]`: a topic, or Parquet or Delta files, as a view of that name."""

    topic: str | None = None
    parquet: str | None = None
    delta: str | None = None
    format: ValueFormat = "json"
    """The format of record values."""
    schema: str | None = None
    """Spark DDL (`id STRING, amount DOUBLE`), or a file that contains it; an Avro schema for `avro`."""
    starting_offsets: str = "earliest"
    """Where the first run begins: `earliest`, `latest`, or offsets as JSON, as the connector takes them."""
    watermark: str | None = None
    """`column delay`: how late a row may arrive, such as `at 30 seconds`."""
    latest_by_key: bool | str = False
    """Whether the source is a table to join with: the last value of each key when a micro-batch begins.

    A string is the name of the key column, `key` by default.
    """
    static: bool = False
    """Whether the files are a table to join with, read when the run begins."""
    subject: str | None = None
    """The subject in the registry that has the schema of the values; `<topic>-value` by default."""
    version: int | None = None
    """The version of the subject that values are resolved to; the latest when the run begins by default."""
    registry: str | None = None
    """URL of the schema registry, in place of that of the project."""
    expect: dict[str, str] = {}
    """Conditions in SQL that each row must meet, by the reason that is given if it does not."""
    options: dict[str, Scalar] = {}
    """Further options of the data source."""

    @property
    def key_column(self) -> str | None:
        """The name of the key column in the table of latest values; None if it is not set."""
        return self.latest_by_key if isinstance(self.latest_by_key, str) else None

    @property
    def has_registered_schema(self) -> bool:
        """Whether the schema of the values is in a registry."""
        told = (self.subject, self.version, self.registry)
        return self.format in ("registry", "protobuf") or any(each is not None for each in told)


class StepRules(msgspec.Struct, frozen=True, kw_only=True):
    """`[steps.<view>]`: expectations and watermark of a step."""

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
    """The key of a record: a column or a SQL expression."""
    mode: Literal["append", "complete"] = "append"
    partition_by: list[str] = []
    subject: str | None = None
    """The subject in the registry that gets the schema of the rows; `<topic>-value` by default."""
    registry: str | None = None
    """URL of the schema registry, in place of that of the project."""
    options: dict[str, Scalar] = {}

    @property
    def has_registered_schema(self) -> bool:
        """Whether the schema of the values is in a registry."""
        return self.format in ("avro", "protobuf") or self.subject is not None or self.registry is not None


class DeadLetters(msgspec.Struct, frozen=True, kw_only=True):
    """`[dead_letters]`: the topic for rows that cannot be decoded or are rejected."""

    topic: str


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The keys and tables of `pipeline.toml`."""

    name: str
    bootstrap: str = "localhost:9092"
    client_properties: str | None = None
    """A file with Kafka's client properties, relative to the folder of the project: how to log in at the brokers and at
    the schema registry. In a file of its own, because a project is shared and a password is not."""
    registry: str | None = None
    """URL of the schema registry, for sources and sinks whose schemas it has."""
    mode: Literal["continuous", "once"] = "continuous"
    trigger: str = "1s"
    """How often a micro-batch begins, in continuous mode."""
    checkpoints: str | None = None
    """The folder of checkpoints; `.ottla/<name>` by default."""
    spark: dict[str, Scalar] = {}
    sources: dict[str, Source] = {}
    steps: dict[str, StepRules] = {}
    sinks: dict[str, Sink] = {}
    dead_letters: DeadLetters | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A file in `steps/`: one view, computed from others."""

    view: str
    file: str
    """Relative to the folder of the project."""
    language: Literal["sql", "python"]
    text: str
    reads: tuple[str, ...]
    """The views it reads; for a Python step, in the order of the arguments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """A valid project."""

    folder: Path
    settings: Settings
    steps: Mapping[str, Step]
    order: tuple[str, ...]
    """All views, each after the views that it reads."""

    @property
    def name(self) -> str:
        return self.settings.name

    def kafka_security(self) -> dict[str, str]:
        """The security options of sources and sinks, `kafka.security.protocol` and so on. Raises `MisuseError`."""
        from ottla.client.properties import security_properties

        return {f"kafka.{name}": value for name, value in security_properties(self._client_properties()).items()}

    def registry_login(self) -> dict[str, str]:
        """The options of sources and sinks that log in at the schema registry. Raises `MisuseError`."""
        from ottla.registry.serde.registry_login import PREFIX, RegistryLogin

        given = self._client_properties()
        if not given:
            return {}
        login = RegistryLogin.of(given)
        tls = dict(login.tls)
        authorities = tls.pop("ssl.truststore.location", None)
        kind = tls.pop("ssl.truststore.type", "JKS")
        unused = [f"{PREFIX}{name}" for name in tls] + (["bearer.auth.token"] if login.token is not None else [])
        if unused or (authorities is not None and kind.upper() != "PEM"):
            raise MisuseError(
                f"{self.settings.client_properties}: pipelines cannot use {unused[0] if unused else kind} for the"
                " schema registry; use basic.auth.user.info, and a truststore of type PEM"
            )
        options = {} if login.user is None else _named_login(login.user, login.password)
        return options if authorities is None else {**options, "schemaRegistryCa": authorities}

    def _client_properties(self) -> dict[str, str]:
        if self.settings.client_properties is None:
            return {}
        from ottla.client.properties import read_properties

        return read_properties(self.folder / self.settings.client_properties)

    def admin_options(self) -> dict[str, Any]:
        """The options of a client that asks the brokers something. Raises `MisuseError`."""
        security = tuple((name.removeprefix("kafka."), value) for name, value in self.kafka_security().items())
        return {"bootstrap_servers": self.settings.bootstrap, "security_properties": security}

    def reads(self, view: str) -> tuple[str, ...]:
        """The views that a view reads directly; none for a source."""
        return self.steps[view].reads if view in self.steps else ()

    def needed_for(self, view: str) -> tuple[str, ...]:
        """A view and all views that it depends on, in order."""
        needed = {view}
        for each in reversed(self.order):
            if each in needed:
                needed.update(self.reads(each))
        return tuple(each for each in self.order if each in needed)

    def expectations(self, view: str) -> Mapping[str, str]:
        """The expectations of a view: conditions by reason."""
        if view in self.settings.sources:
            return self.settings.sources[view].expect
        return self.settings.steps[view].expect if view in self.settings.steps else {}

    def watermark(self, view: str) -> str | None:
        """The watermark of a view, if it has one."""
        if view in self.settings.sources:
            return self.settings.sources[view].watermark
        return self.settings.steps[view].watermark if view in self.settings.steps else None

    def group_id(self, query: str) -> str:
        """The consumer group that commits the offsets of a query."""
        return f"{self.name}.{query}"

    def with_changes(self, **changes: Any) -> "Project":
        """The same project with other settings."""
        return Project(
            folder=self.folder,
            settings=msgspec.structs.replace(self.settings, **changes),
            steps=self.steps,
            order=self.order,
        )


def _named_login(user: str, password: str) -> dict[str, str]:
    return {"schemaRegistryUser": user, "schemaRegistryPassword": password}
