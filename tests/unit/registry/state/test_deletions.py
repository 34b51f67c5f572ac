"""DELETE of subjects, versions and contexts."""

from functools import partial

import pytest

from ottla.registry.schemas.schema import Reference
from ottla.registry.state import configs, deletions, lookups, modes
from ottla.registry.state.record_formats import AssociationKey, AssociationValue, Record
from ottla.registry.state.requests import ConfigUpdate, ModeUpdate
from tests.unit.registry.state.refusals import refusal, refused_with
from tests.unit.registry.state.tiny_language import Registry


def delete_subject(registry: Registry, subject: str, *, permanent: bool = False) -> list[int]:
    versions: list[int] = registry.commit(deletions.delete_subject(registry.image, subject, permanent=permanent))
    return versions


def delete_version(registry: Registry, subject: str, version: str, *, permanent: bool = False) -> int:
    deleted: int = registry.commit(deletions.delete_version(registry.image, subject, version, permanent=permanent))
    return deleted


def test_a_subject_is_deleted_softly_then_permanently(registry: Registry) -> None:
    registry.register("s", "a")
    registry.register("s", "a", "b?")
    assert (404, 40405) == refusal(lambda: delete_subject(registry, "s", permanent=True))[:2]
    assert [1, 2] == delete_subject(registry, "s")
    assert (404, 40404) == refusal(lambda: delete_subject(registry, "s"))[:2]
    assert [] == lookups.list_subjects(registry.image)
    assert 1 == lookups.get_schema(registry.image, 1).version
    assert [1, 2] == delete_subject(registry, "s", permanent=True)
    assert (404, 40401) == refusal(lambda: delete_subject(registry, "s"))[:2]
    assert 40403 == refused_with(lambda: lookups.get_schema(registry.image, 1))


def test_a_version_is_deleted_softly_then_permanently(registry: Registry) -> None:
    registry.register("s", "a")
    registry.register("s", "a", "b?")
    assert (404, 40407) == refusal(lambda: delete_version(registry, "s", "1", permanent=True))[:2]
    assert 2 == delete_version(registry, "s", "latest")
    assert (404, 40406) == refusal(lambda: delete_version(registry, "s", "2"))[:2]
    assert 1 == delete_version(registry, "s", "latest")
    assert (404, 40402) == refusal(lambda: delete_version(registry, "s", "latest"))[:2]
    assert 2 == delete_version(registry, "s", "2", permanent=True)
    assert (404, 40402) == refusal(lambda: delete_version(registry, "s", "2"))[:2]
    assert 1 == delete_version(registry, "s", "1", permanent=True)
    assert (404, 40401) == refusal(lambda: delete_version(registry, "s", "1"))[:2]


@pytest.mark.parametrize("version", ["0", "-2", "one", "", "2147483648", "1_0", "١"])
def test_versions_that_are_none(registry: Registry, version: str) -> None:
    assert (422, 42202) == refusal(lambda: delete_version(registry, "s", version))[:2]


def test_only_versions_that_were_not_deleted_are_named(registry: Registry) -> None:
    registry.register("s", "a")
    registry.register("s", "a", "b?")
    registry.register("s", "a", "c?")
    delete_version(registry, "s", "2")
    assert [1, 3] == delete_subject(registry, "s")
    assert [1, 2, 3] == delete_subject(registry, "s", permanent=True)


def test_a_later_deletion_covers_earlier_ones_after_compaction(registry: Registry) -> None:
    """An import brings back version 1 of a deleted subject; deleting it again must not revive version 2."""
    registry.register("s", "a")
    registry.register("s", "a", "b?")
    delete_subject(registry, "s")
    registry.commit(modes.update_mode(registry.image, "s", ModeUpdate("IMPORT"), force=True))
    registry.register("s", "a", id=1, version=1)
    registry.commit(modes.update_mode(registry.image, "s", ModeUpdate("READWRITE")))
    assert [1] == delete_subject(registry, "s")
    assert registry.replayed(compact=True).is_deleted("s")


