"""`ottla produce`, `ottla consume` and `ottla topics describe` with a schema registry."""

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ottla.cli.schemas.decoding import SchemaDecoder
from ottla.client.producer.blocking_producer import Producer
from ottla.model.ids import TopicPartition
from ottla.records.record import Record
from ottla.registry.schemas.schema import AVRO, JSON, PROTOBUF, Schema
from ottla.registry.serde import AvroSerializer, RegistryClient, schema_reader
from ottla.testing.free_ports import free_port
from tests.broker.registry.service.registry_thread import RegistryThread
from tests.broker.schema_validation.scripted_registry import ScriptedRegistry
from tests.processes import Program
from tests.unit.cli.command_line import CommandLine

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "at", "type": [{"type": "long", "logicalType": "timestamp-millis"}, "null"], "default": 0},
    ],
}
SCHEMAS = {
    AVRO: (".avsc", json.dumps(ORDER), {"id": 7, "note": "x", "at": "2024-05-01T12:00:00+00:00"}),
    JSON: (".json", '{"type": "object", "properties": {"id": {"type": "integer"}}}', {"id": 7, "more": [1.5, None]}),
    PROTOBUF: (
        ".proto",
        'syntax = "proto3"; message Order { int32 id = 1; repeated string my_tags = 2; }',
        {"id": 7, "my_tags": ["a"]},
    ),
}


@pytest.fixture(scope="module")
def registry_url(bootstrap: str) -> Iterator[str]:
    with RegistryThread(bootstrap, topic="_schemas-cli-schemas") as running:
        yield running.url


@pytest.fixture
def topic(ottla: CommandLine, request: pytest.FixtureRequest) -> str:
    name = "".join(each if each.isalnum() else "-" for each in request.node.name)
    ottla.ok("topics", "create", name)
    return name


def test_avro_json_and_protobuf_there_and_back(
    ottla: CommandLine, registry: RegistryClient, registry_url: str, topic: str, tmp_path: Path
) -> None:
    at = "--schema-registry", registry_url
    for number, (language, (suffix, text, value)) in enumerate(SCHEMAS.items()):
        name = f"{topic}-{language}"
        file = tmp_path / f"order{suffix}"
        file.write_text(text)
        ottla.ok("topics", "create", name)
        line = json.dumps(value).encode() + b"\n"
        ottla.ok("produce", name, *at, "--value-schema", str(file), stdin=line)
        # The schema is registered now.
        ottla.ok("produce", name, *at, "--value-schema", "latest", stdin=line)
        ottla.ok("produce", name, *at, "--value-format", language.lower(), stdin=b"null\n" + line)
        found = registry.version(f"{name}-value")
        ottla.ok("produce", name, *at, "--value-schema", str(found.id), stdin=line)
        done = ottla.ok("consume", name, *at)
        lines = [None if each == "null" else json.loads(each) for each in done.out.splitlines()]
        assert ([value, value, None, value, value], "") == (lines, done.err), number
        done = ottla.ok("consume", name, *at, "--json", "--max", "3")
        documents = [json.loads(each) for each in done.out.splitlines()]
        schema = {"id": found.id, "type": language}
        assert [value, value, None] == [each["value"] for each in documents]
        assert [schema, schema, None] == [
            each["value_schema"] and {key: each["value_schema"][key] for key in ("id", "type")} for each in documents
        ]
        assert all((None, None) == (each["key"], each["key_schema"]) for each in documents)


