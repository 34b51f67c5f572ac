"""Framed values and the registry that knows their schemas: a real one over HTTP, with all the ways they fail."""

import base64
from collections.abc import Iterator
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from ottla.spark.values.registry_values import RegistryValues
from ottla.spark.values.schema_registry import (
    RegistryAddress,
    RegistryRefusedError,
    RegistryUnreachableError,
    SchemaRegistry,
    UnknownSchemaError,
)
from ottla.spark.values.value_format import value_schema
from tests.unit.spark.http_registry import ADDRESS, FIRST, NAMING, SECOND, Registry, avro, framed, running_registry
from tests.unit.spark.value_cases import decoded

COLUMNS = pa.struct([("id", pa.string()), ("n", pa.int64())])


@pytest.fixture
def registry() -> Iterator[Registry]:
    with running_registry() as running:
        yield running


def client(registry: Registry, **told: Any) -> SchemaRegistry:
    return SchemaRegistry(RegistryAddress(urls=(registry.url,), **{"timeout_ms": 5_000, **told}), sleep=lambda _: None)


def first(text: str) -> bytes:
    return framed(1, avro(FIRST, {"id": text}))


def second(text: str, number: int) -> bytes:
    return framed(2, avro(SECOND, {"id": text, "n": number}))


def test_values_of_several_schemas_keep_their_order(registry: Registry) -> None:
    values = [first("a"), second("b", 2), framed(3, b'{"id":"c","n":3}'), first("d"), second("e", 5)]
    rows = RegistryValues(client(registry), COLUMNS).decode_block(pa.array(values, pa.binary())).to_pylist()
    assert [("a", None), ("b", 2), ("c", 3), ("d", None), ("e", 5)] == [(row["id"], row["n"]) for row in rows]
    assert ["/schemas/ids/1", "/schemas/ids/2", "/schemas/ids/3"] == registry.asked


def test_large_blocks_and_large_values_are_unframed(registry: Registry) -> None:
    texts = [str(number) * (1 if number % 1000 else 100_000) for number in range(5_000)]
    values = pa.array([first(text) for text in texts], pa.binary())
    rows = RegistryValues(client(registry), COLUMNS).decode_block(values.slice(1))
    assert texts[1:] == rows.field("id").to_pylist()


def test_bad_values_are_rejected_each_with_its_reason(registry: Registry) -> None:
    values = [
        first("a"),
        None,
        b"",
        b"\0\0\0",
        b"{}{}{}",
        framed(77, b"x"),
        framed(4, b"x"),
        framed(6, b"x"),
        framed(1, b"\xff"),
        framed(3, b"{"),
        second("z", 9),
    ]
    rows = decoded(RegistryValues(client(registry), COLUMNS), values)
    assert [{"id": "a", "n": None}, None] == rows[:2]
    assert {"id": "z", "n": 9} == rows[-1]
    reasons = ["too few", "too few", "zero byte", "no schema with the id 77", "'PROTOBUF'", "no Avro schema"]
    for row, reason in zip(rows[2:], [*reasons, "does not fit its Avro schema", "not JSON"], strict=False):
        assert reason in row


def test_an_unknown_id_is_asked_for_once_and_again_after_a_while(registry: Registry) -> None:
    now = [0.0]
    asked = SchemaRegistry(RegistryAddress(urls=(registry.url,)), now=lambda: now[0])
    for _ in range(3):
        with pytest.raises(UnknownSchemaError):
            asked.schema(77)
    assert ["/schemas/ids/77"] == registry.asked
    registry.answers["/schemas/ids/77"] = registry.answers["/schemas/ids/1"]
    now[0] = 61.0
    assert "AVRO" == asked.schema(77).kind


def test_references_are_fetched(registry: Registry) -> None:
    kind = pa.struct([("id", pa.string()), ("home", pa.struct([("street", pa.string())]))])
    both = fastavro.parse_schema({**NAMING, "fields": [NAMING["fields"][0], {"name": "home", "type": ADDRESS}]})
    row = {"id": "a", "home": {"street": "High"}}
    assert [row] == decoded(RegistryValues(client(registry), kind), [framed(5, avro(both, row))])


def test_a_registry_that_stumbles_is_asked_again(registry: Registry) -> None:
    registry.failures = [503, 500, 429]
    assert "AVRO" == client(registry).schema(1).kind
    assert 4 == len(registry.asked)


def test_another_registry_is_asked_when_one_is_away(registry: Registry) -> None:
    address = RegistryAddress(urls=("http://127.0.0.1:1", registry.url), timeout_ms=5_000)
    assert "AVRO" == SchemaRegistry(address, sleep=lambda _: None).schema(1).kind


def test_a_registry_that_is_away_is_an_error_and_no_bad_row(registry: Registry) -> None:
    registry.failures = [503] * 1000
    format = RegistryValues(client(registry, timeout_ms=300), COLUMNS)
    with pytest.raises(RegistryUnreachableError, match=r"answers 503.*gave up after"):
        decoded(format, [first("a")])
    registry.failures = []
    assert [{"id": "a", "n": None}] == decoded(format, [first("a")])


def test_credentials_are_sent_and_their_absence_is_told(registry: Registry) -> None:
    registry.credentials = "Basic " + base64.b64encode(b"me:secret").decode()
    with pytest.raises(RegistryRefusedError, match="schemaRegistryUser"):
        client(registry).schema(1)
    assert "AVRO" == client(registry, credentials="me:secret").schema(1).kind
    assert "secret" not in repr(RegistryAddress(urls=("http://x",), credentials="me:secret"))


@pytest.mark.parametrize("answer", [{"nothing": 1}, {"schema": 5}])
def test_what_is_no_registry_is_told(registry: Registry, answer: dict[str, Any]) -> None:
    registry.answers["/schemas/ids/1"] = answer
    with pytest.raises(RegistryRefusedError, match="schema registry"):
        client(registry).schema(1)


def test_columns_come_from_the_subject_of_the_topic(registry: Registry) -> None:
    told = {"valueformat": "registry", "schemaregistryurl": registry.url, "subscribe": "orders"}
    assert "`n` BIGINT, `id` STRING" == value_schema(told)
    of_json = "`id` STRING, `n` BIGINT, `at` TIMESTAMP, `tags` ARRAY<STRING>"
    assert of_json == value_schema({**told, "valuesubject": "events-value"})
