"""Reads: subjects, versions, schemas by id and GUID, contexts."""

from functools import partial

import msgspec
import pytest

from ottla.registry.schemas.parsed_schema import SchemaEntity
from ottla.registry.schemas.schema import Reference
from ottla.registry.state import configs, deletions, lookups
from ottla.registry.state.answers import ContextId, SubjectVersion
from ottla.registry.state.metadata import Metadata, Rule, RuleSet
from ottla.registry.state.options import RegistryOptions
from ottla.registry.state.record_formats import Record, SchemaKey, SchemaValue
from ottla.registry.state.registry_image import RegistryImage
from ottla.registry.state.requests import ConfigUpdate, SchemaRequest, SchemaTags
from tests.unit.registry.state.refusals import refusal, refused_with
from tests.unit.registry.state.tiny_language import LANGUAGES, Registry, schema


@pytest.fixture
def filled(registry: Registry) -> Registry:
    """Subjects in three contexts; "gone" and version 1 of "s" are soft-deleted."""
    registry.register("s", "a")
    registry.register("s", "a", "b?")
    registry.register("t", "a")
    registry.register("gone", "g")
    registry.register(":.x:s", "a")
    registry.register(":.y:u", "a", "b?")
    registry.commit(deletions.delete_subject(registry.image, "gone"))
    registry.commit(deletions.delete_version(registry.image, "s", "1"))
    return registry


@pytest.mark.parametrize(
    ("prefix", "found"),
    [
        (":*:", [":.x:s", ":.y:u", "s", "t"]),
        ("", ["s", "t"]),
        ("s", ["s"]),
        (":.x:", [":.x:s"]),
        (":.x:s", [":.x:s"]),
        (":.x", [":.x:s"]),
        (":.", [":.x:s", ":.y:u", "s", "t"]),
        (":.:", ["s", "t"]),
        (":*:s", [":.x:s", "s"]),
        (":*:q", []),
        (":", []),
    ],
)
def test_subjects_by_prefix(filled: Registry, prefix: str, found: list[str]) -> None:
    assert found == lookups.list_subjects(filled.image, prefix=prefix)


def test_deleted_subjects_on_request(filled: Registry) -> None:
    assert ["gone", "s", "t"] == lookups.list_subjects(filled.image, prefix="", deleted=True)
    assert ["gone"] == lookups.list_subjects(filled.image, deleted_only=True)


def test_pages(filled: Registry) -> None:
    assert [":.y:u", "s"] == lookups.list_subjects(filled.image, offset=1, limit=2)
    assert ["t"] == lookups.list_subjects(filled.image, offset=3, limit=100)
    assert [] == lookups.list_subjects(filled.image, offset=9)
    assert 4 == len(lookups.list_subjects(filled.image, offset=-1, limit=0))
    assert [".x"] == lookups.list_contexts(filled.image, offset=1, limit=1)
    assert [".y"] == lookups.list_contexts(filled.image, prefix=".y")


def test_versions_of_a_subject(filled: Registry) -> None:
    image = filled.image
    assert [2] == lookups.list_versions(image, "s")
    assert [1, 2] == lookups.list_versions(image, "s", deleted=True)
    assert [1] == lookups.list_versions(image, "s", deleted_only=True)
    assert [-1, 2] == lookups.list_versions(image, "s", deleted_as_negative=True)
    assert [2] == lookups.list_versions(image, "s", deleted=True, offset=1, limit=1)
    assert 40401 == refused_with(lambda: lookups.list_versions(image, "gone"))
    assert [1] == lookups.list_versions(image, "gone", deleted=True)


def test_the_answer_for_a_version_has_confluents_fields(filled: Registry) -> None:
    answer = lookups.get_version(filled.image, "s", "latest")
    assert (
        '{"subject":"s","version":2,"id":2,"guid":"' + answer.guid + '","schemaType":"AVRO",'
        '"schema":"{\\"fields\\":{\\"a\\":\\"int\\",\\"b?\\":\\"int\\"}}","ts":1001,"deleted":false}'
    ) == msgspec.json.encode(answer).decode()


