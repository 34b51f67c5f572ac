"""What pipelines can do: joins, windows, state, functions of rows, expectations, dead letters, files."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ottla.registry.serde import AvroSerializer, RegistryClient
from ottla.registry.serde.framing import id_prefix
from ottla.spark.pipelines.declaration.problems import ProjectError
from ottla.spark.pipelines.running.queries import plan_queries
from ottla.spark.pipelines.running.query_report import QueryReport
from ottla.spark.pipelines.running.runner import PipelineFailedError, run_queries
from tests.spark.pipeline_rig import headers_of, loaded, records_of, rows_of, run_once, send_json, write_project
from tests.spark.topics import Topics
from tests.waiting import PATIENCE_SECONDS, wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def minute(number: int, second: int = 0) -> str:
    return f"2024-05-01T12:{number:02d}:{second:02d}Z"


def test_a_compacted_topic_as_a_table_and_windows(spark: "SparkSession", ottla: Topics, tmp_path: Path) -> None:
    """Orders joined with the latest of each customer when the batch begins; sums by minute, late ones left out."""
    orders, customers, out, dead = (
        ottla.create(),
        ottla.create(cleanup_policy="compact"),
        ottla.create(),
        ottla.create(),
    )
    settings = f"""
        name = "windows-{out}"
        [sources.orders]
        topic = "{orders}"
        schema = "customer STRING, amount DOUBLE, at TIMESTAMP"
        watermark = "at 10 seconds"
        [sources.customers]
        topic = "{customers}"
        schema = "customer STRING, country STRING"
        latest_by_key = true
        [sinks.totals]
        from = "totals"
        topic = "{out}"
        key = "country"
        [dead_letters]
        topic = "{dead}"
    """
    steps = {
        "enriched.sql": "SELECT o.*, c.country FROM orders o LEFT JOIN customers c ON o.customer = c.customer",
        "totals.sql": """
            SELECT window.start AS minute, country, count(*) AS orders, sum(amount) AS amount
            FROM enriched GROUP BY window(at, '1 minute'), country
        """,
    }
    folder = write_project(tmp_path, settings, steps)
    ottla.fill(customers, [b"no JSON"], keys=[b"z"])
    countries = [("a", "AT"), ("b", "DE"), ("a", "CH"), ("c", "FR")]
    send_json(
        ottla,
        customers,
        *({"customer": key, "country": value} for key, value in countries),
        keys=[key for key, _ in countries],
    )
    ottla.fill(customers, [None], keys=[b"c"])
    send_json(ottla, orders, *({"customer": each, "amount": 1.5, "at": minute(0, 5)} for each in "aabc"))
    send_json(ottla, orders, {"customer": "b", "amount": 3, "at": minute(2)})
    run_once(spark, ottla, folder)
    first = {(row["minute"], row.get("country")): (row["orders"], row["amount"]) for row in rows_of(ottla, out)}
    at = "2024-05-01T12:00:00.000Z"
    assert {(at, "CH"): (2, 3.0), (at, "DE"): (1, 1.5), (at, None): (1, 1.5)} == first
    send_json(ottla, customers, {"customer": "b", "country": "IT"}, keys=["b"])
    send_json(
        ottla, orders, {"customer": "a", "amount": 99, "at": minute(0)}, {"customer": "b", "amount": 1, "at": minute(4)}
    )
    run_once(spark, ottla, folder)
    assert 4 == len(rows_of(ottla, out))
    assert ("DE", 1, 3.0) == tuple(rows_of(ottla, out)[3][name] for name in ("country", "orders", "amount"))
    assert b"DE" == records_of(ottla, out)[3].key
    assert [b"no JSON"] == [letter.value for letter in records_of(ottla, dead)]
    assert 7 == ottla.committed(f"windows-{out}.totals").popitem()[1]


def test_a_table_of_latest_values_has_its_key(spark: "SparkSession", ottla: Topics, tmp_path: Path) -> None:
    """The key is the column `key`, or as it was called; also where the value does not repeat it."""
    orders, people, words, out = ottla.create(), ottla.create(), ottla.create(), ottla.create()
    settings = f"""
        name = "keys-{out}"
        [sources.orders]
        topic = "{orders}"
        schema = "customer STRING"
        [sources.people]
        topic = "{people}"
        schema = "country STRING"
        latest_by_key = true
        [sources.named]
        topic = "{people}"
        schema = "country STRING"
        latest_by_key = "customer"
        [sources.words]
        topic = "{words}"
        format = "string"
        latest_by_key = "word"
        [sinks.out]
        from = "joined"
        topic = "{out}"
    """
    joined = """
        SELECT o.customer, p.country, n.country AS again, w.value AS word FROM orders o
        JOIN people p ON o.customer = p.key JOIN named n ON o.customer = n.customer JOIN words w ON o.customer = w.word
    """
    folder = write_project(tmp_path, settings, {"joined.sql": joined})
    send_json(ottla, people, {"country": "AT"}, {"country": "DE"}, {"country": "CH"}, keys=["ada", "bob", "ada"])
    ottla.fill(words, [b"first", b"second"], keys=[b"ada", b"ada"])
    send_json(ottla, orders, {"customer": "ada"})
    run_once(spark, ottla, folder)
    assert [{"customer": "ada", "country": "CH", "again": "CH", "word": "second"}] == rows_of(ottla, out)


def test_a_key_may_not_hide_a_column_of_the_value(spark: "SparkSession", ottla: Topics, tmp_path: Path) -> None:
    source = ottla.create()
    settings = f"""
        name = "hidden"
        [sources.people]
        topic = "{source}"
        schema = "customer STRING"
        latest_by_key = "customer"
        [sinks.out]
        from = "people"
        topic = "{source}"
    """
    folder = write_project(tmp_path, settings, {})
    with pytest.raises(ProjectError, match="latest_by_key = 'customer': the value already has a column customer"):
        plan_queries(spark, loaded(ottla, folder), once=True)


STATEFUL = """
from typing import Any, Iterator