def test_keys_and_other_formats(ottla: CommandLine, registry_url: str, topic: str, tmp_path: Path) -> None:
    (tmp_path / "key.avsc").write_text('{"type": "string"}')
    (tmp_path / "order.avsc").write_text(json.dumps(ORDER))
    at = "--schema-registry", registry_url
    schemas = "--key-schema", str(tmp_path / "key.avsc"), "--value-schema", str(tmp_path / "order.avsc")
    ottla.ok("produce", topic, *at, *schemas, "--key-separator", "|", stdin=b'"a"|{"id": 1}\n')
    line = b'{"key": "b", "value": {"id": 2, "note": {"string": "y"}}, "headers": {"h": "1"}}\n'
    ottla.ok("produce", topic, *at, *schemas, "--format", "json", stdin=line)
    epoch = "1970-01-01T00:00:00+00:00"
    expected = [f'"a"\t{{"id":1,"note":null,"at":"{epoch}"}}', f'"b"\t{{"id":2,"note":"y","at":"{epoch}"}}']
    assert expected == ottla.ok("consume", topic, *at, "--print", "key").out.splitlines()
    assert expected == ottla.ok("consume", topic, *at, "--format", r"%k\t%s\n").out.splitlines()
    assert expected == ottla.ok("consume", topic, *at, "--print", "key", "--group", topic).out.splitlines()
    assert expected[1:] == ottla.ok("consume", topic, *at, "--print", "key", "--last", "1").out.splitlines()
    # What was printed as JSON can be produced again.
    printed = ottla.ok("consume", topic, *at, "--json").out.encode()
    ottla.ok("produce", topic, *at, *schemas, "--format", "json", stdin=printed)
    assert expected * 2 == ottla.ok("consume", topic, *at, "--print", "key").out.splitlines()


def test_ids_in_headers_are_read(
    ottla: CommandLine, bootstrap: str, registry: RegistryClient, registry_url: str, topic: str
) -> None:
    serializer = AvroSerializer(registry, json.dumps(ORDER), id_place="header")
    with Producer(bootstrap_servers=bootstrap, value_serializer=serializer) as producer:
        producer.send(topic, {"id": 3}).get(60)
    (document,) = ottla.ok("consume", topic, "--schema-registry", registry_url, "--json").out.splitlines()
    guid = str(registry.version(f"{topic}-value").guid)
    assert (3, guid, AVRO) == (
        json.loads(document)["value"]["id"],
        json.loads(document)["value_schema"]["guid"],
        json.loads(document)["value_schema"]["type"],
    )


def test_what_cannot_be_decoded_is_marked_and_counted(
    ottla: CommandLine, registry: RegistryClient, registry_url: str, topic: str, tmp_path: Path
) -> None:
    schema_id = registry.register(f"{topic}-value", Schema(text=json.dumps(ORDER))).id
    cut_off = b"\0" + schema_id.to_bytes(4, "big") + b"\x80"
    lines = [b"plain", b"\0\0\x0f\0\1x", cut_off, b"\0" + schema_id.to_bytes(4, "big") + b"\2\0\2"]
    ottla.ok("produce", topic, "--format", "hex", stdin=b"".join(each.hex().encode() + b"\n" for each in lines))
    at = "--schema-registry", registry_url
    # The bytes of the records are not all text.
    output = tmp_path / "out"
    done = ottla.ok("consume", topic, *at, "--output", str(output))
    assert [
        b"[not decoded] plain",
        b"[not decoded] " + lines[1],
        b"[not decoded] " + cut_off,
        b'{"id":1,"note":null,"at":null}',
    ] == output.read_bytes().splitlines()
    assert f"{topic}-0 offset 0: cannot decode the value: the value has no schema id" in done.err
    assert 1 == done.err.count("cannot decode")
    assert "3 keys and values could not be decoded" in done.err
    documents = [json.loads(each) for each in ottla.ok("consume", topic, *at, "--json").out.splitlines()]
    assert ["plain", "\0\0\x0f\0\1x"] == [documents[0]["value"], documents[1]["value"]]
    assert [True, True, True, False] == ["error" in each["value_schema"] for each in documents]
    assert (0x0F0001, schema_id) == (documents[1]["value_schema"]["id"], documents[2]["value_schema"]["id"])


