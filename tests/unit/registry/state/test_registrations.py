"""POST /subjects/{subject}/versions and …/{version}/tags."""

from typing import Any

import pytest

from ottla.registry.schemas.parsed_schema import SchemaEntity
from ottla.registry.schemas.schema import Reference
from ottla.registry.state import configs, deletions, lookups, modes, registrations
from ottla.registry.state.metadata import Metadata, Rule, RuleSet
from ottla.registry.state.record_formats import (
    AssociationKey,
    AssociationValue,
    HighestIdKey,
    HighestIdValue,
    Record,
    SchemaKey,
    SchemaValue,
)
from ottla.registry.state.requests import ConfigUpdate, ModeUpdate, SchemaRequest, SchemaTags, TagsRequest
from tests.unit.registry.state.refusals import refusal, refused_with
from tests.unit.registry.state.tiny_language import Registry, schema


def set_config(registry: Registry, subject: str | None, **fields: Any) -> None:
    registry.commit(configs.update_config(registry.image, subject, ConfigUpdate(**fields)))


def set_mode(registry: Registry, subject: str | None, mode: str | None, **options: bool) -> None:
    registry.commit(modes.update_mode(registry.image, subject, ModeUpdate(mode), **options))


def delete_for_good(registry: Registry, subject: str) -> None:
    registry.commit(deletions.delete_subject(registry.image, subject))
    registry.commit(deletions.delete_subject(registry.image, subject, permanent=True))


# Ids and versions


def test_versions_and_ids_count_up_and_equal_schemas_share_an_id(registry: Registry) -> None:
    first = registry.register("s", "a")
    second = registry.register("s", "a", "b?")
    elsewhere = registry.register("t", "a")
    assert [(1, first.id), (2, second.id), (1, first.id)] == [
        (answer.version, answer.id) for answer in (first, second, elsewhere)
    ]


def test_a_repeated_registration_writes_nothing(registry: Registry) -> None:
    answer = registry.register("s", "a")
    records = len(registry.log)
    assert answer == registry.register("s", "a")
    assert answer == registrations.find_registered(registry.image, "s", SchemaRequest(schema=schema("a")))
    assert records == len(registry.log)


def test_an_unknown_schema_is_not_registered_already(registry: Registry) -> None:
    registry.register("s", "a")
    for subject in ("s", "t"):
        request = SchemaRequest(schema=schema("a", "b?"))
        assert registrations.find_registered(registry.image, subject, request) is None


def test_contexts_have_ids_of_their_own(registry: Registry) -> None:
    registry.register("s", "a")
    registry.register("s", "a", "b?")
    answer = registry.register(":.x:s", "a", "b?")
    assert (1, 1) == (answer.id, answer.version)
    assert [".x"] == registry.image.contexts
    assert (2, 1) == (registry.register(":.x:t", "c").id, registry.register(":.:u", "a").id)


def test_a_version_is_never_reused_but_the_id_of_a_soft_deleted_schema_is(registry: Registry) -> None:
    answer = registry.register("s", "a")
    registry.commit(deletions.delete_subject(registry.image, "s"))
    again = registry.register("s", "a")
    assert (answer.id, 2) == (again.id, again.version)
    # The new version replaces the deleted one.
    assert [2] == [version.version for version in registry.image.versions("s")]


def test_a_soft_deleted_version_that_others_refer_to_is_not_replaced(registry: Registry) -> None:
    registry.register("s", "a")
    registry.register("t", schema=schema("b", use=["r"]), references=[Reference("r", "s", 1)])
    registry.commit(deletions.delete_subject(registry.image, "t"))
    registry.commit(deletions.delete_subject(registry.image, "s"))
    registry.register("s", "a")
    assert [(1, True), (2, False)] == [(item.version, item.deleted) for item in registry.image.versions("s")]


def test_the_id_of_a_permanently_deleted_schema_never_comes_back(registry: Registry) -> None:
    answer = registry.register("s", "a")
    delete_for_good(registry, "s")
    registry.log = registry.compacted()
    registry.image = registry.replayed()
    assert [b'{"keytype":"NOOP","magic":0,"context":"."}'] == [
        key for key, _, _ in registry.log if b"DELETE_SUBJECT" not in key
    ]
    assert answer.id + 1 == registry.register("s", "a").id


