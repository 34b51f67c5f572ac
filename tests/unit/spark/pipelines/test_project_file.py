"""`pipeline.toml`: what it may say, and the words for everything that is wrong with it."""

import pytest

from ottla.spark.pipelines.project_file import parse_settings, parse_span, parse_watermark

WHOLE = """\
name = "shop"
bootstrap = "broker:9092"
mode = "once"
trigger = "5 seconds"
checkpoints = "state"

[spark]
"spark.sql.shuffle.partitions" = 4

[sources.orders]
topic = "orders"
schema = "id STRING"
watermark = "at 1 minute"
options = { maxOffsetsPerTrigger = 1000 }

[sources.customers]
topic = "customers"
schema = "name STRING"
latest_by_key = true

[sources.old]
parquet = "old"
static = true

[steps.clean]
expect = { "it has an id" = "id IS NOT NULL" }

[sinks.out]
from = "clean"
topic = "out"
key = "id"

[sinks.files]
from = "clean"
parquet = "files"
partition_by = ["day"]

[dead_letters]
topic = "dead"
"""


def problems(text: str, **overrides: str) -> list[str]:
    settings, found = parse_settings(text, {key.replace("__", "."): value for key, value in overrides.items()})
    assert (settings is None) == bool(found)
    return [str(problem) for problem in found]


def test_a_whole_file() -> None:
    settings, found = parse_settings(WHOLE)
    assert ([], "shop", "once") == (found, settings and settings.name, settings and settings.mode)
    assert settings is not None
    assert {"spark.sql.shuffle.partitions": 4} == settings.spark
    assert ["orders", "customers", "old"] == list(settings.sources)
    assert {"maxOffsetsPerTrigger": 1000} == settings.sources["orders"].options
    assert settings.sources["customers"].latest_by_key
    assert "clean" == settings.sinks["out"].view
    assert {"it has an id": "id IS NOT NULL"} == settings.steps["clean"].expect
    assert settings.dead_letters is not None


def test_defaults() -> None:
    settings, _ = parse_settings('name = "a"\n[sources.s]\ntopic="t"\nformat="bytes"\n[sinks.o]\nfrom="s"\ntopic="u"\n')
    assert settings is not None
    assert ("localhost:9092", "continuous", "1s") == (settings.bootstrap, settings.mode, settings.trigger)
    assert ("earliest", "append") == (settings.sources["s"].starting_offsets, settings.sinks["o"].mode)


def changed(old: str, new: str) -> str:
    assert old in WHOLE
    return WHOLE.replace(old, new, 1)


