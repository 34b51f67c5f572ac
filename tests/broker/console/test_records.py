"""The record viewer without a browser: queries, decoding, reading, searching, following, downloads, producing."""

import csv
import io
import json
import re
from collections.abc import Callable, Iterator
from contextlib import aclosing
from html import unescape
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest

from ottla import Admin, NewTopic, Producer
from ottla.client.producer.partitioner import partition_for_key
from ottla.console.cluster.scans import Scans
from ottla.console.errors import InvalidFormError
from ottla.console.filters.syntax import Root
from ottla.console.services.records.exports import safe_cell
from ottla.console.services.records.live import follow
from ottla.console.services.records.query import Decode, Order, RecordsQuery
from ottla.console.services.records.rows import ReadRecord
from ottla.console.services.records.scan import scan_plan
from ottla.console.services.records.search import Search, all_rows, bounds_for, in_utc
from ottla.console.services.records.shown import hex_dump, pretty, show
from ottla.model.ids import TopicPartition
from ottla.registry.schemas.schema import Schema
from ottla.registry.serde import AvroSerializer, RegistryClient
from ottla.testing import InProcessBroker
from tests.broker.registry.service.registry_thread import RegistryThread
from tests.unit.console.visitor import Visitor

SCRIPT = "<script>alert(1)</script>"
HOSTILE = [
    SCRIPT.encode(),
    b'" onmouseover="alert(1)" x=\'',
    b"\x00\x01\xff\xfe",
    b"null \x00 byte",
    "\u202eevil \U0001f600 \u00e4\u00f6".encode(),
    b"</td></tr></table><img src=x onerror=alert(1)>",
    b"{{ 7 * 7 }}{% raw %}",
    b'{"a":"\\ud800"}',
    b'{"a":"\xff"}',
    b"=cmd|' /C calc'!A0",
    b"",
]
NAME_200 = "n" + "a-b_c." * 33 + "z"


@pytest.fixture(scope="module")
def topics(broker: InProcessBroker) -> None:
    """`many` has 3,000 records of JSON in three partitions, `odd` has records that must never become markup."""
    with (
        Admin(bootstrap_servers=broker.bootstrap) as admin,
        Producer(bootstrap_servers=broker.bootstrap, linger_ms=5) as producer,
    ):
        names = [NewTopic("many", 3), NewTopic("odd", 1), NewTopic("empty", 2), NewTopic(NAME_200, 1)]
        admin.create_topics(names, wait_for_metadata=True)
        for number in range(3000):
            value = json.dumps({"id": number, "user": {"name": f"user {number % 10}"}})
            producer.send("many", value.encode(), b"k%d" % (number % 100), timestamp_ms=1_700_000_000_000 + number)
        for number, data in enumerate(HOSTILE):
            producer.send("odd", data, data, headers=[(SCRIPT, data), ("n", None)], timestamp_ms=number)
        producer.send("odd", None, None)
        producer.send("odd", b"A" * 1_000_000 + b"<end>", b"big")
        producer.send(NAME_200, b"x")
        producer.flush()


# Pure parts


def test_the_address_holds_the_whole_state() -> None:
    params = {"from": "10", "to": "end", "partition": "2, 0", "filter": "value.a == 1", "decode": "hex", "limit": "7"}
    query = RecordsQuery.of({**params, "key": "a b", "everywhere": "1", "uncommitted": "1", "order": "newest"})
    again = RecordsQuery.of(query.params())
    assert query == again
    assert {"order": "newest", "partition": "2,0"}.items() <= query.params().items()
    assert {} == RecordsQuery.of({}).params()
    assert Order.OLDEST is RecordsQuery.of({"from": "5"}).order
    assert Order.NEWEST is RecordsQuery.of({"from": "-5"}).order


@pytest.mark.parametrize(
    "params",
    [
        {"limit": "0"},
        {"limit": "x"},
        {"limit": "5000"},
        {"decode": "avro!"},
        {"partition": "a"},
        {"filter": "x" * 5000},
    ],
)
def test_a_wrong_parameter_is_refused(params: dict[str, str]) -> None:
    with pytest.raises(InvalidFormError):
        RecordsQuery.of(params)