def test_one_version(filled: Registry) -> None:
    image = filled.image
    assert answer_of(lookups.get_version(image, "s", "-1")) == answer_of(lookups.get_version(image, "s", " Latest "))
    assert (404, 40402) == refusal(lambda: lookups.get_version(image, "t", "2"))[:2]
    assert lookups.get_version(image, "s", "1", deleted=True).deleted
    assert (404, 40402) == refusal(lambda: lookups.get_version(image, "s", "9"))[:2]
    assert (404, 40401) == refusal(lambda: lookups.get_version(image, "q", "9"))[:2]
    assert (404, 40401) == refusal(lambda: lookups.get_version(image, "gone", "latest"))[:2]
    assert schema("a", "b?") == lookups.get_version_text(image, "s", "2")
    assert "\n" in lookups.get_version_text(image, "s", "2", format="pretty")
    assert 42201 == refused_with(lambda: lookups.get_version(image, "s", "2", format="braille"))


def answer_of(answer: object) -> bytes:
    return msgspec.json.encode(answer)


def test_a_subject_without_context_is_searched_in_all(filled: Registry) -> None:
    assert ":.y:u" == lookups.get_version(filled.image, "u", "1").subject
    assert ":.x:s" == lookups.get_version(filled.image, "s", "1").subject
    assert 40401 == refused_with(lambda: lookups.get_version(filled.image, ":.x:u", "1"))


def test_schemas_by_id(filled: Registry) -> None:
    image = filled.image
    assert ("t", 1) == tuple(getattr(lookups.get_schema(image, 1), name) for name in ("subject", "version"))
    assert ":.x:s" == lookups.get_schema(image, 1, subject=":.x:").subject
    assert ":.x:s" == lookups.get_schema(image, 1, subject=":.x:s").subject
    # A hint in the default context: the subject itself, then the same name elsewhere, then any.
    assert "t" == lookups.get_schema(image, 1, subject="t").subject
    assert ":.y:u" == lookups.get_schema(image, 1, subject="u").subject
    assert "t" == lookups.get_schema(image, 1, subject="nowhere").subject
    assert (404, 40403) == refusal(lambda: lookups.get_schema(image, 9))[:2]
    assert 40403 == refused_with(lambda: lookups.get_schema(image, 1, subject=":.x:t"))
    assert schema("a") == lookups.get_schema_text(image, 1)
    assert 40403 == refused_with(lambda: lookups.get_schema_text(image, 9))
    assert 3 == lookups.get_schema(image, 1, fetch_max_id=True).max_id
    assert lookups.get_schema(image, 3).deleted


def test_subjects_and_versions_of_an_id(filled: Registry) -> None:
    image = filled.image
    assert ["t"] == lookups.subjects_of_id(image, 1)
    assert ["s", "t"] == lookups.subjects_of_id(image, 1, deleted=True)
    assert ["t"] == lookups.subjects_of_id(image, 1, deleted=True, offset=1)
    assert [SubjectVersion("s", 1), SubjectVersion("t", 1)] == lookups.versions_of_id(image, 1, deleted=True)
    assert [] == lookups.versions_of_id(image, 3)
    assert 40403 == refused_with(lambda: lookups.subjects_of_id(image, 9))


def test_schemas_by_guid(filled: Registry) -> None:
    image = filled.image
    guid = lookups.get_version(image, "t", "1").guid
    answer = lookups.get_schema_by_guid(image, guid)
    assert (None, None, schema("a"), guid) == (answer.subject, answer.version, answer.schema, answer.guid)
    assert [ContextId(".", 1), ContextId(".x", 1)] == lookups.ids_of_guid(image, guid)
    assert "\n" in lookups.get_schema_by_guid(image, guid, format="pretty").schema
    for unknown in ("00000000-0000-0000-0000-000000000000", "x"):
        refused = refusal(partial(lookups.get_schema_by_guid, image, unknown))
        assert (404, 40403) == refused[:2]
        assert [] == lookups.ids_of_guid(image, unknown)