def test_the_highest_id_is_kept_only_when_it_would_be_lost(registry: Registry) -> None:
    for subject in "abc":
        registry.register(subject, subject)
    delete_for_good(registry, "b")
    assert not any(b"highestId" in (value or b"") for _, value, _ in registry.log)
    delete_for_good(registry, "c")
    assert Record(HighestIdKey("."), HighestIdValue(".", 3)).encode() in [item[:2] for item in registry.log]
    registry.register("c", "c")
    delete_for_good(registry, "c")
    assert 4 == registry.replayed(compact=True).highest_id(".")


def test_ids_end_with_the_largest_number_of_the_wire_format(registry: Registry) -> None:
    registry.write(Record(HighestIdKey("."), HighestIdValue(".", 2**31 - 1)))
    assert (500, 50001) == refusal(lambda: registry.register("s", "a"))[:2]


def test_a_pinned_version_must_be_the_next_one_and_is_kept_in_the_metadata(registry: Registry) -> None:
    assert 42201 == refused_with(lambda: registry.register("s", "a", version=2))
    pinned = registry.register("s", "a", version=1)
    assert Metadata(properties={"confluent:version": "1"}) == pinned.metadata
    assert 2 == registry.register("s", "a", version=2).version
    # Without a version it is still the same schema.
    assert 2 == registry.register("s", "a").version
    latest = registry.register("s", "a", "b?", version=-1)
    assert (3, {"confluent:version": "3"}) == (latest.version, dict((latest.metadata or Metadata()).texts))


def test_a_schema_without_metadata_is_the_latest_version_with_any(registry: Registry) -> None:
    """Confluent's registry makes a version at each such registration once `confluent:version` is there."""
    answer = registry.register("s", "a", version=-1, metadata=Metadata(properties={"owner": "me"}))
    assert answer == registry.register("s", "a") == registry.register("s", "a")


# What is accepted


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (SchemaRequest(), 42201),
        (SchemaRequest(schema="  "), 42201),
        (SchemaRequest(schema="{"), 42201),
        (SchemaRequest(schema="{}", schema_type="THRIFT"), 42201),
        (SchemaRequest(schema=schema("a"), rule_set=RuleSet(domain_rules=[Rule(name="r")])), 42210),
        (SchemaRequest(schema=schema("a"), id=7), 42205),
        (SchemaRequest(schema=schema("a"), references=[Reference("r", "t", 1)]), 42201),
        (SchemaRequest(schema=schema("a"), references=[Reference("r", "t", -1)]), 42201),
    ],
)
def test_invalid_requests(registry: Registry, request_: SchemaRequest, code: int) -> None:
    assert (422, code) == refusal(lambda: registrations.register(registry.image, "s", request_))[:2]


@pytest.mark.parametrize("subject", ["a\nb", "__GLOBAL", "__EMPTY", ":.__GLOBAL:s", ":.x:__EMPTY", "\x7f", ":*:s"])
def test_reserved_subjects(registry: Registry, subject: str) -> None:
    assert 42208 == refused_with(lambda: registry.register(subject, "a"))


def test_an_empty_schema_means_the_text_of_the_version_before(registry: Registry) -> None:
    first = registry.register("s", "a")
    answer = registry.register("s", schema="", metadata=Metadata(properties={"owner": "me"}))
    assert (2, first.schema) == (answer.version, answer.schema)


def test_the_canonical_text_is_stored_and_the_normalized_one_on_request(registry: Registry) -> None:
    text = '{ "fields": {"b": "int", "a": "int"} }'
    assert '{"fields":{"b":"int","a":"int"}}' == registry.register("s", schema=text).schema
    assert '{"fields":{"a":"int","b":"int"}}' == registry.register("t", schema=text, normalize=True).schema
    set_config(registry, "u", normalize=True)
    assert '{"fields":{"a":"int","b":"int"}}' == registry.register("u", schema=text).schema
    assert '{\n "fields"' in registry.register("s", schema=text, format="pretty").schema
    assert 42201 == refused_with(lambda: registry.register("s", schema=text, format="braille"))