@pytest.mark.parametrize(
    ("data", "decode", "text", "kind"),
    [
        (None, Decode.AUTO, "null", "null"),
        (b"null", Decode.AUTO, "null", "string"),
        (b'{"a":1}', Decode.AUTO, '{"a":1}', "json"),
        (b"a\nb\x00", Decode.STRING, "a\\nb\\x00", "string"),
        (b"\xff\x00\x10", Decode.AUTO, "ff 00 10", "hex"),
        (b"\x00\x00\x00\x2a", Decode.INTEGER, "42", "integer"),
        (b"\xff\xff\xff\xff\xff\xff\xff\xff", Decode.INTEGER, "-1", "integer"),
        (b"abc", Decode.BASE64, "YWJj", "base64"),
        (b'{ "a" : [1,\n 2] }', Decode.JSON, '{"a":[1,2]}', "json"),
        ("\u202eabc".encode(), Decode.AUTO, "\\u202eabc", "string"),
    ],
)
def test_bytes_are_shown(data: bytes | None, decode: Decode, text: str, kind: str) -> None:
    shown = show(data, decode)
    assert (text, kind, "") == (shown.text, shown.kind, shown.error)


def test_what_cannot_be_shown_as_asked_says_why() -> None:
    assert "not JSON" in show(b"{oops", Decode.JSON).error
    assert "not an integer: 3 bytes" in show(b"abc", Decode.INTEGER).error


def test_long_values_are_cut_in_a_row_and_characters_stay_whole() -> None:
    shown = show("ä".encode() * 1_000_000, Decode.AUTO)
    assert ("ä" * 300, True, 2_000_000) == (shown.text, shown.is_cut, shown.size_bytes)


def test_pretty_json_and_hex() -> None:
    assert '{\n  "a": [\n    1\n  ]\n}' == pretty(b'{"a":[1]}', Decode.AUTO).text
    assert f"00000000  61 00 ff{' ' * 42}a.." == hex_dump(b"a\x00\xff")


def test_half_a_character_of_json_is_shown_as_an_escape() -> None:
    text = pretty(b'{"a":"\\ud800"}', Decode.AUTO).text
    assert '{\n  "a": "\\ud800"\n}' == text
    text.encode()


def test_no_more_pretty_json_is_made_than_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    made = 0
    iterencode = json.JSONEncoder.iterencode

    def counted(self: json.JSONEncoder, value: Any) -> Any:
        nonlocal made
        for part in iterencode(self, value):
            made += len(part)
            yield part

    monkeypatch.setattr(json.JSONEncoder, "iterencode", counted)
    depth, items = 200, 100_000
    shown = pretty(b"[" * depth + b"1," * items + b"1" + b"]" * depth, Decode.AUTO)
    assert (200_000, True) == (len(shown.text), shown.is_cut)
    assert made < 300_000


@pytest.mark.parametrize("data", [b'{"a":"\xff"}', b"1" * 5000, b'{"a":1e999}', b"[" * 100_000, b'{"a":"\\ud800"}'])
def test_what_is_not_quite_json_has_no_fields_and_is_shown(data: bytes) -> None:
    record = ReadRecord(TopicPartition("odd", 0), 0, 0, data, data, None, None)
    assert record.tree(Root.VALUE) is None
    for decode in Decode:
        record.row(decode, 0)
        record.open(decode, 0).value.text.encode()


def test_cells_that_begin_like_a_formula_are_escaped() -> None:
    assert ["'=1+1", "'+1", "'-1", "'@x", "'\tx", "'\n=1", "'\uff1d1", "a=1", ""] == [
        safe_cell(each) for each in ("=1+1", "+1", "-1", "@x", "\tx", "\n=1", "\uff1d1", "a=1", "")
    ]


def test_a_time_without_a_zone_is_utc() -> None:
    assert "2024-05-01T12:00:00+00:00" == in_utc("2024-05-01T12:00")
    assert ["2024-05-01T12:00+02:00", "1h", "17", "20240501"] == [
        in_utc(each) for each in ("2024-05-01T12:00+02:00", "1h", "17", "20240501")
    ]


# Reading and searching


def searched(console: Visitor, topic: str, **params: str) -> tuple[list[Any], Any]:
    query = RecordsQuery.of(params)

    async def run() -> tuple[list[Any], Any]:
        cluster = console.access().cluster
        bounds = await bounds_for(cluster, topic, query)
        return await all_rows(Search(cluster, Scans(), bounds, scan_plan(query, None), query).events())

    return console.run(run)


