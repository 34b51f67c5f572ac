"""The options of value formats, and what becomes of good and bad rows."""

import pickle
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ottla.client.options import OptionError
from ottla.model.dead_letters import EXCEPTION, MESSAGE, OFFSET, SCHEMA_ID, STACKTRACE, TIMESTAMP
from ottla.registry.serde.arrow.row_decoding import BadValueError
from ottla.spark.values.dead_letter_sender import headers
from ottla.spark.values.value_format import RejectedRecordError, ValueDecoder, decoder_for, format_options, value_schema
from ottla.spark.values.value_types import RECORD_FIELDS
from tests.unit.spark.value_cases import array_of, map_of, spark_schema

AVRO = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}'
HEADERS = array_of(spark_schema(key="string", value="binary"))
NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)


def records(*values: bytes | None) -> pa.RecordBatch:
    """As the source gives them."""
    count = len(values)
    return pa.RecordBatch.from_pydict(
        {
            "key": pa.array([b"k%d" % index for index in range(count)], pa.binary()),
            "value": pa.array(values, pa.binary()),
            "topic": pa.array(["orders"] * count),
            "partition": pa.array([3] * count, pa.int32()),
            "offset": pa.array(range(100, 100 + count), pa.int64()),
            "timestamp": pa.array([NOON] * count, pa.timestamp("us", "UTC")),
            "timestampType": pa.array([0] * count, pa.int32()),
            "headers": pa.array([[{"key": "h", "value": b"1"}]] * count, RECORD_FIELDS["_headers"][1]),
        }
    )


def decoder(schema: dict[str, Any], **options: str) -> ValueDecoder:
    found = decoder_for({name.lower(): text for name, text in options.items()}, schema)
    assert found is not None
    travelled = pickle.loads(pickle.dumps(found))
    assert isinstance(travelled, ValueDecoder)
    return travelled


def rows(found: ValueDecoder, batch: pa.RecordBatch) -> list[dict[str, Any]]:
    return [row for each in found.decode(batch) for row in each.to_pylist()]


def test_without_the_option_there_is_no_decoder() -> None:
    assert decoder_for({"subscribe": "orders"}, spark_schema(a="integer")) is None


def test_fields_of_the_record_stand_beside_those_of_its_value() -> None:
    schema = spark_schema(
        _offset="long",
        a="integer",
        _key="binary",
        _value="binary",
        _topic="string",
        _partition="integer",
        _timestamp="timestamp",
        _headers=HEADERS,
        _error="string",
    )
    found = decoder(schema, valueFormat="json")
    assert found.wants_headers
    (batch,) = found.decode(records(b'{"a":7}'))
    assert [
        {
            "_offset": 100,
            "a": 7,
            "_key": b"k0",
            "_value": b'{"a":7}',
            "_topic": "orders",
            "_partition": 3,
            "_timestamp": NOON,
            "_headers": [{"key": "h", "value": b"1"}],
            "_error": None,
        }
    ] == batch.to_pylist()
    assert [each["name"] for each in schema["fields"]] == batch.schema.names


def test_failing_names_the_record_and_the_reason() -> None:
    found = decoder(spark_schema(a="integer"), valueFormat="json")
    assert not found.wants_headers
    with pytest.raises(RejectedRecordError) as raised:
        rows(found, records(b'{"a":1}', b'{"a":"x"}', b"{"))
    assert str(raised.value).startswith(
        'record at offset 101 of orders-3 cannot be decoded: field a is not an integer of 32 bits: "x"'
    )


def test_permissive_rows_are_null_and_say_why() -> None:
    found = decoder(spark_schema(a="integer", b="string", _error="string"), valueFormat="json", mode="PERMISSIVE")
    good, bad, dead = rows(found, records(b'{"a":1,"b":"x"}', b'{"a":1.5,"b":"x"}', None))
    assert {"a": 1, "b": "x", "_error": None} == good
    assert {"a": None, "b": None, "_error": "field a is not an integer of 32 bits: 1.5"} == bad
    assert {"a": None, "b": None, "_error": None} == dead


def test_text_is_one_column() -> None:
    found = decoder(spark_schema(line="string", _error="string"), valueFormat="string", mode="permissive")
    assert [("é", None), (None, None)] == [
        (row["line"], row["_error"]) for row in rows(found, records("é".encode(), None))
    ]
    (bad,) = rows(found, records(b"\xff"))
    assert "the value is not UTF-8: invalid start byte at byte 0" == bad["_error"]