def test_a_normalized_text_is_another_schema_than_the_one_that_was_registered(registry: Registry) -> None:
    text = '{"fields":{"b":"int","a":"int"}}'
    registry.register("s", schema=text)
    assert (2, 2) == tuple(
        getattr(registry.register("s", schema=text, normalize=True), name) for name in ("id", "version")
    )
    set_config(registry, "t", normalize=False)
    registry.register("t", schema=text)
    set_config(registry, "t", normalize=True)
    assert 2 == registry.register("t", schema="").version


def test_normalizing_sorts_references(registry: Registry) -> None:
    registry.register("s", "a")
    registry.register("t", "a")
    references = [Reference("y", "t", 1), Reference("x", "s", 1), Reference("y", "t", 1)]
    answer = registry.register("u", "b", references=references, normalize=True)
    assert [Reference("x", "s", 1), Reference("y", "t", 1)] == answer.references


def test_incompatible_schemas_are_refused_unless_forced(registry: Registry) -> None:
    registry.register("s", "a")
    status, code, message = refusal(lambda: registry.register("s", "a", "b"))
    assert (409, 40901) == (status, code)
    assert 'subject "s"' in message
    assert "errorType:'MISSING'" in message
    assert "{oldSchemaVersion: 1}" in message
    assert "compatibility: 'BACKWARD'" in message
    assert 2 == registry.register("s", "a", "b", force=True).version
    set_config(registry, "s", compatibility="NONE")
    assert 3 == registry.register("s", "z").version


def test_deleted_versions_do_not_count_for_compatibility(registry: Registry) -> None:
    registry.register("s", "a")
    registry.commit(deletions.delete_subject(registry.image, "s"))
    assert 2 == registry.register("s", "b").version


# References


def test_references_are_resolved_in_the_context_of_the_schema(registry: Registry) -> None:
    registry.register("r", "a")
    registry.register(":.x:r", "b")
    registry.register(":.x:r", "b", "c?")
    answer = registry.register(":.x:s", schema=schema("z", use=["R"]), references=[Reference("R", "r", -1)])
    assert [Reference("R", "r", 2)] == answer.references
    referrers = registry.image.referrers(SchemaKey(":.x:r", 2))
    assert [":.x:s"] == [schema.subject for schema in referrers]
    answer = registry.register("s", schema=schema("z", use=["R"]), references=[Reference("R", ":.x:r", 1)])
    assert [Reference("R", ":.x:r", 1)] == answer.references


def test_references_of_references_are_resolved_too(registry: Registry) -> None:
    registry.register("a", "a")
    registry.register("b", schema=schema("b", use=["A"]), references=[Reference("A", "a", 1)])
    registry.register("c", schema=schema("c", use=["A", "B"]), references=[Reference("B", "b", 1)])


def test_new_schemas_cannot_refer_to_deleted_versions(registry: Registry) -> None:
    registry.register("r", "a")
    registry.register("s", "b", references=[Reference("R", "r", 1)])
    registry.commit(deletions.delete_subject(registry.image, "s"))
    registry.commit(deletions.delete_subject(registry.image, "r"))
    refusal_ = refusal(lambda: registry.register("t", "b", references=[Reference("R", "r", 1)]))
    assert (422, 42201) == refusal_[:2]
    assert '"r" and version 1' in refusal_[2]
    set_config(registry, "t", validate_new_schemas=False)
    assert 1 == registry.register("t", "b", references=[Reference("R", "r", 1)]).version


def test_an_empty_rule_set_is_none_and_empty_metadata_are_not(registry: Registry) -> None:
    plain = registry.register("s", "a")
    described = registry.register("t", "a", metadata=Metadata())
    ruled = registry.register("u", "a", rule_set=RuleSet())
    both = registry.register("v", "a", metadata=Metadata(), rule_set=RuleSet())
    assert (plain.id, plain.guid, None) == (ruled.id, ruled.guid, ruled.rule_set)
    assert (described.id, described.guid, None) == (both.id, both.guid, both.rule_set)
    assert plain.guid != described.guid
    request = SchemaRequest(schema=schema("a"), rule_set=RuleSet())
    assert [1, 1] == [lookups.look_up(registry.image, subject, request).version for subject in ("s", "u")]