import pandas as pd
from pyspark.sql.streaming import StatefulProcessor


class Visits(StatefulProcessor):
    def init(self, handle: Any) -> None:
        self._count = handle.getValueState("count", "n INT")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timers: Any) -> Iterator[pd.DataFrame]:
        count = (self._count.get() or (0,))[0] + sum(len(each) for each in rows)
        self._count.update((count,))
        yield pd.DataFrame({"page": [key[0]], "visits": [count]})

    def close(self) -> None: ...


def step(spark, joined):
    return joined.groupBy("page").transformWithStateInPandas(
        Visits(), outputStructType="page STRING, visits INT", outputMode="Append", timeMode="None"
    )
"""


def test_streams_joined_and_state_that_is_kept(spark: "SparkSession", ottla: Topics, tmp_path: Path) -> None:
    """Two streams joined within a minute, and a step with state of its own, which goes on in the next run."""
    views, clicks, out, counts = ottla.create(), ottla.create(), ottla.create(), ottla.create()
    schema = "id STRING, page STRING, at TIMESTAMP"
    settings = f"""
        name = "joined-{out}"
        [sources.views]
        topic = "{views}"
        schema = "{schema}"
        watermark = "at 1 minute"
        [sources.clicks]
        topic = "{clicks}"
        schema = "{schema}"
        watermark = "at 1 minute"
        [sinks.joined]
        from = "joined"
        topic = "{out}"
        [sinks.visits]
        from = "visits"
        topic = "{counts}"
    """
    joined = """
        SELECT v.id, v.page FROM views v JOIN clicks c
        ON v.id = c.id AND c.at BETWEEN v.at AND v.at + INTERVAL 1 MINUTE
    """
    folder = write_project(tmp_path, settings, {"joined.sql": joined, "visits.py": STATEFUL})

    def visit(number: int, page: str) -> None:
        send_json(ottla, views, {"id": f"v{number}", "page": page, "at": minute(number)})
        send_json(ottla, clicks, {"id": f"v{number}", "page": page, "at": minute(number, 30)})

    visit(1, "home")
    visit(2, "home")
    visit(3, "shop")
    send_json(ottla, clicks, {"id": "v1", "page": "home", "at": minute(9)})
    run_once(spark, ottla, folder)
    assert [("v1", "home"), ("v2", "home"), ("v3", "shop")] == sorted((r["id"], r["page"]) for r in rows_of(ottla, out))
    assert {"home": 2, "shop": 1} == {row["page"]: row["visits"] for row in rows_of(ottla, counts)}
    visit(10, "home")
    run_once(spark, ottla, folder)
    assert {"home": 3, "shop": 1} == {row["page"]: row["visits"] for row in rows_of(ottla, counts)}


PRICED = """
from ottla.spark.pipelines import rejecting

