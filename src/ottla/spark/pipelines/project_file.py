"""Reads `pipeline.toml`: strictly, every unknown key with the nearest known one, every problem with its line. Pure.

What can be known from this file alone is checked here; whether views exist and fit together is `graph.py`'s.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, NamedTuple, get_args, get_origin

import msgspec

from ottla.spark.pipelines.problems import Problem, meant
from ottla.spark.pipelines.project import PROJECT_FILE, DeadLetters, Settings, Sink, Source, StepRules
from ottla.spark.pipelines.toml_lines import line_of, lines_of

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PROJECT_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,100}")
_SPAN: Final = re.compile(
    r"(\d+(?:\.\d+)?)\s*(ms|milliseconds?|s|sec|seconds?|m|min|minutes?|h|hours?|d|days?)", re.IGNORECASE
)
_SPAN_MS: Final = {"ms": 1, "mi": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_TABLES: Final[Mapping[str, type]] = {"sources": Source, "steps": StepRules, "sinks": Sink}
"""The tables of tables: `[sources.orders]` is one `Source`."""
_TYPE_WORDS: Final = {
    "str | null": "a text",
    "str | int | float | bool": "a text, a number, true or false",
    "bool | str": "true, false or a text",
    "str | bool": "true, false or a text",
    "`str`": "a text",
    "`bool`": "true or false",
    "`int`": "a whole number",
    "`float`": "a number",
    "`array`": "a list",
    "`object`": "a table",
    "`": "",
}
_DEAD_LETTERS: Final = "dead_letters"


class _Wrong(NamedTuple):
    """What is wrong at a path of keys."""

    path: tuple[str, ...]
    words: str


def parse_span(text: str) -> int:
    """A span of time in ms: `500ms`, `1s`, `30 seconds`, `5 minutes`. Raises `ValueError`."""
    found = _SPAN.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is no span of time; write one such as 500ms, 10s or 5 minutes")
    unit = found[2].lower()
    return round(float(found[1]) * (1 if unit.startswith(("ms", "milli")) else _SPAN_MS[unit[0]]))


def parse_watermark(text: str) -> tuple[str, str]:
    """A column and a delay as Spark writes it, from `column delay`. Raises `ValueError`."""
    column, _, delay = text.strip().partition(" ")
    if not delay:
        raise ValueError(f"{text!r} is no watermark; write a column and how late it may be, as in 'at 30 seconds'")
    return column, f"{parse_span(delay)} milliseconds"


def parse_settings(text: str, overrides: Mapping[str, str] | None = None) -> tuple[Settings | None, list[Problem]]:
    """What a `pipeline.toml` says, and all that is wrong with it; no settings if anything is.

    `overrides` are keys with dots between their parts and values, as `--set` gives them; those that begin with
    `spark.` are settings of Spark.
    """
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        where = re.search(r"line (\d+)", str(error))
        words = re.sub(r"\s*\(at .*\)$", "", str(error))
        return None, [Problem(file=PROJECT_FILE, line=int(where[1]) if where else 0, words=f"this is no TOML: {words}")]
    lines = lines_of(text)
    changed = set()
    problems = []
    for key, value in (overrides or {}).items():
        path = ("spark", key) if key.startswith("spark.") else tuple(key.split("."))
        changed.add(path)
        if not _put(tree, path, _scalar(value)):
            problems.append(Problem(file="--set", words=f"{key} leads through something that is no table"))

    def placed(wrong: _Wrong) -> Problem:
        if any(wrong.path[: len(path)] == path or path[: len(wrong.path)] == wrong.path for path in changed):
            return Problem(file="--set", words=wrong.words)
        return Problem(file=PROJECT_FILE, line=line_of(lines, wrong.path), words=wrong.words)

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
    """A value of the command line: true, false and whole numbers are what they look like."""
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
        return {}, [_Wrong((key,), f"{key} is a table of tables; write [{key}.<name>]")]
    found: dict[str, Any] = {}
    wrong: list[_Wrong] = []
    for name, fields in value.items():
        if _NAME.fullmatch(name) is None:
            words = f"{name!r} cannot be a name here; use letters, digits and _, beginning with a letter"
            wrong.append(_Wrong((key, name), words))
        one, more = _struct(_TABLES[key], (key, name), fields)
        wrong += more
        if one is not None:
            found[name] = one
    return found, wrong


def _struct(kind: type, path: tuple[str, ...], fields: Any) -> tuple[Any, list[_Wrong]]:
    """One table as the struct of its kind, or what is wrong with it."""
    place = f"[{'.'.join(path)}]" if path else "the file"
    if not isinstance(fields, dict):
        return None, [_Wrong(path, f"{'.'.join(path)} is a table; write {place} above its keys")]
    known = {each.encode_name: each for each in msgspec.structs.fields(kind)}
    wrong = [
        _Wrong((*path, key), f"{place} has no key {key}; {meant(key, known, otherwise='it has')}")
        for key in fields
        if key not in known
    ]
    wrong += [
        _Wrong(path, f"{place} lacks the key {name}")
        for name, each in known.items()
        if each.required and name not in fields
    ]
    good: dict[str, Any] = {}
    for key, value in fields.items():
        if key in known:
            try:
                good[known[key].name] = msgspec.convert(value, known[key].type)
            except msgspec.ValidationError as error:
                wrong.append(_Wrong((*path, key), f"{key} of {place} {_worded(value, known[key].type, error)}"))
    return (None, wrong) if wrong else (kind(**good), [])


def _worded(value: Any, wanted: Any, error: msgspec.ValidationError) -> str:
    if get_origin(wanted) is Literal:
        return f"is {value!r}, and may be {' or '.join(get_args(wanted))}"
    words = re.sub(r" - at .*", "", str(error))
    for theirs, ours in _TYPE_WORDS.items():
        words = words.replace(theirs, ours)
    return f"is not right: {words[:1].lower()}{words[1:]}"


def _contradictions(settings: Settings) -> Iterator[_Wrong]:
    """What each key allows, but not together."""
    if _PROJECT_NAME.fullmatch(settings.name) is None:
        yield _Wrong(("name",), f"name {settings.name!r} may have letters, digits and . _ - only, at most 100 of them")
    try:
        parse_span(settings.trigger)
    except ValueError as error:
        yield _Wrong(("trigger",), f"trigger: {error}")
    if not settings.sources:
        yield _Wrong(("sources",), "there is no source; add a table such as [sources.orders] with a topic")
    if not settings.sinks:
        yield _Wrong(("sinks",), "there is no sink; add a table such as [sinks.totals] with from and a topic")
    for name, source in settings.sources.items():
        yield from (_Wrong(("sources", name, key), words) for key, words in _wrong_in_source(name, source))
    for name, sink in settings.sinks.items():
        yield from (_Wrong(("sinks", name, key), words) for key, words in _wrong_in_sink(name, sink))
    for name, rules in settings.steps.items():
        yield from (_Wrong(("steps", name, "watermark"), words) for words in _wrong_watermark(rules.watermark))
    if settings.dead_letters is None:
        words = "rows that are not as expected need a place: add [dead_letters] with a topic"
        expecting = [("sources", name) for name, each in settings.sources.items() if each.expect]
        expecting += [("steps", name) for name, each in settings.steps.items() if each.expect]
        yield from (_Wrong((*path, "expect"), words) for path in expecting)


def _places(of: Source | Sink) -> list[str]:
    return [name for name in ("topic", "parquet", "delta") if getattr(of, name) is not None]


def _wrong_in_source(name: str, source: Source) -> Iterator[tuple[str, str]]:
    if len(_places(source)) != 1:
        yield "topic", f"[sources.{name}] needs exactly one of topic, parquet and delta"
        return
    if source.topic is None:
        for key in ("latest_by_key", "registry"):
            if getattr(source, key):
                yield key, f"{key} of [sources.{name}] is for topics only"
        if source.expect:
            yield "expect", f"expect of [sources.{name}] is for topics; put it on the first step that reads these files"
    else:
        if source.format in ("json", "avro") and source.schema is None:
            wanted = "the columns, as in schema = 'id STRING, amount DOUBLE'" if source.format == "json" else "a schema"
            yield "format", f"[sources.{name}] has format {source.format} and needs {wanted}"
        if source.format in ("string", "bytes") and source.schema is not None:
            yield (
                "schema",
                f"[sources.{name}] has format {source.format}, whose columns are key and value; leave out schema",
            )
        if source.format == "registry" and source.registry is None:
            yield "format", f"[sources.{name}] has format registry and needs registry = 'http://host:port'"
        if source.key_column is not None and _NAME.fullmatch(source.key_column) is None:
            yield (
                "latest_by_key",
                f"latest_by_key of [sources.{name}] is true, false, or the key's column: letters, digits and _",
            )
        if source.static:
            yield "static", f"static of [sources.{name}] is for files; for a topic there is latest_by_key"
    if source.watermark is not None and (source.latest_by_key or source.static):
        yield "watermark", f"[sources.{name}] is a table to join with, which has no watermark"
    yield from (("watermark", words) for words in _wrong_watermark(source.watermark))


def _wrong_in_sink(name: str, sink: Sink) -> Iterator[tuple[str, str]]:
    if len(_places(sink)) != 1:
        yield "topic", f"[sinks.{name}] needs exactly one of topic, parquet and delta"
        return
    if sink.topic is None and sink.key is not None:
        yield "key", f"key of [sinks.{name}] is for topics only"
    if sink.topic is not None and sink.partition_by:
        yield "partition_by", f"partition_by of [sinks.{name}] is for files; a topic's partition follows from the key"
    if sink.parquet is not None and sink.mode == "complete":
        yield "mode", f"[sinks.{name}]: Spark writes Parquet in mode append only"
    if name == _DEAD_LETTERS:
        yield "from", f"no sink may be called {_DEAD_LETTERS}; give it another name"


def _wrong_watermark(watermark: str | None) -> Iterator[str]:
    if watermark is not None:
        try:
            parse_watermark(watermark)
        except ValueError as error:
            yield f"watermark: {error}"