def test_an_empty_rule_set_takes_over_no_rules(registry: Registry) -> None:
    rules = RuleSet(domain_rules=[Rule(name="r", type="CEL")])
    registry.register("s", "a", rule_set=rules)
    assert rules == registry.register("s", "a", "b?").rule_set
    assert registry.register("s", "a", "c?", rule_set=RuleSet()).rule_set is None


@pytest.mark.slow
def test_a_thousand_references_are_the_limit(registry: Registry) -> None:
    registry.register("r0", "a")
    for number in range(1, 1000):
        references = [Reference(f"R{number - 1}", f"r{number - 1}", 1)]
        registry.register(f"r{number}", "a", references=references)
    registry.register("all", "a", references=[Reference("R999", "r999", 1)])
    too_many = [Reference("R999", "r999", 1), Reference("again", "r0", 1)]
    assert "at most 1000" in refusal(lambda: registry.register("more", "a", references=too_many))[2]


def test_strongly_associated_subjects_cannot_be_referenced(registry: Registry) -> None:
    registry.register("r", "a")
    value = AssociationValue(guid="g", resource_id="1", subject="r", lifecycle="STRONG")
    registry.write(Record(AssociationKey("t", "c", "topic", "value", "r"), value))
    assert 42205 == refused_with(lambda: registry.register("s", "b", references=[Reference("R", "r", 1)]))


# Metadata, rules and tags


def test_metadata_and_rules_are_inherited_from_the_version_before(registry: Registry) -> None:
    rules = RuleSet(domain_rules=[Rule(name="r", type="CEL", mode="WRITE")])
    registry.register("s", "a", metadata=Metadata(properties={"owner": "me"}), rule_set=rules)
    answer = registry.register("s", "a", "b?")
    assert (Metadata(properties={"owner": "me"}), rules) == (answer.metadata, answer.rule_set)


def test_defaults_and_overrides_of_the_config(registry: Registry) -> None:
    set_config(
        registry,
        "s",
        default_metadata=Metadata(properties={"owner": "nobody", "team": "a"}),
        override_metadata=Metadata(properties={"team": "b"}),
        default_rule_set=RuleSet(domain_rules=[Rule(name="r", type="CEL"), Rule(name="q", type="CEL")]),
        override_rule_set=RuleSet(domain_rules=[Rule(name="r", type="JSONATA")]),
    )
    answer = registry.register("s", "a", metadata=Metadata(properties={"owner": "me"}))
    assert Metadata(properties={"owner": "me", "team": "b"}) == answer.metadata
    assert RuleSet(domain_rules=[Rule(name="q", type="CEL"), Rule(name="r", type="JSONATA")]) == answer.rule_set
    assert answer == registry.register("s", "a", metadata=Metadata(properties={"owner": "me"}))


def test_different_metadata_is_another_schema_with_another_id(registry: Registry) -> None:
    first = registry.register("s", "a")
    second = registry.register("s", "a", metadata=Metadata(properties={"owner": "me"}))
    assert (first.id + 1, 2) == (second.id, second.version)


def test_tags_are_added_removed_and_propagated(registry: Registry) -> None:
    field = SchemaEntity("a", "sr_field")
    registry.register("s", "a", schema_tags_to_add=[SchemaTags(field, ["PII", "GDPR"])])
    propagated = registry.register("s", "a", "b?", propagate_schema_tags=True)
    assert '"tags":{"a":["PII","GDPR"]}' in propagated.schema
    request = TagsRequest(tags_to_remove=[SchemaTags(field, ["PII"])], new_version=3)
    answer = registry.commit(registrations.modify_tags(registry.image, "s", "latest", request))
    assert (3, Metadata(properties={"confluent:version": "3"})) == (answer.version, answer.metadata)
    assert '"tags":{"a":["GDPR"]}' in answer.schema
    unknown = [SchemaTags(SchemaEntity("z", "sr_field"), ["PII"])]
    assert 42201 == refused_with(lambda: registry.register("s", "a", schema_tags_to_add=unknown))