PRICES = {"tea": 2.5, "milk": 1.0}


def priced(row):
    return {"id": row["id"], "price": PRICES[row["item"]] * row["count"]}


def step(spark, orders):
    return rejecting(orders, priced, "id STRING, price DOUBLE")
"""


def test_what_is_wrong_goes_to_the_dead_letters_once(spark: "SparkSession", ottla: Topics, tmp_path: Path) -> None:
    """What cannot be read, is not as expected, makes a function raise, is rejected by a step: each with its story."""
    orders, out, files, dead = ottla.create(), ottla.create(), tmp_path / "files", ottla.create()
    settings = f"""
        name = "wrong-{out}"
        [sources.orders]
        topic = "{orders}"
        schema = "id STRING, item STRING, count INT"
        expect = {{ "the count is positive" = "count > 0", "there is an id" = "id IS NOT NULL" }}
        [steps.dear]
        expect = {{ "it is dear" = "price > 1" }}
        [sinks.out]
        from = "named"
        topic = "{out}"
        [sinks.files]
        from = "named"
        parquet = "files"
        partition_by = ["id"]
        [dead_letters]
        topic = "{dead}"
    """
    named = "SELECT id, price, CASE WHEN id = 'o7' THEN 'seven' END AS _rejected FROM dear"
    steps = {"priced.py": PRICED, "dear.sql": "SELECT * FROM priced", "named.sql": named}
    folder = write_project(tmp_path, settings, steps)
    good = {"id": "o1", "item": "tea", "count": 2}
    wrong = [b"{", good | {"count": "many"}, good | {"count": -1}, {"item": "tea", "count": 0}]
    rejected = [
        good | {"id": "o5", "item": "gold"},
        good | {"id": "o6", "item": "milk", "count": 1},
        good | {"id": "o7"},
    ]
    ottla.fill(orders, [json.dumps(good).encode()], keys=[b"k"], headers=[("trace", b"t")])
    send_json(ottla, orders, *wrong, *rejected)
    ottla.fill(orders, [None], headers=[("trace", b"t"), ("__dlq.errors.message", b"an older story")])
    for _ in range(2):
        run_once(spark, ottla, folder)
    assert [{"id": "o1", "price": 5.0}] == rows_of(ottla, out)
    assert [("o1", 5.0)] == [(row.id, row.price) for row in spark.read.parquet(str(files)).collect()]
    letters = records_of(ottla, dead)
    stories = sorted((headers_of(each) for each in letters), key=lambda story: int(story.get("offset", 99)))
    read = [(str(offset), "orders") for offset in (1, 2, 3, 4)]
    expected = [*read, ("5", "priced"), ("6", "dear"), ("8", "orders"), (None, "named")]
    assert expected == [(story.get("offset"), story["step"]) for story in stories]
    assert "failed expectation: the count is positive" == stories[2]["message"]
    assert "failed expectation: the count is positive; there is an id" == stories[3]["message"]
    assert ("'gold'", "builtins.KeyError") == (stories[4]["message"], stories[4]["exception"])
    assert "in priced" in stories[4]["stacktrace"]
    assert "failed expectation: it is dear" == stories[5]["message"]
    assert ("the record has no value", "t") == (stories[6]["message"], stories[6]["trace"])
    assert ("seven", f"wrong-{out}") == (stories[7]["message"], stories[7]["pipeline"])
    assert {(story["topic"], story["partition"]) for story in stories[:7]} == {(orders, "0")}
    values = {headers_of(each).get("offset"): each.value for each in letters}
    assert (b"{", b'{"id":"o7","price":5.0}', None) == (values["1"], values[None], values["8"])


def test_without_dead_letters_a_wrong_record_ends_the_run(spark: "SparkSession", ottla: Topics, tmp_path: Path) -> None:
    orders, out = ottla.create(), ottla.create()
    settings = f"""
        name = "strict-{out}"
        [sources.orders]
        topic = "{orders}"
        schema = "id STRING"
        [sinks.out]
        from = "orders"
        topic = "{out}"
    """
    folder = write_project(tmp_path, settings, {})
    send_json(ottla, orders, {"id": "a"}, b"no JSON")

    def while_told(_reports: list[QueryReport]) -> None:
        """The query ends between two looks of the run at it, which must not miss why."""
        wait_until(lambda: f"strict-{out}.out" not in [query.name for query in spark.streams.active], "the query ends")

    with pytest.raises(PipelineFailedError) as raised:
        run_queries(spark, loaded(ottla, folder), once=True, watch=while_told, ready=lambda: None)
    assert "query out (view orders to " in str(raised.value)
    assert "a row of orders was rejected: " in str(raised.value)
    assert f"it was read from offset 1 of {orders}-0. Add [dead_letters] to pipeline.toml" in str(raised.value)
    assert [] == rows_of(ottla, out)


def test_formats_of_values_and_files(spark: "SparkSession", ottla: Topics, tmp_path: Path) -> None:
    """Avro, text and bytes; Parquet as a stream and as a table; the whole result with each micro-batch."""
    avro, strings, raw, out = (ottla.create() for _ in range(4))
    schema = {"type": "record", "name": "R", "fields": [{"name": "word", "type": "string"}]}
    (tmp_path / "word.avsc").write_text(json.dumps(schema))
    ottla.fill(avro, [b"\x06one", b"\xff"])
    ottla.fill(strings, [b"two", b"\xff"])
    ottla.fill(raw, [b"three"], keys=[b"k"])
    spark.createDataFrame([("four",)], "word STRING").write.parquet(str(tmp_path / "words"))
    pairs = [("one", 1), ("two", 2), ("three", 3), ("four", 4)]
    spark.createDataFrame(pairs, "word STRING, number INT").write.parquet(str(tmp_path / "numbers"))
    settings = f"""
        name = "formats-{out}"
        [sources.a]
        topic = "{avro}"
        format = "avro"
        schema = "word.avsc"
        [sources.b]
        topic = "{strings}"
        format = "string"
        [sources.c]
        topic = "{raw}"
        format = "bytes"
        [sources.d]
        parquet = "words"
        [sources.numbers]
        parquet = "numbers"
        static = true
        [sinks.sums]
        from = "sums"
        topic = "{out}"
        mode = "complete"
        key = "count"
        [dead_letters]
        topic = "{ottla.create()}"
    """
    words = """
        SELECT word FROM a UNION ALL SELECT value FROM b UNION ALL SELECT CAST(value AS STRING) FROM c
        UNION ALL SELECT word FROM d
    """
    sums = "SELECT sum(number) AS sum, count(*) AS count FROM words JOIN numbers USING (word)"
    folder = write_project(tmp_path, settings, {"words.sql": words, "sums.sql": sums})
    project = loaded(ottla, folder)
    (sink,) = [each for each in plan_queries(spark, project, once=True) if each.name == "sums"]
    query = sink.writer.start()
    assert query.awaitTermination(PATIENCE_SECONDS)
    assert {"sum": 10, "count": 4} == rows_of(ottla, out)[-1]
    assert b"4" == records_of(ottla, out)[-1].key


def test_delta_without_its_jars(spark: "SparkSession", ottla: Topics, tmp_path: Path) -> None:
    settings = """
        name = "delta"
        [sources.a]
        delta = "table"
        [sinks.out]
        from = "a"
        parquet = "out"
    """
    with pytest.raises(ProjectError, match="Delta is not installed; add it with"):
        run_once(spark, ottla, write_project(tmp_path, settings, {}))


def test_values_of_a_schema_registry(
    spark: "SparkSession", ottla: Topics, registry: RegistryClient, tmp_path: Path
) -> None:
    """Columns by the subject's newest schema; values that were written by older ones; what has no schema is dead."""
    orders, out, dead = ottla.create(), ottla.create(), ottla.create()
    fields: list[dict[str, Any]] = [{"name": "id", "type": "string"}]
    first = AvroSerializer(registry, json.dumps({"type": "record", "name": "O", "fields": fields}))
    fields = [{"name": "n", "type": ["null", "long"], "default": None}, *fields]
    second = AvroSerializer(registry, json.dumps({"type": "record", "name": "O", "fields": fields}))
    good = [first.serialize(orders, {"id": "a"}), second.serialize(orders, {"id": "b", "n": 7})]
    bad = [b"no frame", id_prefix(999_999) + b"x"]
    ottla.fill(orders, [good[0], bad[0], good[1], bad[1]])
    settings = f"""
        name = "registry-{out}"
        [sources.orders]
        topic = "{orders}"
        format = "registry"
        registry = "{registry.config.urls[0]}"
        [sinks.out]
        from = "ids"
        topic = "{out}"
        key = "id"
        [dead_letters]
        topic = "{dead}"
    """
    run_once(spark, ottla, write_project(tmp_path, settings, {"ids.sql": "SELECT id, n FROM orders"}))
    assert [{"id": "a"}, {"id": "b", "n": 7}] == rows_of(ottla, out)
    letters = records_of(ottla, dead)
    assert bad == [letter.value for letter in letters]
    assert "no schema with the id 999999" in headers_of(letters[1])["message"]