def ids(rows: list[Any]) -> list[int]:
    return [json.loads(row.value.text)["id"] for row in rows]


@pytest.mark.usefixtures("topics")
def test_the_newest_records_come_first(console: Visitor) -> None:
    rows, progress = searched(console, "many", limit="5")
    assert [2999, 2998, 2997, 2996, 2995] == ids(rows)
    assert "stopped at 5 records" == progress.outcome


@pytest.mark.usefixtures("topics")
def test_the_oldest_records_from_a_position(console: Visitor) -> None:
    assert [0, 1, 2, 3] == ids(searched(console, "many", **{"from": "beginning", "limit": "4"})[0])
    at = "2023-11-14T22:13:21.500Z"
    assert [1500, 1501, 1502] == ids(searched(console, "many", **{"from": at, "limit": "3"})[0])
    rows, _ = searched(console, "many", **{"from": "3", "partition": "1", "limit": "2"})
    assert [(1, 3), (1, 4)] == [(row.partition, row.offset) for row in rows]


@pytest.mark.usefixtures("topics")
def test_a_key_is_looked_for_in_its_partition_only(console: Visitor) -> None:
    rows, progress = searched(console, "many", key="k7")
    assert [2907, 2807] == ids(rows)[:2]
    assert 30 == len(rows)
    assert {partition_for_key(b"k7", 3)} == {row.partition for row in rows}
    assert progress.scanned < 3000
    assert 3000 == searched(console, "many", key="k7", everywhere="1")[1].scanned


@pytest.mark.usefixtures("topics")
@pytest.mark.parametrize("order", ["newest", "oldest"])
def test_a_search_looks_at_everything_once(console: Visitor, order: str) -> None:
    rows, progress = searched(console, "many", filter="value.id in [3, 1500, 2998]", order=order)
    expected = [3, 1500, 2998]
    assert sorted(ids(rows)) == expected
    assert ("complete", 3000, 3, 3000) == (
        progress.outcome,
        progress.scanned,
        progress.matched,
        progress.offsets_done,
    )


@pytest.mark.usefixtures("topics")
def test_a_search_stops_at_the_limit(console: Visitor) -> None:
    rows, progress = searched(console, "many", filter='value.user.name == "user 4"', limit="10")
    assert [2994, 2984, 2974] == ids(rows)[:3]
    assert 10 == len(rows)
    assert progress.scanned < 3000


@pytest.mark.usefixtures("topics")
def test_records_of_open_transactions_are_hidden_unless_asked_for(console: Visitor, broker: InProcessBroker) -> None:
    with Producer(bootstrap_servers=broker.bootstrap, transactional_id="open") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("empty", b"open", partition=0).get(30)
        assert [] == searched(console, "empty")[0]
        assert ["open"] == [row.value.text for row in searched(console, "empty", uncommitted="1")[0]]
        producer.abort_transaction()


@pytest.mark.usefixtures("topics")
def test_new_records_are_followed(console: Visitor, broker: InProcessBroker) -> None:
    query = RecordsQuery.of({"live": "1", "filter": 'value contains "wanted"'})

    async def run() -> list[str]:
        cluster = console.access().cluster
        bounds = await bounds_for(cluster, NAME_200, query)
        async with (
            aclosing(follow(cluster, Scans(), bounds, scan_plan(query, None), query)) as turns,
            console.access().producer() as producer,
        ):
            for value in (b"other", b"wanted 1", b"wanted 2"):
                await producer.send_and_wait(NAME_200, value)
            found: list[str] = []
            async for turn in turns:
                found = [row.value.text for row in turn.rows] + found
                if len(found) == 2:
                    return found
        raise AssertionError("the tail ended")

    assert ["wanted 2", "wanted 1"] == console.run(run)


# Schemas

ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}, {"name": "by", "type": "string"}]}


@pytest.fixture(scope="module")
def registry_url(broker: InProcessBroker) -> Iterator[str]:
    """A registry, and 300 records of Avro in the topic `avro`, with ids before the bytes or in headers."""
    with RegistryThread(broker.bootstrap, topic="_schemas-records") as running:
        with (
            Admin(bootstrap_servers=broker.bootstrap) as admin,
            RegistryClient(running.url) as registry,
            Producer(bootstrap_servers=broker.bootstrap) as producer,
        ):
            admin.create_topics([NewTopic("avro", 1)], wait_for_metadata=True)
            for place in ("prefix", "header"):
                serializer = AvroSerializer(registry, json.dumps(ORDER), id_place=place)
                with Producer(bootstrap_servers=broker.bootstrap, value_serializer=serializer) as typed:
                    for number in range(150):
                        typed.send("avro", {"id": number, "by": f"{place} <b>{number}</b>"})
            producer.send("avro", b"\x00\x00\x00\x99\x99 of no schema").get(30)
        yield running.url


