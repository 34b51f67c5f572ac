"""Where ids are written and found."""

from uuid import UUID

import pytest

from ottla.client.values import Header
from ottla.registry.serde.errors import ValueNotReadableError, ValueNotSerializableError
from ottla.registry.serde.framing import Framed, guid_header, id_prefix, read_frame
from ottla.registry.serde.subject_names import record_subject, topic_record_subject, topic_subject

GUID = UUID("01234567-89ab-cdef-0123-456789abcdef")
OTHER = UUID("00000000-0000-0000-0000-000000000001")


def test_prefix() -> None:
    assert b"\0\x01\x02\x03\x04" == id_prefix(0x01020304)
    assert Framed(0x01020304, 5, b"") == read_frame((), b"\0\x01\x02\x03\x04value", is_key=False)
    assert Framed(0xFFFFFFFF, 5, b"") == read_frame((), b"\0\xff\xff\xff\xff", is_key=False)
    assert Framed(GUID, 17, b"") == read_frame((), b"\1" + GUID.bytes + b"value", is_key=False)


def test_header() -> None:
    header = guid_header(GUID, is_key=False, suffix=b"\0")
    assert ("__value_schema_id", b"\1" + GUID.bytes + b"\0") == header
    assert "__key_schema_id" == guid_header(GUID, is_key=True)[0]
    assert Framed(GUID, 0, b"\0") == read_frame([("own", b"1"), header], b"\0\0\0\0\1", is_key=False)


def test_the_last_header_counts_and_other_headers_do_not() -> None:
    headers: list[Header] = [
        guid_header(GUID, is_key=False),
        guid_header(OTHER, is_key=False),
        ("__value_schema_id", None),
    ]
    assert OTHER == read_frame(headers, b"", is_key=False).schema_id
    assert 1 == read_frame(headers, b"\0\0\0\0\1", is_key=True).schema_id


@pytest.mark.parametrize("data", [b"", b"\0\0\0\1", b"{}{}{}{}", b"\1" + bytes(15)])
def test_bytes_without_an_id(data: bytes) -> None:
    with pytest.raises(ValueNotReadableError, match="the value has no schema id"):
        read_frame((), data, is_key=False)
    with pytest.raises(ValueNotReadableError, match="the header __key_schema_id has no schema id"):
        read_frame([("__key_schema_id", data)], b"", is_key=True)


def test_subjects() -> None:
    assert ["t-key", "t-value"] == [topic_subject("t", is_key, "n.R") for is_key in (True, False)]
    assert ["n.R", "t-n.R"] == [record_subject("t", True, "n.R"), topic_record_subject("t", True, "n.R")]
    for strategy in (record_subject, topic_record_subject):
        with pytest.raises(ValueNotSerializableError, match="not a record"):
            strategy("t", False, None)