STEP = "def step(spark, orders):\n    "


@pytest.mark.parametrize(
    ("file", "text", "words"),
    [
        ("sql", "SELECT id,\n nmae FROM orders", "steps/out.sql:2: out: [UNRESOLVED_COLUMN.WITH_SUGGESTION]"),
        ("sql", "SELECT id\n FROM orders WHERE id =", "steps/out.sql:2: out: [PARSE_SYNTAX_ERROR]"),
        ("py", STEP + "return orders.nothing", "steps/out.py:2: out: "),
        ("py", "import json\n" + STEP + "return json.loads('{')", "steps/out.py:3: out: JSONDecodeError: "),
        ("py", STEP + "pass", "steps/out.py: out: TypeError: step returned NoneType, not a DataFrame"),
        (
            "sql",
            "SELECT 1 AS _rejected FROM orders",
            "out: the column _rejected must be a string with the reason, not int",
        ),
        (
            "sql",
            "SELECT 1 AS x FROM orders",
            "pipeline.toml: key in [sinks.out] cannot be computed from the columns x: ",
        ),
    ],
)
def test_what_spark_finds_wrong_is_told_with_its_file(
    spark: "SparkSession", ottla: Topics, tmp_path: Path, file: str, text: str, words: str
) -> None:
    settings = """
        name = "broken"
        [sources.orders]
        topic = "no-topic-is-asked-for-yet"
        schema = "id STRING"
        [sinks.out]
        from = "out"
        topic = "never"
        key = "id"
    """
    folder = write_project(tmp_path, settings, {f"out.{file}": text})
    with pytest.raises(ProjectError) as raised:
        run_once(spark, ottla, folder)
    assert words in str(raised.value)
    assert 1 == len(str(raised.value).splitlines())