def test_a_registry_that_is_away_does_not_stop_consume(ottla: CommandLine, topic: str) -> None:
    closed = f"http://127.0.0.1:{free_port()}"
    ottla.ok("produce", topic, "--format", "hex", stdin=b"0000000001\n0000000001\n")
    done = ottla.ok("consume", topic, "--schema-registry", closed)
    assert 2 == done.out.count("[not decoded] ")
    assert "no schema registry could be reached" in done.err


def test_bad_lines_are_told_with_line_and_field(
    ottla: CommandLine, registry_url: str, topic: str, tmp_path: Path
) -> None:
    (tmp_path / "order.avsc").write_text(json.dumps(ORDER))
    (tmp_path / "order.proto").write_text(SCHEMAS[PROTOBUF][1])
    (tmp_path / "order.json").write_text(SCHEMAS[JSON][1])
    at = "--schema-registry", registry_url
    for schema, bad, reason in (
        ("order.avsc", b'{"id": "one"}', "field id: expected int, not 'one'"),
        ("order.avsc", b'{"note": "x"}', "field id: it is missing, and the schema has no default for it"),
        ("order.avsc", b'{"id": 1, "nota": "x"}', "field nota: Order has no such field; its fields: id, note, at"),
        ("order.avsc", b"{", "not JSON"),
        ("order.json", b'{"id": "one"}', "/id"),
        ("order.proto", b'{"id": "one"}', "id"),
    ):
        name = f"{topic}{Path(schema).suffix}"
        done = ottla(
            "produce", name, *at, "--value-schema", str(tmp_path / schema), stdin=b'{"id": 1}\n' + bad + b'\n{"id": 2}'
        )
        assert 0 != done.status
        assert "stdin, line 2: its value cannot be encoded: " in done.err
        assert reason in done.err
    # The lines before it are sent, as without a schema.
    assert 4 == len(ottla.ok("consume", f"{topic}.avsc", *at).out.splitlines())


def test_wrong_options_are_told(ottla: CommandLine, registry_url: str, topic: str) -> None:
    at = "--schema-registry", registry_url
    done = ottla("produce", topic, *at, stdin=b"{}")
    assert (True, True) == (done.status != 0, f"ottla registry register {topic}-value FILE" in done.err)
    done = ottla("produce", topic, *at, "--key-schema", "latest", stdin=b"{}")
    assert "--key-schema needs keys" in done.err
    done = ottla("produce", topic, *at, "--value-format", "xml", stdin=b"{}")
    assert "'xml' is not one of avro, json, protobuf" in done.err
    done = ottla("consume", topic, "--schema-registry", "localhost:8081")
    assert "http://host:8081" in done.err


def test_a_topic_is_described_with_its_subjects(
    ottla: CommandLine, registry: RegistryClient, registry_url: str, topic: str
) -> None:
    assert "subjects" not in ottla.ok("topics", "describe", topic, "--json").json
    found = registry.register(f"{topic}-value", Schema(text=json.dumps(ORDER)))
    registry.set_config({"compatibility": "FULL"}, f"{topic}-value")
    at = "--schema-registry", registry_url
    subject = {"subject": f"{topic}-value", "version": 1, "id": found.id, "type": AVRO, "compatibility": "FULL"}
    assert [subject] == ottla.ok("topics", "describe", topic, *at, "--json").json["subjects"]
    shown = ottla.ok("topics", "describe", topic, *at).out.splitlines()
    assert [f"{topic}-value", "1", str(found.id), AVRO, "FULL"] == shown[-1].split()


