"""`pipeline.toml`: what it may say, and the words for everything that is wrong with it."""

import pytest

from ottla.spark.pipelines.declaration.project_file import parse_settings, parse_span, parse_watermark

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
    ('name = "shop"', "name =", 1, "not valid TOML: Invalid value"),
    ('name = "shop"', 'nam = "shop"', 1, "unknown key nam; did you mean name?"),
    ('name = "shop"', "", 0, "missing key name"),
    ('"shop"', '"my shop"', 1, "'my shop' is not a valid name; use up to 100 letters, digits, dots, dashes"),
    ('"shop"', "3", 1, "name: expected a string, got an integer"),
    ('"once"', '"twice"', 3, "mode: 'twice' is not one of continuous, once"),
    ('"5 seconds"', '"soon"', 4, "trigger: 'soon' is not a valid duration; write one such as 500ms, 10s or 5 minutes"),
    ('topic = "orders"', 'topik = "orders"', 11, "unknown key topik in [sources.orders]; did you mean topic?"),
    ('topic = "orders"\n', "", 10, "[sources.orders] needs exactly one of topic, parquet and delta"),
    ('schema = "id STRING"\n', "", 10, "[sources.orders] with format json needs a schema such as '"),
    ('schema = "id STRING"', 'format = "avro"', 12, "[sources.orders] with format avro needs an Avro schema"),
    ('schema = "id STRING"', 'format = "registry"', 12, "needs registry = 'http://host:port'"),
    ('schema = "id STRING"', 'subject = "orders-value"', 12, "with a schema of a registry needs registry = 'http"),
    (
        'schema = "id STRING"',
        'format = "string"\nsubject = "x"',
        12,
        "has no schema; remove subject and registry",
    ),
    (
        'topic = "out"',
        'topic = "out"\nformat = "avro"',
        31,
        "[sinks.out] with a schema of a registry needs",
    ),
    ('parquet = "files"', 'parquet = "files"\nsubject = "x"', 36, "subject in [sinks.files] is for topics only"),
    ('"id STRING"', '"id STRING"\nformat = "bytes"', 12, "has the columns key and value; remove schema"),
    ('"at 1 minute"', '"at"', 13, "watermark: 'at' is not a valid watermark; write a column and a delay"),
    (
        "= true",
        "= true\nwatermark = 'at 1s'",
        20,
        "[sources.customers] is a table to join with and cannot have a watermark",
    ),
    ("latest_by_key", "static", 19, "static in [sources.customers] is for files; for a topic use latest_by_key"),
    ("static = true", "latest_by_key = true", 23, "latest_by_key in [sources.old] is for topics only"),
    ("static = true", 'expect = { a = "b" }', 23, "move it to the first step that reads the files"),
    ("[sources.old]", '[sources."old one"]', 21, "'old one' is not a valid name; use letters, digits and _"),
    ('from = "clean"\ntopic', "topic", 28, "missing key from in [sinks.out]"),
    ('topic = "out"', 'topic = "out"\nparquet = "x"', 30, "needs exactly one of topic, parquet and delta"),
    ('topic = "out"', 'topic = "out"\npartition_by = ["id"]', 31, "the key chooses the partition of a topic"),
    ('parquet = "files"', 'parquet = "files"\nkey = "id"', 36, "key in [sinks.files] is for topics only"),
    ('parquet = "files"', 'parquet = "files"\nmode = "complete"', 36, "Parquet supports only mode append"),
    ('[dead_letters]\ntopic = "dead"\n', "", 26, "needs a topic for rejected rows; add [dead_letters] with a topic"),
    ('[dead_letters]\ntopic = "dead"\n', "[dead_letters]\n", 38, "missing key topic in [dead_letters]"),
    ("[sinks.out]", "[sinks.dead_letters]", 29, "dead_letters is reserved and cannot name a sink; rename it"),
    (WHOLE, 'name = "a"\n', 0, "no sources; add a table such as [sources.orders] with a topic"),
    (WHOLE, 'name = "a"\n', 0, "no sinks; add a table such as [sinks.totals] with from and a topic"),
    (WHOLE, 'name = "a"\nsources = 3\n', 2, "sources must be a table of tables; write [sources.<name>]"),
    (WHOLE, 'name = "a"\ndead_letters = "x"\n', 2, "dead_letters must be a table; write [dead_letters] above its keys"),
]


@pytest.mark.parametrize(("old", "new", "line", "words"), WRONG, ids=[case[3][:30] for case in WRONG])
def test_what_is_wrong_is_told_with_its_line(old: str, new: str, line: int, words: str) -> None:
    _, found = parse_settings(changed(old, new))
    assert line in [problem.line for problem in found if words in problem.message], found


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


def test_the_registry_of_the_project_is_that_of_its_subjects() -> None:
    text = changed('schema = "id STRING"', 'format = "avro"\nsubject = "orders-value"\nversion = 2')
    settings, found = parse_settings(text, {"registry": "http://localhost:8081"})
    assert [] == found
    assert settings is not None
    orders = settings.sources["orders"]
    assert ("orders-value", 2, True) == (orders.subject, orders.version, orders.has_registered_schema)
    assert not settings.sinks["out"].has_registered_schema


def test_wrong_overrides_are_told_as_such() -> None:
    assert ["--set: unknown key triger; did you mean trigger?"] == problems(WHOLE, triger="1s")
    assert ["--set: trigger: 'x' is not a valid duration; write one such as 500ms, 10s or 5 minutes"] == problems(
        WHOLE, trigger="x"
    )
    assert ["--set: name.x: the part before the last dot is not a table"] == problems(WHOLE, name__x="x")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("500ms", 500), ("1s", 1000), ("1.5 s", 1500), ("2 minutes", 120_000), ("1h", 3_600_000), ("3 milliseconds", 3)],
)
def test_spans(text: str, expected: int) -> None:
    assert expected == parse_span(text)


@pytest.mark.parametrize("text", ["", "5", "-1s", "1 fortnight", "s"])
def test_no_spans(text: str) -> None:
    with pytest.raises(ValueError, match="not a valid duration"):
        parse_span(text)


def test_watermarks() -> None:
    assert ("at", "30000 milliseconds") == parse_watermark("at 30 seconds")