def test_rules_are_merged_and_removed_with_tags(registry: Registry) -> None:
    registry.register("s", "a", rule_set=RuleSet(domain_rules=[Rule(name="q", type="CEL"), Rule(name="r", type="CEL")]))
    request = TagsRequest(
        new_version=2,
        rules_to_merge=RuleSet(domain_rules=[Rule(name="p", type="CEL")]),
        rules_to_remove=["q"],
    )
    answer = registry.commit(registrations.modify_tags(registry.image, "s", "1", request))
    assert RuleSet(domain_rules=[Rule(name="r", type="CEL"), Rule(name="p", type="CEL")]) == answer.rule_set
    both = TagsRequest(rule_set=RuleSet(), rules_to_remove=["q"])
    assert 42210 == refused_with(lambda: registrations.modify_tags(registry.image, "s", "1", both))
    assert 40402 == refused_with(lambda: registrations.modify_tags(registry.image, "s", "9", TagsRequest()))


# Modes


def test_imports_keep_ids_and_versions(registry: Registry) -> None:
    set_mode(registry, "s", "IMPORT")
    answer = registry.register("s", "a", id=40, version=7)
    assert (40, 7) == (answer.id, answer.version)
    # Nothing is checked for compatibility, and nothing is inherited.
    assert (41, 8) == tuple(getattr(registry.register("s", "z", id=41), name) for name in ("id", "version"))
    assert 42205 == refused_with(lambda: registry.register("s", "q"))
    assert 42201 == refused_with(lambda: registry.register("s", schema="", id=50))
    set_mode(registry, "s", "READWRITE")
    assert (42, 9) == tuple(getattr(registry.register("s", "z", "y?"), name) for name in ("id", "version"))


def test_an_import_does_not_give_an_id_another_meaning(registry: Registry) -> None:
    set_mode(registry, "s", "IMPORT")
    registry.register("s", "a", id=1)
    assert 42205 == refused_with(lambda: registry.register("s", "b", id=1))
    set_mode(registry, "t", "IMPORT")
    assert 1 == registry.register("t", "a", id=1).id
    # The same schema may have several ids.
    assert 2 == registry.register("t", "a", id=2).id
    assert registry.register("t", "a", id=1).version == 1


def test_an_import_that_overwrites_a_version_keeps_the_highest_id(registry: Registry) -> None:
    set_mode(registry, "s", "IMPORT")
    registry.register("s", "a", id=9, version=1)
    registry.register("s", "b", id=3, version=1)
    assert 9 == registry.replayed(compact=True).highest_id(".")


def test_modes_that_forbid_registrations(registry: Registry) -> None:
    existing = registry.register("s", "a")
    set_mode(registry, ":.__GLOBAL:", "READONLY")
    assert 42205 == refused_with(lambda: registry.register("s", "b"))
    assert existing == registry.register("s", "a")
    set_mode(registry, ":.__GLOBAL:", "FORWARD")
    assert 42205 == refused_with(lambda: registry.register("s", "b"))
    assert 33 == registry.register("s", "b", id=33).id


def test_aliases_stand_for_another_subject(registry: Registry) -> None:
    set_config(registry, "alias", alias="s")
    registry.register("alias", "a")
    assert ["s"] == list(registry.image.subjects_with_prefix(":*:"))
    set_config(registry, ":.x:alias", alias="s")
    registry.register(":.x:alias", "a")
    assert [":.x:s", "s"] == list(registry.image.subjects_with_prefix(":*:"))


def test_equal_texts_of_two_languages_are_two_schemas(registry: Registry) -> None:
    avro = registry.register("s", "a")
    json = registry.register("t", "a", schema_type="JSON")
    assert (avro.guid, "JSON", avro.id + 1) == (json.guid, json.schema_type, json.id)


def test_a_record_that_contradicts_an_id_is_refused(registry: Registry) -> None:
    registry.register("s", "a")
    record = Record(SchemaKey("t", 1), SchemaValue(subject="t", version=1, id=1, schema=schema("b")))
    refused = registry.image.apply(record, 5)
    assert refused is not None
    assert "id 1" in refused
    assert Record(SchemaKey("t", 1), None) == registry.image.record_of(SchemaKey("t", 1))
    assert registry.image.apply(Record(SchemaKey("s", 1), SchemaValue(id=1, schema=schema("b"))), 5) is not None
    restored = registry.image.record_of(SchemaKey("s", 1)).value
    assert isinstance(restored, SchemaValue)
    assert schema("a") == restored.schema
    assert registry.image.apply(Record(SchemaKey("t", 1), SchemaValue(schema=schema("b"))), 5) is not None
    registry.image.check()