def test_a_query_that_wants_nothing_of_the_value_decodes_nothing() -> None:
    assert [{"_offset": 100}] == rows(decoder(spark_schema(_offset="long"), valueFormat="json"), records(b"{"))


def test_columns_are_known_from_the_avro_schema_inline_or_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "r.avsc").write_text(AVRO)
    for given in (AVRO, str(tmp_path / "r.avsc")):
        assert "`a` INT" == value_schema({"valueFormat": "avro", "valueSchema": given})
    assert "`value` STRING" == value_schema({"valueFormat": "string"})
    read = format_options({"valueFormat": "avro", "valueSchema": str(tmp_path / "r.avsc")})
    assert read is not None
    assert AVRO == read.value_schema


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"valueFormat": "xml"}, "one of json, avro, protobuf, registry, string"),
        ({"mode": "permissive"}, "needs valueFormat"),
        ({"valueFormat": "json", "mode": "dropmalformed"}, "one of failfast, permissive, deadletter"),
        ({"valueFormat": "json", "mode": "deadletter"}, "needs a deadLetterTopic"),
        ({"valueFormat": "json", "mode": "failfast", "deadLetterTopic": "x"}, "cannot be combined with mode=failfast"),
        ({"valueFormat": "json", "valueSchema": AVRO}, "use .schema"),
        ({"valueFormat": "string", "schemaRegistryUrl": "http://x"}, "not for valueFormat=string"),
        ({"valueFormat": "avro", "valueSubject": "orders-value"}, "valueSubject needs schemaRegistryUrl"),
        ({"valueFormat": "registry"}, "need schemaRegistryUrl"),
        ({"valueFormat": "protobuf"}, "need schemaRegistryUrl"),
        ({"valueFormat": "registry", "schemaRegistryUrl": "ftp://x"}, "need schemaRegistryUrl"),
        (
            {"valueFormat": "avro", "schemaRegistryUrl": "http://x", "valueSubjectVersion": "newest"},
            "neither latest nor the number of a version",
        ),
        (
            {
                "valueFormat": "avro",
                "schemaRegistryUrl": "http://x",
                "valueSubjectVersion": "2",
                "valueSchema": AVRO,
            },
            "exclude each other",
        ),
        (
            {"valueFormat": "registry", "schemaRegistryUrl": "http://x", "schemaRegistryTimeoutMs": "soon"},
            "number of milliseconds",
        ),
        ({"valueFormat": "avro", "valueSchema": "/no/such/file"}, "neither a schema nor a file"),
    ],
)
def test_options_that_cannot_be_are_refused(options: dict[str, str], reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        format_options(options)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"valueFormat": "json"}, "needs a schema"),
        ({"valueFormat": "avro"}, "needs valueSchema"),
        ({"valueFormat": "avro", "valueSchema": "{"}, "schema is not valid"),
        ({"valueFormat": "registry", "schemaRegistryUrl": "http://x", "subscribe": "a,b"}, "valueSubject"),
    ],
)
def test_columns_that_nobody_knows_are_asked_for(options: dict[str, str], reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        value_schema(options)


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (
            spark_schema(a="integer", _offset="integer"),
            "_offset is a field of the record and must be declared as BIGINT",
        ),
        (spark_schema(a="integer", _error="binary"), "must be declared as STRING"),
        (spark_schema(a="interval day to second"), "no value format supports"),
        (spark_schema(a=spark_schema(b="variant")), r"a\.b is of type variant"),
        (spark_schema(a={**map_of("string"), "keyType": "integer"}), "no value format supports"),
    ],
)
def test_schemas_that_cannot_be_are_refused(schema: dict[str, Any], reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        decoder_for({"valueformat": "json"}, schema)


def test_text_has_no_second_column() -> None:
    with pytest.raises(OptionError, match="one column of type STRING"):
        decoder_for({"valueformat": "string"}, spark_schema(a="string", b="string"))


def test_a_dead_letter_tells_its_story() -> None:
    try:
        raise BadValueError("bad \udc00")
    except BadValueError as error:
        (row,) = records(b"{").to_pylist()
        found = dict(headers({**row, "headers": [*row["headers"], {"key": MESSAGE, "value": b"old"}]}, error, "7"))
    assert b"1" == found["h"]
    assert (b"100", b"1714564800000", b"bad ?") == (found[OFFSET], found[TIMESTAMP], found[MESSAGE])
    assert b"7" == found[SCHEMA_ID]
    assert b"ottla.registry.serde.arrow.row_decoding.BadValueError" == found[EXCEPTION]
    assert b"test_a_dead_letter_tells_its_story" in (found[STACKTRACE] or b"")
