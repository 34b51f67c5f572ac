"""Associations of topics with subjects."""

from itertools import count
from typing import Any

import msgspec
import pytest

from ottla.registry.schemas.schema import Reference
from ottla.registry.state import associations, deletions, modes
from ottla.registry.state.answers import AssociationsAnswer
from ottla.registry.state.requests import AssociationInfo, AssociationRequest, ModeUpdate, SchemaRequest
from tests.unit.registry.state.refusals import refusal, refused_with
from tests.unit.registry.state.tiny_language import Registry, schema

VALUE = ":.c1:orders-value"
KEY = ":.c1:orders-key"


def request(*infos: AssociationInfo, **fields: Any) -> AssociationRequest:
    names = {"resource_name": "orders", "resource_namespace": "c1", "resource_id": "1", **fields}
    return AssociationRequest(associations=list(infos), **names)


class Topics:
    """Creates and changes associations of the topic "orders"."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self.image = registry.image
        self.numbers = count()

    def create(self, *infos: AssociationInfo, dry_run: bool = False, **fields: Any) -> AssociationsAnswer:
        decision = associations.create_associations(
            self.image, request(*infos, **fields), dry_run=dry_run, new_guid=lambda: f"guid-{next(self.numbers)}"
        )
        self.registry.commit(decision)
        return decision.answer

    def update(self, *infos: AssociationInfo, context: str = "", **fields: Any) -> AssociationsAnswer:
        decision = associations.update_associations(
            self.image,
            "1",
            request(*infos, **fields),
            context=context,
            new_guid=lambda: f"guid-{next(self.numbers)}",
        )
        self.registry.commit(decision)
        return decision.answer

    def delete(self, **options: Any) -> None:
        self.registry.commit(associations.delete_associations(self.image, "1", **options))

    def subjects(self) -> list[str]:
        return [item.subject for item in associations.associations_of_name(self.image, "-", "orders")]


@pytest.fixture
def topics(registry: Registry) -> Topics:
    """A registry with the subjects s and t."""
    registry.register("s", "a")
    registry.register("t", "a")
    return Topics(registry)


def strong(*fields: str, type: str = "value", **more: Any) -> AssociationInfo:
    return AssociationInfo(association_type=type, schema=SchemaRequest(schema=schema(*fields), **more))


def test_a_weak_association_names_the_subject_of_a_topic(topics: Topics) -> None:
    answer = topics.create(AssociationInfo(subject="s"))
    assert (
        b'{"resourceName":"orders","resourceNamespace":"c1","resourceId":"1","resourceType":"topic",'
        b'"associations":[{"subject":"s","associationType":"value","lifecycle":"WEAK"}]}'
    ) == msgspec.json.encode(answer)
    found = associations.associations_of_name(topics.image, "-", "orders")
    assert (
        b'[{"subject":"s","guid":"guid-0","resourceName":"orders","resourceNamespace":"c1","resourceId":"1",'
        b'"resourceType":"topic","associationType":"value","lifecycle":"WEAK","createTs":1002,"updateTs":1002}]'
    ) == msgspec.json.encode(found)
    image = topics.image
    assert found == associations.associations_of_subject(image, "s")
    assert found == associations.associations_of_resource(image, "1", association_types=["value"], lifecycle="WEAK")
    assert found == associations.associations_of_name(image, "c1", "-")
    for nothing in (
        associations.associations_of_name(image, "c2", "orders"),
        associations.associations_of_name(image, "-", "payments"),
        associations.associations_of_subject(image, "s", lifecycle="STRONG"),
        associations.associations_of_resource(image, "1", association_types=["key"]),
        associations.associations_of_resource(image, "1", offset=1),
    ):
        assert [] == nothing


def test_a_strong_association_registers_the_schemas_of_key_and_value_at_once(topics: Topics) -> None:
    answer = topics.create(strong("k", type="key"), strong("v"))
    assert [(KEY, 1), (VALUE, 2)] == [
        (item.subject, item.schema.id if item.schema else None) for item in answer.associations or ()
    ]
    assert [".c1"] == topics.image.contexts
    assert [KEY, VALUE] == topics.subjects()
    topics.image.check()
    # The same again changes nothing; another schema is refused.
    assert topics.create(strong("k", type="key"), strong("v")).associations is None
    assert (409, 40903) == refusal(lambda: topics.create(strong("w")))[:2]


def test_equal_schemas_of_key_and_value_share_an_id(topics: Topics) -> None:
    answer = topics.create(strong("k", type="key"), strong("k"))
    assert [1, 1] == [item.schema.id for item in answer.associations or () if item.schema]


def test_a_dry_run_checks_and_writes_nothing(topics: Topics) -> None:
    records = len(topics.registry.log)
    assert topics.create(strong("v"), dry_run=True, resource_id=None).associations is None
    assert records == len(topics.registry.log)
    assert 42212 == refused_with(lambda: topics.create(AssociationInfo(lifecycle="STRONG"), dry_run=True))


@pytest.mark.parametrize(
    ("infos", "fields", "word"),
    [
        ([], {}, "associations"),
        ([AssociationInfo(subject="s")], {"resource_id": None}, "resourceId"),
        ([AssociationInfo(subject="s")], {"resource_name": ""}, "resourceName"),
        ([AssociationInfo(subject="s")], {"resource_name": "a b"}, "resourceName"),
        ([AssociationInfo(subject="s")], {"resource_namespace": "n" * 257}, "resourceNamespace"),
        ([AssociationInfo(subject="s")], {"resource_type": "table"}, "resourceType"),
        ([AssociationInfo(subject="s"), AssociationInfo(subject="t")], {}, "associationType"),
        ([AssociationInfo(subject="s", association_type="both")], {}, "associationType"),
        ([AssociationInfo()], {}, "subject"),
        ([AssociationInfo(subject="")], {}, "subject"),
        ([AssociationInfo(subject=VALUE)], {}, "subject"),
        ([AssociationInfo(subject="s", lifecycle="WEAK", frozen=True)], {}, "frozen"),
        ([AssociationInfo(lifecycle="STRONG")], {}, "schema"),
        ([AssociationInfo(subject="s", lifecycle="STRONG")], {}, "subject"),
        ([AssociationInfo(lifecycle="WEAK", schema=SchemaRequest(schema=schema("a")))], {}, "lifecycle"),
        ([AssociationInfo(frozen=False, schema=SchemaRequest(schema=schema("a")))], {}, "frozen"),
        ([AssociationInfo(subject="s", association_type="key"), strong("a")], {}, "lifecycle"),
    ],
)
def test_invalid_requests(topics: Topics, infos: list[AssociationInfo], fields: dict[str, Any], word: str) -> None:
    status, code, message = refusal(lambda: topics.create(*infos, **fields))
    assert (422, 42212) == (status, code)
    assert f"'{word}'" in message


def test_subjects_must_have_a_version(topics: Topics) -> None:
    assert (409, 40907) == refusal(lambda: topics.create(AssociationInfo(subject="unknown")))[:2]


def test_schemas_must_be_compatible_and_valid(topics: Topics) -> None:
    topics.registry.register(VALUE, "a")
    topics.registry.register(VALUE, "a", "b?")
    assert 42212 == refused_with(lambda: topics.create(strong("a")))
    invalid = AssociationInfo(association_type="key", schema=SchemaRequest(schema="{"))
    assert (422, 42201) == refusal(lambda: topics.create(invalid))[:2]


def test_strong_subjects_belong_to_one_topic(topics: Topics) -> None:
    topics.create(strong("v"))
    update = AssociationInfo(subject=VALUE)
    other = request(update, resource_name="payments", resource_id="2")
    assert (409, 40905) == refusal(
        lambda: associations.update_associations(topics.image, "2", other, new_guid=lambda: "g")
    )[:2]
    referring = SchemaRequest(schema=schema("z"), references=[Reference("V", VALUE, 1)])
    assert 42205 == refused_with(
        lambda: topics.registry.register("u", schema=referring.schema, references=referring.references)
    )
    assert (409, 40904) == refusal(lambda: deletions.delete_subject(topics.image, VALUE))[:2]


def test_referenced_subjects_do_not_become_strong(topics: Topics) -> None:
    topics.registry.register(VALUE, "a")
    topics.registry.register("u", "z", references=[Reference("V", VALUE, 1)])
    assert (422, 42206) == refusal(lambda: topics.create(strong("a")))[:2]
    referring = strong("k", type="key", references=[Reference("V", ":.c9:pay-value", 1)])
    assert 42206 == refused_with(
        lambda: topics.create(referring, strong("v"), resource_name="pay", resource_namespace="c9")
    )


def test_weak_associations_are_added_to_existing_topics(topics: Topics) -> None:
    topics.update(AssociationInfo(subject="s"))
    topics.update(AssociationInfo(subject="t", association_type="key"))
    assert ["t", "s"] == topics.subjects()
    assert topics.update(AssociationInfo(subject="s")).associations is None
    assert 42212 == refused_with(lambda: topics.update(AssociationInfo(subject="t")))
    assert 42212 == refused_with(lambda: topics.update(AssociationInfo(lifecycle="STRONG", association_type="value")))
    assert 42212 == refused_with(lambda: topics.update(strong("a")))
    mismatch = request(AssociationInfo(subject="s"), resource_id="2")
    assert 42212 == refused_with(
        lambda: associations.update_associations(topics.image, "1", mismatch, new_guid=lambda: "g")
    )


def test_strong_associations_come_with_the_topic_or_by_import(topics: Topics) -> None:
    info = AssociationInfo(lifecycle="STRONG")
    assert 42212 == refused_with(lambda: topics.update(info))
    topics.registry.commit(modes.update_mode(topics.image, VALUE, ModeUpdate("IMPORT")))
    topics.registry.register(VALUE, "a", id=5)
    topics.update(info)
    assert [VALUE] == topics.subjects()
    with_schema = strong("a")
    assert 42212 == refused_with(lambda: topics.create(with_schema, resource_id="2"))


def test_the_context_of_the_request_counts_for_subjects_without_one(topics: Topics) -> None:
    topics.registry.register(":.x:s", "a")
    topics.update(AssociationInfo(subject="s"), context=":.x:")
    assert [":.x:s"] == topics.subjects()


def test_read_only_subjects_stay(topics: Topics) -> None:
    topics.update(AssociationInfo(subject="s"))
    topics.registry.commit(modes.update_mode(topics.image, None, ModeUpdate("READONLY")))
    assert 42205 == refused_with(topics.delete)
    assert 42205 == refused_with(lambda: topics.update(AssociationInfo(subject="t", association_type="key")))


def test_associations_are_deleted(topics: Topics) -> None:
    assert (404, 40410) == refusal(topics.delete)[:2]
    topics.update(AssociationInfo(subject="s"), AssociationInfo(subject="t", association_type="key"))
    topics.delete(dry_run=True)
    topics.delete(association_types=["key"])
    assert ["s"] == topics.subjects()
    topics.delete(cascade=True)
    assert [] == topics.subjects()
    assert topics.image.latest("s") is not None


def test_strong_associations_go_with_their_subjects(topics: Topics) -> None:
    topics.create(strong("k", type="key"), strong("v"))
    assert (409, 40908) == refusal(topics.delete)[:2]
    topics.delete(cascade=True)
    assert [] == topics.subjects()
    assert not topics.image.has_subjects(":.c1:", deleted=True)
    image = topics.registry.replayed(compact=True)
    assert (2, []) == (image.highest_id(".c1"), list(image.associations))


def test_a_topic_that_was_recreated_takes_the_association_over(topics: Topics) -> None:
    topics.create(AssociationInfo(subject="s"), resource_id="2")
    topics.create(AssociationInfo(subject="s"))
    assert [] == associations.associations_of_resource(topics.image, "2")
    (found,) = associations.associations_of_resource(topics.image, "1")
    assert found.create_ts == found.update_ts
    (replayed,) = associations.associations_of_resource(topics.registry.replayed(compact=True), "1")
    assert found == replayed


def test_replay_after_compaction_gives_the_same_associations(topics: Topics) -> None:
    topics.create(strong("v"))
    topics.delete(cascade=True)
    topics.update(AssociationInfo(subject="s"))
    image = topics.registry.replayed(compact=True)
    assert associations.associations_of_name(topics.image, "-", "-") == associations.associations_of_name(
        image, "-", "-"
    )
