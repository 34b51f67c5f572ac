"""Reads `pipeline.toml` strictly: unknown keys are refused with the nearest known one, problems have a line. Pure.

Checks what this file alone shows; `view_order.py` checks whether views exist and fit together.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, NamedTuple, get_args, get_origin

import msgspec

from ottla.spark.pipelines.declaration.problems import Problem, suggestion
from ottla.spark.pipelines.declaration.project import PROJECT_FILE, DeadLetters, Settings, Sink, Source, StepRules
from ottla.spark.pipelines.declaration.toml_lines import line_of, lines_of

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PROJECT_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,100}")
_SPAN: Final = re.compile(
    r"(\d+(?:\.\d+)?)\s*(ms|milliseconds?|s|sec|seconds?|m|min|minutes?|h|hours?|d|days?)", re.IGNORECASE
)
_SPAN_MS: Final = {"ms": 1, "mi": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_TABLES: Final[Mapping[str, type]] = {"sources": Source, "steps": StepRules, "sinks": Sink}
"""Tables whose entries are tables: `[sources.orders]` is one `Source`."""
_TYPE_WORDS: Final = {
    "str | null": "a string",
    "str | int | float | bool": "a string, a number, true or false",
    "bool | str": "true, false or a string",
    "str | bool": "true, false or a string",
    "`str`": "a string",
    "`bool`": "true or false",
    "`int`": "an integer",
    "`float`": "a number",
    "`array`": "a list",
    "`object`": "a table",
    "`": "",
}
_DEAD_LETTERS: Final = "dead_letters"


class _Wrong(NamedTuple):
    """A problem at a path of keys."""

    path: tuple[str, ...]
    words: str


def parse_span(text: str) -> int:
    """A duration in ms: `500ms`, `1s`, `30 seconds`, `5 minutes`. Raises `ValueError`."""
    found = _SPAN.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is not a valid duration; write one such as 500ms, 10s or 5 minutes")
    unit = found[2].lower()
    return round(float(found[1]) * (1 if unit.startswith(("ms", "milli")) else _SPAN_MS[unit[0]]))


def parse_watermark(text: str) -> tuple[str, str]:
    """A column and a delay as Spark writes it, from `column delay`. Raises `ValueError`."""
    column, _, delay = text.strip().partition(" ")
    if not delay:
        raise ValueError(f"{text!r} is not a valid watermark; write a column and a delay, such as 'at 30 seconds'")
    return column, f"{parse_span(delay)} milliseconds"


def parse_settings(text: str, overrides: Mapping[str, str] | None = None) -> tuple[Settings | None, list[Problem]]:
    """The settings of a `pipeline.toml` and all its problems; no settings if there are problems.

    `overrides` are values by dotted keys, as in `--set`; keys that begin with `spark.` are Spark settings.
    """
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        where = re.search(r"line (\d+)", str(error))
        words = re.sub(r"\s*\(at .*\)$", "", str(error))
        line = int(where[1]) if where else 0
        return None, [Problem(file=PROJECT_FILE, line=line, message=f"not valid TOML: {words}")]
    lines = lines_of(text)
    changed = set()
    problems = []
    for key, value in (overrides or {}).items():
        path = ("spark", key) if key.startswith("spark.") else tuple(key.split("."))
        changed.add(path)
        if not _put(tree, path, _scalar(value)):
            problems.append(Problem(file="--set", message=f"{key}: the part before the last dot is not a table"))

    def placed(wrong: _Wrong) -> Problem:
        if any(wrong.path[: len(path)] == path or path[: len(wrong.path)] == wrong.path for path in changed):
            return Problem(file="--set", message=wrong.words)
        return Problem(file=PROJECT_FILE, line=line_of(lines, wrong.path), message=wrong.words)

    found, wrong = _converted(tree)
    problems += map(placed, wrong)
    if found is not None:
        problems += map(placed, _contradictions(found))
    return (found, []) if not problems and found is not None else (None, sorted(problems))


def _put(tree: dict[str, Any], path: tuple[str, ...], value: Any) -> bool:
    place = tree
    for part in path[:-1]:
        place = place.setdefault(part, {})
        if not isinstance(place, dict):
            return False
    place[path[-1]] = value
    return True


def _scalar(text: str) -> Any:
    """A value of the command line: true, false and integers are converted."""
    if text in ("true", "false"):
        return text == "true"
    return int(text) if re.fullmatch(r"-?\d{1,18}", text) else text


def _converted(tree: dict[str, Any]) -> tuple[Settings | None, list[_Wrong]]:
    wrong: list[_Wrong] = []
    parts: dict[str, Any] = {}
    for key, value in tree.items():
        if key in _TABLES:
            parts[key], more = _table_of(key, value)
            wrong += more
        elif key == _DEAD_LETTERS:
            letters, more = _struct(DeadLetters, (key,), value)
            wrong += more
            parts |= {} if letters is None else {key: letters}
        else:
            parts[key] = value
    settings, more = _struct(Settings, (), parts)
    return (None if wrong else settings), wrong + more


def _table_of(key: str, value: Any) -> tuple[dict[str, Any], list[_Wrong]]:
    if not isinstance(value, dict):
        return {}, [_Wrong((key,), f"{key} must be a table of tables; write [{key}.<name>]")]
    found: dict[str, Any] = {}
    wrong: list[_Wrong] = []
    for name, fields in value.items():
        if _NAME.fullmatch(name) is None:
            words = f"{name!r} is not a valid name; use letters, digits and _, beginning with a letter"
            wrong.append(_Wrong((key, name), words))
        one, more = _struct(_TABLES[key], (key, name), fields)
        wrong += more
        if one is not None:
            found[name] = one
    return found, wrong


def _struct(kind: type, path: tuple[str, ...], fields: Any) -> tuple[Any, list[_Wrong]]:
    """One table as a struct, or its problems."""
    place = f" in [{'.'.join(path)}]" if path else ""
    if not isinstance(fields, dict):
        return None, [_Wrong(path, f"{'.'.join(path)} must be a table; write [{'.'.join(path)}] above its keys")]
    known = {each.encode_name: each for each in msgspec.structs.fields(kind)}
    wrong = [
        _Wrong((*path, key), f"unknown key {key}{place}; {suggestion(key, known, otherwise='known keys:')}")
        for key in fields
        if key not in known
    ]
    wrong += [
        _Wrong(path, f"missing key {name}{place}")
        for name, each in known.items()
        if each.required and name not in fields
    ]
    good: dict[str, Any] = {}
    for key, value in fields.items():
        if key in known:
            try:
                good[known[key].name] = msgspec.convert(value, known[key].type)
            except msgspec.ValidationError as error:
                wrong.append(_Wrong((*path, key), f"{key}{place}: {_worded(value, known[key].type, error)}"))
    return (None, wrong) if wrong else (kind(**good), [])


def _worded(value: Any, wanted: Any, error: msgspec.ValidationError) -> str:
    if get_origin(wanted) is Literal:
        return f"{value!r} is not one of {', '.join(get_args(wanted))}"
    words = re.sub(r" - at .*", "", str(error))
    for theirs, ours in _TYPE_WORDS.items():
        words = words.replace(theirs, ours)
    return f"{words[:1].lower()}{words[1:]}"


def _contradictions(settings: Settings) -> Iterator[_Wrong]:
    """Problems between keys that are valid one by one."""
    if _PROJECT_NAME.fullmatch(settings.name) is None:
        words = f"{settings.name!r} is not a valid name; use up to 100 letters, digits, dots, dashes and underscores"
        yield _Wrong(("name",), words)
    try:
        parse_span(settings.trigger)
    except ValueError as error:
        yield _Wrong(("trigger",), f"trigger: {error}")
    if not settings.sources:
        yield _Wrong(("sources",), "no sources; add a table such as [sources.orders] with a topic")
    if not settings.sinks:
        yield _Wrong(("sinks",), "no sinks; add a table such as [sinks.totals] with from and a topic")
    for name, source in settings.sources.items():
        yield from (_Wrong(("sources", name, key), words) for key, words in _wrong_in_source(name, source))
        yield from _missing_registry(("sources", name), source, settings)
    for name, sink in settings.sinks.items():
        yield from (_Wrong(("sinks", name, key), words) for key, words in _wrong_in_sink(name, sink))
        yield from _missing_registry(("sinks", name), sink, settings)
    for name, rules in settings.steps.items():
        yield from (_Wrong(("steps", name, "watermark"), words) for words in _wrong_watermark(rules.watermark))
    if settings.dead_letters is None:
        words = "expect needs a topic for rejected rows; add [dead_letters] with a topic"
        expecting = [("sources", name) for name, each in settings.sources.items() if each.expect]
        expecting += [("steps", name) for name, each in settings.steps.items() if each.expect]
        yield from (_Wrong((*path, "expect"), words) for path in expecting)


def _places(of: Source | Sink) -> list[str]:
    return [name for name in ("topic", "parquet", "delta") if getattr(of, name) is not None]


def _missing_registry(path: tuple[str, str], of: Source | Sink, settings: Settings) -> Iterator[_Wrong]:
    if of.topic is not None and of.has_registered_schema and of.registry is None and settings.registry is None:
        key = "subject" if of.subject is not None else "format"
        words = (
            f"[{'.'.join(path)}] with a schema of a registry needs registry = 'http://host:port', here or at the top"
        )
        yield _Wrong((*path, key), words)


def _wrong_in_source(name: str, source: Source) -> Iterator[tuple[str, str]]:
    if len(_places(source)) != 1:
        yield "topic", f"[sources.{name}] needs exactly one of topic, parquet and delta"
        return
    if source.topic is None:
        for key in ("latest_by_key", "registry", "subject", "version"):
            if getattr(source, key):
                yield key, f"{key} in [sources.{name}] is for topics only"
        if source.expect:
            yield "expect", f"expect in [sources.{name}] is for topics; move it to the first step that reads the files"
    else:
        if source.format in ("json", "avro") and source.schema is None and not source.has_registered_schema:
            wanted = "a schema such as 'id STRING, amount DOUBLE'" if source.format == "json" else "an Avro schema"
            yield "format", f"[sources.{name}] with format {source.format} needs {wanted}, or a subject of a registry"
        if source.format in ("string", "bytes") and source.schema is not None:
            yield (
                "schema",
                f"[sources.{name}] with format {source.format} has the columns key and value; remove schema",
            )
        if source.format in ("string", "bytes") and source.has_registered_schema:
            yield "format", f"[sources.{name}] with format {source.format} has no schema; remove subject and registry"
        if source.key_column is not None and _NAME.fullmatch(source.key_column) is None:
            yield (
                "latest_by_key",
                f"latest_by_key in [sources.{name}] must be true, false, or a column name of letters, digits and _",
            )
        if source.static:
            yield "static", f"static in [sources.{name}] is for files; for a topic use latest_by_key"
    if source.watermark is not None and (source.latest_by_key or source.static):
        yield "watermark", f"[sources.{name}] is a table to join with and cannot have a watermark"
    yield from (("watermark", words) for words in _wrong_watermark(source.watermark))


def _wrong_in_sink(name: str, sink: Sink) -> Iterator[tuple[str, str]]:
    if len(_places(sink)) != 1:
        yield "topic", f"[sinks.{name}] needs exactly one of topic, parquet and delta"
        return
    for key in ("key", "subject", "registry"):
        if sink.topic is None and getattr(sink, key) is not None:
            yield key, f"{key} in [sinks.{name}] is for topics only"
    if sink.format in ("string", "bytes") and sink.has_registered_schema:
        yield "format", f"[sinks.{name}] with format {sink.format} has no schema; remove subject and registry"
    if sink.topic is not None and sink.partition_by:
        yield "partition_by", f"partition_by in [sinks.{name}] is for files; the key chooses the partition of a topic"
    if sink.parquet is not None and sink.mode == "complete":
        yield "mode", f"[sinks.{name}]: Parquet supports only mode append"
    if name == _DEAD_LETTERS:
        yield "from", f"{_DEAD_LETTERS} is reserved and cannot name a sink; rename it"


def _wrong_watermark(watermark: str | None) -> Iterator[str]:
    if watermark is not None:
        try:
            parse_watermark(watermark)
        except ValueError as error:
            yield f"watermark: {error}"