WRONG: list[tuple[str, str, int, str]] = [
    ('name = "shop"', "name =", 1, "this is no TOML: Invalid value"),
    ('name = "shop"', 'nam = "shop"', 1, "the file has no key nam; did you mean name?"),
    ('name = "shop"', "", 0, "the file lacks the key name"),
    ('"shop"', '"my shop"', 1, "name 'my shop' may have letters, digits and . _ - only, at most 100 of them"),
    ('"shop"', "3", 1, "name of the file is not right: expected a text, got a whole number"),
    ('"once"', '"twice"', 3, "mode of the file is 'twice', and may be continuous or once"),
    ('"5 seconds"', '"soon"', 4, "trigger: 'soon' is no span of time; write one such as 500ms, 10s or 5 minutes"),
    ('topic = "orders"', 'topik = "orders"', 11, "[sources.orders] has no key topik; did you mean topic?"),
    ('topic = "orders"\n', "", 10, "[sources.orders] needs exactly one of topic, parquet and delta"),
    ('schema = "id STRING"\n', "", 10, "[sources.orders] has format json and needs the columns, as in schema = '"),
    ('schema = "id STRING"', 'format = "avro"', 12, "[sources.orders] has format avro and needs a schema"),
    ('schema = "id STRING"', 'format = "registry"', 12, "needs registry = 'http://host:port'"),
    ('"id STRING"', '"id STRING"\nformat = "bytes"', 12, "whose columns are key and value; leave out schema"),
    ('"at 1 minute"', '"at"', 13, "watermark: 'at' is no watermark; write a column and how late it may be"),
    (
        "= true",
        "= true\nwatermark = 'at 1s'",
        20,
        "[sources.customers] is a table to join with, which has no watermark",
    ),
    ("latest_by_key", "static", 19, "static of [sources.customers] is for files; for a topic there is latest_by_key"),
    ("static = true", "latest_by_key = true", 23, "latest_by_key of [sources.old] is for topics only"),
    ("static = true", 'expect = { a = "b" }', 23, "put it on the first step that reads these files"),
    ("[sources.old]", '[sources."old one"]', 21, "'old one' cannot be a name here; use letters, digits and _"),
    ('from = "clean"\ntopic', "topic", 28, "[sinks.out] lacks the key from"),
    ('topic = "out"', 'topic = "out"\nparquet = "x"', 30, "needs exactly one of topic, parquet and delta"),
    ('topic = "out"', 'topic = "out"\npartition_by = ["id"]', 31, "a topic's partition follows from the key"),
    ('parquet = "files"', 'parquet = "files"\nkey = "id"', 36, "key of [sinks.files] is for topics only"),
    ('parquet = "files"', 'parquet = "files"\nmode = "complete"', 36, "Spark writes Parquet in mode append only"),
    ('[dead_letters]\ntopic = "dead"\n', "", 26, "need a place: add [dead_letters] with a topic"),
    ('[dead_letters]\ntopic = "dead"\n', "[dead_letters]\n", 38, "[dead_letters] lacks the key topic"),
    ("[sinks.out]", "[sinks.dead_letters]", 29, "no sink may be called dead_letters; give it another name"),
    (WHOLE, 'name = "a"\n', 0, "there is no source; add a table such as [sources.orders] with a topic"),
    (WHOLE, 'name = "a"\n', 0, "there is no sink; add a table such as [sinks.totals] with from and a topic"),
    (WHOLE, 'name = "a"\nsources = 3\n', 2, "sources is a table of tables; write [sources.<name>]"),
    (WHOLE, 'name = "a"\ndead_letters = "x"\n', 2, "dead_letters is a table; write [dead_letters] above its keys"),
]


@pytest.mark.parametrize(("old", "new", "line", "words"), WRONG, ids=[case[3][:30] for case in WRONG])
def test_what_is_wrong_is_told_with_its_line(old: str, new: str, line: int, words: str) -> None:
    _, found = parse_settings(changed(old, new))
    assert line in [problem.line for problem in found if words in problem.words], found


def test_overrides_beat_the_file() -> None:
    settings, found = parse_settings(
        WHOLE,
        {
            "trigger": "2s",
            "sources.orders.topic": "new",
            "spark.executor.memory": "4g",
            "sources.s.topic": "t",
            "sources.s.format": "bytes",
        },
    )
    assert (settings and settings.trigger, []) == ("2s", found)
    assert settings is not None
    assert "new" == settings.sources["orders"].topic
    assert "t" == settings.sources["s"].topic
    assert "4g" == settings.spark["spark.executor.memory"]


def test_wrong_overrides_are_told_as_such() -> None:
    assert ["--set: the file has no key triger; did you mean trigger?"] == problems(WHOLE, triger="1s")
    assert ["--set: trigger: 'x' is no span of time; write one such as 500ms, 10s or 5 minutes"] == problems(
        WHOLE, trigger="x"
    )
    assert ["--set: name.x leads through something that is no table"] == problems(WHOLE, name__x="x")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("500ms", 500), ("1s", 1000), ("1.5 s", 1500), ("2 minutes", 120_000), ("1h", 3_600_000), ("3 milliseconds", 3)],
)
def test_spans(text: str, expected: int) -> None:
    assert expected == parse_span(text)


@pytest.mark.parametrize("text", ["", "5", "-1s", "1 fortnight", "s"])
def test_no_spans(text: str) -> None:
    with pytest.raises(ValueError, match="no span"):
        parse_span(text)


def test_watermarks() -> None:
    assert ("at", "30000 milliseconds") == parse_watermark("at 30 seconds")
