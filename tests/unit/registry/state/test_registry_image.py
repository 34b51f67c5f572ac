"""The image under many records."""

import json
import time
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from ottla.registry.state import lookups
from ottla.registry.state.record_formats import Record, RecordFormatError, SchemaKey, SchemaValue, decode_record
from ottla.registry.state.registry_image import RegistryImage
from tests.unit.registry.state.tiny_language import LANGUAGES, schema


def load(subjects: int, *, shared: bool) -> tuple[RegistryImage, float]:
    """An image with so many subjects, all of one schema or each of its own, and the seconds that it took."""
    image = RegistryImage(LANGUAGES)
    started = time.process_time()
    for number in range(1, subjects + 1):
        id = 1 if shared else number
        image.apply(Record(SchemaKey(f"s{number}", 1), SchemaValue(id=id, schema=schema(f"f{id}"))), 0)
    return image, time.process_time() - started


def test_a_schema_of_many_subjects_is_loaded_as_fast_as_many_schemas() -> None:
    _, expected = load(8_000, shared=False)
    image, seconds = load(8_000, shared=True)
    assert seconds < 10 * expected
    assert "s1" == lookups.get_schema(image, 1).subject
    assert 8_000 == len(lookups.subjects_of_id(image, 1))


def test_subjects_are_sorted_whenever_they_come_and_go() -> None:
    image, _ = load(3, shared=True)
    assert ["s1", "s2", "s3"] == lookups.list_subjects(image)
    image.apply(Record(SchemaKey("s0", 1), SchemaValue(id=1, schema=schema("f1"))), 0)
    assert ["s0", "s1", "s2", "s3"] == lookups.list_subjects(image)
    image.apply(Record(SchemaKey("s2", 1), None), 0)
    image.apply(Record(SchemaKey("unknown", 1), None), 0)
    assert ["s0", "s1", "s3"] == lookups.list_subjects(image)
    image.check()


def test_records_with_impossible_versions_are_refused() -> None:
    image, _ = load(1, shared=True)
    for version in (-1, 0):
        refused = image.apply(Record(SchemaKey("s1", version), SchemaValue(id=7, schema=schema("x"))), 0)
        assert refused is not None
        assert f"version {version}" in refused
        assert image.apply(Record(SchemaKey("s1", version), None), 0) is None
        image.check()
    assert 1 == lookups.get_version(image, "s1", "latest").id


NUMBERS = st.one_of(st.integers(-2, 3), st.sampled_from([2**31, 2**63 - 1, -(2**63)]))
TEXTS = st.one_of(
    st.sampled_from(["", "s1", ":.x:s", ":*:", ":.", ":.__GLOBAL:", "{}", "BACKWARD"]), st.text(max_size=5)
)
TEXT_FIELDS = ("subject", "schema", "schemaType", "md5", "context", "tenant", "alias", "guid", "resourceId")
FIELDS = {
    **dict.fromkeys(TEXT_FIELDS, TEXTS),
    **dict.fromkeys(("version", "id", "highestId", "createTs"), NUMBERS),
    "deleted": st.booleans(),
    "mode": st.sampled_from(["READONLY", "IMPORT"]),
    "references": st.lists(st.fixed_dictionaries({"name": TEXTS, "subject": TEXTS, "version": NUMBERS}), max_size=2),
    "metadata": st.dictionaries(
        st.sampled_from(["properties", "tags", "sensitive"]), st.one_of(st.none(), st.dictionaries(TEXTS, TEXTS))
    ),
}
KEY_TYPES = (
    "SCHEMA",
    "SCHEMA",
    "SCHEMA",
    "CONFIG",
    "MODE",
    "NOOP",
    "DELETE_SUBJECT",
    "CLEAR_SUBJECT",
    "CONTEXT",
    "ASSOC",
)


@given(
    records=st.lists(
        st.tuples(
            st.fixed_dictionaries(
                {"keytype": st.sampled_from(KEY_TYPES), "version": NUMBERS},
                optional={"subject": TEXTS, "context": TEXTS},
            ),
            st.one_of(
                st.none(),
                st.fixed_dictionaries({}, optional=FIELDS),
                st.fixed_dictionaries({"id": NUMBERS, "schema": TEXTS, "references": FIELDS["references"]}),
            ),
        ),
        max_size=12,
    )
)
def test_whatever_stands_in_the_topic_is_read_or_refused(
    records: list[tuple[dict[str, Any], dict[str, Any] | None]],
) -> None:
    image, _ = load(1, shared=True)
    for key, value in records:
        try:
            record = decode_record(json.dumps(key).encode(), None if value is None else json.dumps(value).encode())
        except RecordFormatError:
            continue
        image.apply(record, 0)
        image.check()
    for answer in (lookups.list_schemas(image, prefix=":*:", deleted=True, aliases=True), list(image.associations)):
        msgspec.json.encode(answer)