def test_a_message_other_than_the_first_and_ids_in_headers(
    ottla: CommandLine, registry: RegistryClient, registry_url: str, topic: str, tmp_path: Path
) -> None:
    file = tmp_path / "shop.proto"
    file.write_text(
        'syntax = "proto3"; package shop; message A {} message Order { int32 id = 1; message Line { int32 id = 1; } }'
    )
    at = "--schema-registry", registry_url, "--value-schema", str(file)
    for number, name in enumerate(("shop.Order", "Order", "shop.Order.Line")):
        place = ("--schema-id", "header") if number else ()
        ottla.ok("produce", topic, *at, "--value-message", name, *place, stdin=b'{"id": %d}\n' % number)
    documents = ottla.ok("consume", topic, *at[:2], "--json").json_lines
    assert [{}, {"id": 1}, {"id": 2}] == [each["value"] for each in documents]
    guid = str(registry.version(f"{topic}-value").guid)
    assert [None, guid, guid] == [each["value_schema"].get("guid") for each in documents]
    done = ottla("produce", topic, *at, "--value-message", "shop.Nothing", stdin=b"{}")
    assert "the schema has no message shop.Nothing; its messages: shop.A, shop.Order, shop.Order.Line" in done.err
    (tmp_path / "order.avsc").write_text(json.dumps(ORDER))
    at = "--schema-registry", registry_url, "--value-schema", str(tmp_path / "order.avsc")
    done = ottla("produce", f"{topic}-avro", *at, "--value-message", "Order", stdin=b"{}")
    assert "--value-message is for Protobuf" in done.err


def test_following_goes_on_while_the_registry_is_away(
    start: Callable[..., Program], ottla: CommandLine, registry: RegistryClient, topic: str
) -> None:
    other = Schema(text='{"type": "long"}')
    first, second = registry.register(f"{topic}-a", Schema(text='"string"')), registry.register(f"{topic}-b", other)
    with ScriptedRegistry((200, b'{"schema": "\\"string\\""}')) as scripted:
        following = start("consume", topic, "--follow", "--schema-registry", scripted.url)
        ottla.ok("produce", topic, "--format", "hex", stdin=b"00%08x0478\x1b\n".replace(b"\x1b", b"1b") % first.id)
        assert '"x\\u001b"' == following.next_line()
        # What is known is decoded while the registry is away; what is not known is printed as it is.
        scripted.answer = 503, b"{}"
        line = b"00%08x0279\n00%08x0e\n00%08x0279\n" % (first.id, second.id, first.id)
        ottla.ok("produce", topic, "--format", "hex", stdin=line)
        undecoded = f"[not decoded] \0{second.id.to_bytes(4).decode()}\x0e"
        assert ['"y"', undecoded, '"y"'] == [following.next_line() for _ in range(3)]
        assert 130 == following.stop(signal.SIGINT)


def test_an_interrupt_does_not_wait_for_a_registry_that_hangs(
    start: Callable[..., Program], ottla: CommandLine, topic: str
) -> None:
    ottla.ok("produce", topic, "--format", "hex", stdin=b"000000000104\n")
    with ScriptedRegistry((200, b"{}")) as scripted:
        scripted.is_open.clear()
        following = start("consume", topic, "--follow", "--schema-registry", scripted.url)
        assert scripted.asked.wait(60)
        following.send(signal.SIGINT)
        # Less than the registry's timeout.
        assert 130 == following.wait(8)


def test_a_registry_that_comes_back_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with ScriptedRegistry((401, b"{}")) as scripted, RegistryClient(scripted.url, retries=0) as client:
        decoder = SchemaDecoder(client)

        def decoded(*ids: int) -> list[bytes | None]:
            records = [Record(0, 0, None, b"\0" + each.to_bytes(4, "big") + b"\2") for each in ids]
            return [each.value for each in decoder.decode(TopicPartition("t", 0), records)]

        scripted.answer = 503, b"{}"
        # It is not waited for once for each id.
        assert all(str(each).count("not decoded") for each in decoded(*range(1_000)))
        assert 1 == len(scripted.paths)
        monkeypatch.setattr(schema_reader, "FAILED_SECONDS", 0.0)
        decoder = SchemaDecoder(client)
        decoded(1)
        scripted.answer = 200, b'{"schema": "\\"long\\""}'
        assert [b"1", b"1"] == decoded(1, 2)
        # What is known is decoded while the registry is away.
        scripted.answer = 503, b"{}"
        assert [b"[not decoded] \0\0\0\0\3\2", b"1"] == decoded(3, 2)
