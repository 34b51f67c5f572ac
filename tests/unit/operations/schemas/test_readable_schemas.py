"""The text of a schema, laid out to be read."""

import pytest

from ottla.operations.schemas.readable_schemas import readable

PROTO = '{"a":1}'


@pytest.mark.parametrize(
    ("schema_type", "text", "laid_out"),
    [
        ("AVRO", '{"type":"record","name":"É"}', '{\n  "type": "record",\n  "name": "É"\n}'),
        ("JSON", "[1]", "[\n  1\n]"),
        ("AVRO", "not JSON", "not JSON"),
        ("JSON", "[" * 100_000, "[" * 100_000),
        ("PROTOBUF", PROTO, PROTO),
    ],
)
def test_json_has_one_value_in_each_line(schema_type: str, text: str, laid_out: str) -> None:
    assert laid_out == readable(schema_type, text)