def test_look_up_of_a_schema(filled: Registry) -> None:
    image = filled.image
    assert 2 == lookups.look_up(image, "s", SchemaRequest(schema=' {"fields": {"a":"int","b?":"int"}}')).version
    gone = SchemaRequest(schema=schema("a"))
    assert ":.x:s" == lookups.look_up(image, "s", gone).subject
    assert "s" == lookups.look_up(image, "s", gone, deleted=True).subject
    assert (404, 40403) == refusal(lambda: lookups.look_up(image, ":.y:u", gone))[:2]
    assert (404, 40401) == refusal(lambda: lookups.look_up(image, "q", gone))[:2]
    assert ":.y:u" == lookups.look_up(image, "u", SchemaRequest(schema=schema("a", "b?"))).subject
    assert 42201 == refused_with(lambda: lookups.look_up(image, "s", SchemaRequest(schema="{")))
    assert 40403 == refused_with(lambda: lookups.look_up(image, "s", SchemaRequest()))
    assert 42201 == refused_with(lambda: lookups.look_up(image, "s", SchemaRequest(schema=schema("a"), schema_type="")))


def test_a_look_up_says_neither_when_nor_whether_it_was_deleted(filled: Registry) -> None:
    gone = SchemaRequest(schema=schema("a"))
    found = lookups.look_up(filled.image, "s", gone, deleted=True)
    assert (None, None) == (found.ts, found.deleted)


def test_look_up_with_normalization(registry: Registry) -> None:
    registry.register("s", schema='{"fields":{"b":"int","a":"int"}}', normalize=True)
    request = SchemaRequest(schema='{"fields":{"b":"int","a":"int"}}')
    assert 40403 == refused_with(lambda: lookups.look_up(registry.image, "s", request))
    assert 1 == lookups.look_up(registry.image, "s", request, normalize=True).version
    registry.commit(configs.update_config(registry.image, "s", ConfigUpdate(normalize=True)))
    assert 1 == lookups.look_up(registry.image, "s", request).version


def test_look_up_knows_metadata_that_a_registration_would_inherit(registry: Registry) -> None:
    registry.register("s", "a", metadata=Metadata(properties={"owner": "me"}))
    assert 1 == lookups.look_up(registry.image, "s", SchemaRequest(schema=schema("a"))).version
    other = SchemaRequest(schema=schema("a"), metadata=Metadata(properties={"owner": "you"}))
    assert 40403 == refused_with(lambda: lookups.look_up(registry.image, "s", other))


def test_latest_with_metadata(registry: Registry) -> None:
    for fields, major in ((("a",), "1"), (("a", "b?"), "1"), (("a", "c?"), "2")):
        registry.register("s", *fields, metadata=Metadata(properties={"major": major}))
    assert 2 == lookups.latest_with_metadata(registry.image, "s", {"major": "1"}).version
    assert 3 == lookups.latest_with_metadata(registry.image, "s", {}).version
    assert 40403 == refused_with(lambda: lookups.latest_with_metadata(registry.image, "s", {"major": "3"}))
    assert 40401 == refused_with(lambda: lookups.latest_with_metadata(registry.image, "t", {}))


def test_references(registry: Registry) -> None:
    registry.register(":.x:r", "a")
    registry.register(":.x:s", "b", references=[Reference("R", "r", 1)])
    registry.register(":.x:t", "b", references=[Reference("R", "r", 1)])
    registry.register("q", "c", references=[Reference("R", ":.x:r", 1)])
    image = registry.image
    assert [1, 2] == lookups.referenced_by(image, ":.x:r", "latest")
    assert [2] == lookups.referenced_by(image, ":.x:r", "1", offset=1)
    assert [Reference("R", "r", 1)] == lookups.get_version(image, ":.x:s", "1").references
    qualified = lookups.get_version(image, ":.x:s", "1", reference_format="qualified")
    assert [Reference("R", ":.x:r", 1)] == qualified.references
    by_id = lookups.get_schema(image, 2, subject=":.x:", reference_format="qualified")
    assert [Reference("R", ":.x:r", 1)] == by_id.references
    registry.commit(deletions.delete_subject(image, "q"))
    assert [2] == lookups.referenced_by(image, ":.x:r", "1")
    assert [1, 2] == lookups.referenced_by(image, ":.x:r", "1", deleted=True)