def test_values_with_schemas_are_decoded_and_found(
    visit: Callable[..., Visitor], broker: InProcessBroker, registry_url: str
) -> None:
    console = visit(broker.bootstrap, registry_url=registry_url)
    html = console.get("/topics/avro/records?limit=3").text
    assert "{&#34;id&#34;:149,&#34;by&#34;:&#34;header &lt;b&gt;149&lt;/b&gt;&#34;}" in html
    assert "not decoded" in html
    params = {"filter": 'value.id == 7 || value.by contains "<b>8<"', "plain": "1"}
    rows = rows_of(console.get("/topics/avro/records", params=params).text)
    assert 4 == len(rows)
    opened = console.get("/topics/avro/records/0/7").text
    assert "avro, <a href" in opened
    assert "&#34;by&#34;: &#34;prefix &lt;b&gt;7" in opened
    raw = console.get("/topics/avro/records/0/7?decode=hex").text
    assert "00000000  00 00 00 00" in raw
    lines = console.get("/topics/avro/records/export?format=jsonl").text.splitlines()
    assert {"id": 7, "by": "prefix <b>7</b>"} == json.loads(lines[7])["value"]


PROTO = """syntax = "proto3";
message Item { string name = 1; int32 count = 2; }
message Other { bool is_new = 1; }
"""
PRICE = {"type": "object", "properties": {"price": {"type": "number"}}, "required": ["price"]}


def test_records_are_produced_by_schemas(
    visit: Callable[..., Visitor], broker: InProcessBroker, registry_url: str
) -> None:
    with RegistryClient(registry_url) as registry:
        registry.register("avro-key", Schema(text=PROTO, type="PROTOBUF"))
        price = registry.register("prices", Schema(text=json.dumps(PRICE), type="JSON"))
        order = registry.version("avro-value")
    console = visit(broker.bootstrap, registry_url=registry_url)
    assert "Schema of the value" in console.get("/topics/avro/produce").text
    form = {
        "value": '{"id": 7, "by": "<b>"}',
        "value_encoding": "schema",
        "key": '{"name": "n", "count": 3}',
        "key_encoding": "schema",
    }
    for fields, value in (
        (form, '"by": "<b>"'),
        ({**form, "value_schema": str(order.id)}, '"by": "<b>"'),
        ({**form, "value": '{"price": 2.5}', "value_schema": "prices"}, '"price": 2.5'),
        ({**form, "key": '{"is_new": true}', "key_message": "Other"}, '"by": "<b>"'),
    ):
        written = console.post("/topics/avro/produce", fields)
        assert 303 == written.status_code, written.text
        page = unescape(console.get(written.headers["location"]).text)
        assert value in page
        assert ('"is_new": true' if "key_message" in fields else '"count": 3') in page
    assert order.id == console.console.audit.newest()[0].details["value_schema"]
    before = console.get("/topics/avro/records/export?format=jsonl").text.count("\n")
    for fields, words in (
        ({"value": '{"id": "seven", "by": "x"}'}, "value: field id"),
        ({"value": '{"id": 7}'}, "field by"),
        ({"value": "{"}, "value: not JSON"),
        ({"value": '{"price": "dear"}', "value_schema": "prices"}, "/price"),
        ({"value": "{}", "value_schema": str(price.id)}, "price"),
        ({"key": '{"count": "many"}'}, "count"),
        ({"key": '{"nowhere": 1}'}, "nowhere"),
        ({"key_message": "Missing"}, "its messages: Item, Other"),
        ({"value_schema": "no-such-subject"}, "value: "),
        ({"value_schema": "99999"}, "value: "),
    ):
        refused = console.post("/topics/avro/produce", {**form, **fields})
        found = unescape(refused.text.partition("<main")[2])
        assert (422, True) == (refused.status_code, words in found), (fields, found)
    assert before == console.get("/topics/avro/records/export?format=jsonl").text.count("\n")
    reader = visit(broker.bootstrap, registry_url=registry_url, read_only=True)
    assert 403 == reader.post("/topics/avro/produce", form).status_code
    without = visit(broker.bootstrap)
    assert "Schema of the value" not in without.get("/topics/avro/produce").text
    assert "--registry" in without.post("/topics/avro/produce", form).text