def test_referenced_versions_stay(registry: Registry) -> None:
    registry.register("r", "a")
    registry.register("s", "b", references=[Reference("R", "r", 1)])
    status, code, message = refusal(lambda: delete_version(registry, "r", "1"))
    assert (422, 42206) == (status, code)
    assert "{magic=1,keytype=SCHEMA,subject=r,version=1}" in message
    assert 42206 == refused_with(lambda: delete_subject(registry, "r"))
    # A soft-deleted referrer permits a soft deletion, but not a permanent one.
    delete_subject(registry, "s")
    assert [1] == delete_subject(registry, "r")
    assert 42206 == refused_with(lambda: delete_subject(registry, "r", permanent=True))
    assert 42206 == refused_with(lambda: delete_version(registry, "r", "1", permanent=True))
    registry.image = registry.replayed(compact=True)
    assert 42206 == refused_with(lambda: delete_subject(registry, "r", permanent=True))
    delete_subject(registry, "s", permanent=True)
    assert [1] == delete_subject(registry, "r", permanent=True)


def test_a_reference_of_one_of_two_equal_schemas_still_counts(registry: Registry) -> None:
    registry.register("r", "a")
    for subject in ("s", "t"):
        registry.register(subject, "b", references=[Reference("R", "r", 1)])
    delete_subject(registry, "s")
    delete_subject(registry, "s", permanent=True)
    assert 42206 == refused_with(lambda: delete_version(registry, "r", "1"))


def test_a_subject_may_refer_to_itself(registry: Registry) -> None:
    registry.register("s", "a")
    registry.register("s", "a", "b?", references=[Reference("S", "s", 1)])
    assert [1, 2] == delete_subject(registry, "s")
    assert [1, 2] == delete_subject(registry, "s", permanent=True)


def test_config_and_mode_go_with_the_last_version(registry: Registry) -> None:
    registry.register("s", "a")
    registry.commit(configs.update_config(registry.image, "s", ConfigUpdate(compatibility="NONE")))
    registry.commit(modes.update_mode(registry.image, "s", ModeUpdate("READWRITE")))
    delete_subject(registry, "s")
    assert {"s"} == set(registry.image.configs) == set(registry.image.modes)
    delete_version(registry, "s", "1", permanent=True)
    assert not registry.image.configs
    assert not registry.image.modes


def test_read_only_subjects_stay(registry: Registry) -> None:
    registry.register("s", "a")
    registry.commit(modes.update_mode(registry.image, None, ModeUpdate("READONLY")))
    assert 42205 == refused_with(lambda: delete_subject(registry, "s"))
    assert 42205 == refused_with(lambda: delete_version(registry, "s", "1"))


def test_associated_subjects_stay(registry: Registry) -> None:
    registry.register("s", "a")
    registry.register("s", "a", "b?")
    value = AssociationValue(guid="g", resource_id="1", subject="s", lifecycle="WEAK")
    registry.write(Record(AssociationKey("t", "c", "topic", "value", "s"), value))
    assert (409, 40904) == refusal(lambda: delete_subject(registry, "s"))[:2]
    assert 1 == delete_version(registry, "s", "1")
    assert (409, 40907) == refusal(lambda: delete_version(registry, "s", "2"))[:2]


def test_contexts_are_deleted_when_they_are_empty(registry: Registry) -> None:
    registry.register(":.x:s", "a")
    delete_subject(registry, ":.x:s")
    for spelling in (".x", ":.x:", "x"):
        refused = refusal(partial(deletions.delete_context, registry.image, spelling))
        assert (422, 42211) == refused[:2]
    delete_subject(registry, ":.x:s", permanent=True)
    assert [".", ".x"] == lookups.list_contexts(registry.image)
    registry.commit(deletions.delete_context(registry.image, ".x"))
    assert ["."] == lookups.list_contexts(registry.image)
    assert 2 == registry.register(":.x:s", "a").id
    assert () == deletions.delete_context(registry.image, ".").records
    assert 400 == refusal(lambda: deletions.delete_context(registry.image, "a:b"))[0]