def test_all_schemas(filled: Registry) -> None:
    def found(**options: object) -> list[tuple[str, int]]:
        answers = lookups.list_schemas(filled.image, **options)  # type: ignore[arg-type]
        return [(answer.subject, answer.version) for answer in answers]

    filled.register("s", "a", "c?", rule_set=RuleSet(domain_rules=[Rule(name="r", type="CEL")]))
    assert [("s", 2), ("s", 3), ("t", 1)] == found()
    assert [("gone", 1), ("s", 1), ("s", 2), ("s", 3), ("t", 1)] == found(deleted=True)
    assert [("s", 3), ("t", 1)] == found(latest_only=True)
    assert [("s", 3)] == found(rule_type="CEL")
    assert [("t", 1)] == found(offset=2, limit=5)
    assert [(":.x:s", 1)] == found(prefix=":.x:")


def test_schemas_have_a_limit() -> None:
    image = RegistryImage(LANGUAGES, RegistryOptions(schemas_limit=2))
    for version in (1, 2, 3):
        value = SchemaValue(id=version, schema=schema(f"f{version}"))
        image.apply(Record(SchemaKey("s", version), value), 0)
    assert [2, 2, 1] == [len(lookups.list_schemas(image, limit=limit)) for limit in (-1, 100, 1)]


def test_aliases(filled: Registry) -> None:
    for alias in ("old", "older", ":.x:old"):
        filled.commit(configs.update_config(filled.image, alias, ConfigUpdate(alias="s")))
    image = filled.image
    assert "s" == lookups.get_version(image, "old", "latest").subject
    assert ":.x:s" == lookups.get_version(image, ":.x:old", "latest").subject
    assert "s" == lookups.get_schema(image, 2, subject="older").subject
    answers = lookups.list_schemas(image, prefix="old", aliases=True)
    assert [("s", ["old", "older"])] == [(answer.subject, answer.aliases) for answer in answers]
    assert [] == lookups.list_schemas(image, prefix="old")


def test_tags_of_a_schema(registry: Registry) -> None:
    registry.register("s", schema=schema("a", "b", tags={"a": ["PII"], "b": ["GDPR"]}))
    tags = [SchemaTags(SchemaEntity("a", "sr_field"), ["PII"]), SchemaTags(SchemaEntity("b", "sr_field"), ["GDPR"])]
    image = registry.image
    assert tags == lookups.get_version(image, "s", "1", find_tags=["*"]).schema_tags
    assert tags[:1] == lookups.get_schema(image, 1, find_tags=["PII", "x"]).schema_tags
    assert lookups.get_schema(image, 1, find_tags=["x"]).schema_tags is None
    encoded = msgspec.json.encode(lookups.get_schema(image, 1, find_tags=["PII"]).schema_tags)
    assert b'[{"schemaEntity":{"entityPath":"a","entityType":"sr_field"},"tags":["PII"]}]' == encoded


def test_schemas_that_cannot_be_parsed_are_served_all_the_same(registry: Registry) -> None:
    """A registry with other rules may have written them."""
    registry.write(Record(SchemaKey("s", 1), SchemaValue(id=1, schema="not a schema", schema_type="THRIFT")))
    image = registry.image
    assert "not a schema" == lookups.get_schema(image, 1).schema
    assert "not a schema" == lookups.get_version_text(image, "s", "latest")
    assert "Version 1 of subject 's'" in refusal(lambda: lookups.get_version(image, "s", "1", format="pretty"))[2]
    assert 40403 == refused_with(lambda: lookups.look_up(image, "s", SchemaRequest(schema=schema("a"))))


def test_encrypted_metadata_keeps_its_digest(registry: Registry) -> None:
    value = SchemaValue(id=1, schema=schema("a"), md5="CV1xzxJVa51eMwrVdbPfXQ==", metadata=Metadata(sensitive=["k"]))
    registry.write(Record(SchemaKey("s", 1), value))
    guid = "095d71cf-1255-6b9d-5e33-0ad575b3df5d"
    assert guid == lookups.get_schema(registry.image, 1).guid
    registry.commit(deletions.delete_version(registry.image, "s", "1"))
    assert guid == lookups.get_schema_by_guid(registry.image, guid).guid