@pytest.mark.usefixtures("registry_url")
def test_records_are_shown_without_their_registry(visit: Callable[..., Visitor], broker: InProcessBroker) -> None:
    console = visit(broker.bootstrap, registry_url="http://127.0.0.1:1")
    html = console.get("/topics/avro/records?limit=3").text
    assert 3 == len(rows_of(html))
    assert "not decoded" in html


# Pages


def rows_of(html: str) -> list[str]:
    return re.findall(r"<tr data-opens=.*?</tr>", html, re.DOTALL)


@pytest.mark.usefixtures("topics")
def test_the_viewer_shows_the_newest_records(console: Visitor) -> None:
    response = console.get("/topics/many/records?limit=3")
    assert 200 == response.status_code
    assert 3 == len(rows_of(response.text))
    assert "CreateTime" in response.text
    assert "Time (UTC)" in response.text
    assert ">2023-11-14 22:13:22.999</time>" in response.text


@pytest.mark.usefixtures("topics")
@pytest.mark.parametrize("decode", list(Decode))
def test_no_record_becomes_markup(console: Visitor, decode: Decode) -> None:
    response = console.get(f"/topics/odd/records?limit=100&decode={decode.value}")
    assert 200 == response.status_code
    assert len(HOSTILE) + 2 == len(rows_of(response.text))
    pages = [response.text]
    for offset in range(len(HOSTILE) + 2):
        opened = console.get(f"/topics/odd/records/0/{offset}?decode={decode.value}", headers={"HX-Request": "true"})
        assert 200 == opened.status_code
        pages.append(opened.text)
    for html in pages:
        assert SCRIPT not in html
        assert "<img" not in html
        assert 'onmouseover="' not in html
        assert "\x00" not in html
        assert "\u202e" not in html
        assert "49{% raw" not in html
    assert len(response.text) < 200_000
    if decode is Decode.AUTO:
        assert "&lt;script&gt;alert(1)" in response.text
        assert '<span class="null">null</span>' in response.text
        assert '<span class="null">empty</span>' in response.text


@pytest.mark.usefixtures("topics")
def test_a_large_value_is_whole_on_demand(console: Visitor) -> None:
    offset = len(HOSTILE) + 1
    opened = console.get(f"/topics/odd/records/0/{offset}").text
    assert "Cut here" in opened
    assert len(opened) < 300_000
    file = console.get(f"/topics/odd/records/0/{offset}/value")
    assert b"A" * 1_000_000 + b"<end>" == file.content
    assert "application/octet-stream" == file.headers["content-type"]
    assert file.headers["content-disposition"].startswith("attachment")


@pytest.mark.usefixtures("topics")
def test_a_long_name_and_a_missing_topic(console: Visitor) -> None:
    assert 200 == console.get(f"/topics/{NAME_200}/records").status_code
    assert 404 == console.get("/topics/missing/records").status_code
    assert 404 == console.get("/topics/many/records/0/999999").status_code
    assert 404 == console.get("/topics/many/records/0/1/secret").status_code
    assert 400 <= console.get("/topics/many/records/77/1").status_code < 500


@pytest.mark.usefixtures("topics")
def test_a_wrong_filter_points_at_its_column(console: Visitor) -> None:
    response = console.get("/topics/many/records", params={"filter": "value.id = 3"})
    assert 422 == response.status_code
    assert "column 10" in response.text
    assert "value.id = 3\n         ^" in response.text
    assert 422 == console.get("/topics/many/records?from=yesterday").status_code
    assert 422 == console.get("/topics/many/records?limit=0").status_code


def events_of(text: str) -> list[tuple[str, Any]]:
    found = re.findall(r"event: (\w+)\ndata: (.*)\n\n", text)
    return [(kind, msgspec.json.decode(data)) for kind, data in found]


@pytest.mark.usefixtures("topics")
def test_a_search_streams_rows_and_progress(console: Visitor) -> None:
    response = console.get("/topics/many/records/search", params={"filter": "value.id == 7"})
    assert response.headers["content-type"].startswith("text/event-stream")
    events = events_of(response.text)
    rows = [row for kind, value in events if kind == "rows" for row in rows_of(value["html"])]
    assert 1 == len(rows)
    assert "end" == events[-1][0]
    (last,) = [value for kind, value in events if kind == "progress"][-1:]
    assert ("complete", 3000, 3000) == (last["outcome"], last["done"], last["total"])
    assert last["words"].startswith("scanned 3,000 of 3,000 offsets, 1 matched")


@pytest.mark.usefixtures("topics")
def test_a_search_works_without_javascript(console: Visitor) -> None:
    params = {"filter": "value.id == 7"}
    assert "plain=1" in console.get("/topics/many/records", params=params).text
    assert 1 == len(rows_of(console.get("/topics/many/records", params={**params, "plain": "1"}).text))


@pytest.mark.usefixtures("topics")
def test_downloads_hold_every_record(console: Visitor) -> None:
    lines = console.get("/topics/many/records/export?format=jsonl").text.splitlines()
    assert set(range(3000)) == {json.loads(json.loads(line)["value"])["id"] for line in lines}
    table = pq.read_table(io.BytesIO(console.get("/topics/many/records/export?format=parquet").content))
    assert 3000 == table.num_rows
    assert ["partition", "offset", "timestamp", "key", "value", "headers"] == table.column_names
    some = console.get("/topics/many/records/export", params={"format": "parquet", "filter": "value.id in [1, 2]"})
    assert 2 == pq.read_table(io.BytesIO(some.content)).num_rows
    assert 422 == console.get("/topics/many/records/export?format=exe").status_code


@pytest.mark.usefixtures("topics")
def test_csv_has_no_formulas(console: Visitor) -> None:
    csv.field_size_limit(2_000_000)
    text = console.get("/topics/odd/records/export?format=csv").content.decode()
    rows = list(csv.reader(io.StringIO(text, newline="")))
    assert ["partition", "offset", "timestamp", "time", "key", "value", "headers"] == rows[0]
    cells = [row[5] for row in rows[1:]]
    assert len(HOSTILE) + 2 == len(cells)
    assert "'=cmd|' /C calc'!A0" in cells
    assert not any(each.startswith(("=", "+", "-", "@")) for row in rows[1:] for each in row)


@pytest.mark.usefixtures("topics")
def test_a_record_is_produced_and_shown(console: Visitor) -> None:
    form = {
        "value": '{"a": 1}',
        "value_encoding": "json",
        "key": "00ff",
        "key_encoding": "hex",
        "headers": "h: v",
        "partition": "1",
    }
    response = console.post("/topics/empty/produce", form)
    assert 303 == response.status_code
    page = console.get(response.headers["location"]).text
    assert "&#34;a&#34;: 1" in page
    assert "00 ff" in page
    entry = console.console.audit.newest()[0]
    assert ("produce record", "empty") == (entry.action, entry.target)
    assert 8 == entry.details["value_bytes"]
    assert 303 == console.post("/topics/empty/produce", {"value": "", "value_encoding": "null"}).status_code


@pytest.mark.usefixtures("topics")
@pytest.mark.parametrize(
    "form",
    [
        {"value": "{", "value_encoding": "json"},
        {"value": "xyz", "value_encoding": "hex"},
        {"value": "a", "headers": "no colon"},
        {"value": "a", "partition": "9"},
        {"value": "a", "value_encoding": "avro"},
    ],
)
def test_a_wrong_form_produces_nothing(console: Visitor, form: dict[str, str]) -> None:
    assert 422 == console.post("/topics/many/produce", form).status_code
    assert 3000 == searched(console, "many", filter='"id"', order="oldest", limit="1000")[1].offsets_total


@pytest.mark.usefixtures("topics")
def test_a_read_only_console_produces_nothing(visit: Callable[..., Visitor], broker: InProcessBroker) -> None:
    console = visit(broker.bootstrap, read_only=True)
    assert 403 == console.post("/topics/many/produce", {"value": "a"}).status_code
    assert "read-only" in console.get("/topics/many/produce").text
    partitions = [TopicPartition("many", each) for each in range(3)]
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        assert 3000 == sum(each.offset for each in admin.list_offsets(dict.fromkeys(partitions, -1)).values())
