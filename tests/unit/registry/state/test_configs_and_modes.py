"""Configs and modes of the top level, of contexts and of subjects."""

from functools import partial
from typing import Any

import pytest
from msgspec import UNSET

from ottla.registry.state import configs, deletions, lookups, modes
from ottla.registry.state.metadata import Metadata, Rule, RuleSet
from ottla.registry.state.options import RegistryOptions
from ottla.registry.state.record_formats import Config
from ottla.registry.state.registry_image import RegistryImage
from ottla.registry.state.requests import ConfigUpdate, ModeUpdate
from tests.unit.registry.state.refusals import refusal, refused_with
from tests.unit.registry.state.tiny_language import LANGUAGES, Registry


def put_config(registry: Registry, subject: str | None, **fields: Any) -> ConfigUpdate:
    answer = registry.commit(configs.update_config(registry.image, subject, ConfigUpdate(**fields)))
    assert isinstance(answer, ConfigUpdate)
    return answer


def put_mode(registry: Registry, subject: str | None, mode: str | None, **options: bool) -> ModeUpdate:
    answer = registry.commit(modes.update_mode(registry.image, subject, ModeUpdate(mode), **options))
    assert isinstance(answer, ModeUpdate)
    return answer


# Configs


def test_the_top_level_always_has_a_config(registry: Registry) -> None:
    default = Config(compatibility_level="BACKWARD")
    for subject in (None, "", ":.:", ":.__GLOBAL:"):
        assert default == configs.get_config(registry.image, subject)
    assert (404, 40408) == refusal(lambda: configs.get_config(registry.image, "s"))[:2]
    assert default == configs.get_config(registry.image, "s", default_to_global=True)
    image = RegistryImage(LANGUAGES, RegistryOptions(compatibility_level="FULL"))
    assert "FULL" == configs.get_config(image).compatibility_level


def test_an_update_answers_the_whole_config(registry: Registry) -> None:
    assert ConfigUpdate(compatibility="FULL") == put_config(registry, "s", compatibility="full")
    assert ConfigUpdate(compatibility="FULL", alias="t") == put_config(registry, "s", alias="t")
    assert ConfigUpdate(alias="t") == put_config(registry, "s", compatibility=None)
    assert Config(compatibility_level="BACKWARD", alias="t") == configs.get_config(registry.image, "s")


def test_scopes_of_a_config(registry: Registry) -> None:
    def level(subject: str) -> str | None:
        return configs.get_config(registry.image, subject, default_to_global=True).compatibility_level

    put_config(registry, ":.__GLOBAL:", compatibility="NONE")
    assert ("NONE", "NONE") == (level("s"), level(":.x:s"))
    put_config(registry, None, compatibility="FULL")
    assert ("FULL", "NONE") == (level("s"), level(":.x:s"))
    put_config(registry, ":.x:", compatibility="FORWARD")
    assert ("FULL", "FORWARD") == (level("s"), level(":.x:s"))
    put_config(registry, ":.x:s", compatibility="BACKWARD")
    assert ("BACKWARD", "FORWARD") == (level(":.x:s"), level(":.x:t"))


def test_subjects_take_over_what_they_do_not_say_from_the_top_level(registry: Registry) -> None:
    metadata = Metadata(properties={"a": "b"})
    put_config(registry, None, normalize=True, compatibility_group="major", default_metadata=metadata)
    put_config(registry, "s", compatibility="NONE")
    config = configs.get_config(registry.image, "s", default_to_global=True)
    assert Config(compatibility_level="NONE", normalize=True, compatibility_group="major") == config


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"compatibility": "sideways"}, 42203),
        ({"compatibility_policy": "LOGICAL"}, 42203),
        ({"default_rule_set": RuleSet(domain_rules=[Rule(name="a b", type="CEL")])}, 42210),
        ({"override_rule_set": RuleSet(migration_rules=[Rule(name="a", type="CEL", mode="READ")])}, 42210),
    ],
)
def test_invalid_configs(registry: Registry, fields: dict[str, Any], code: int) -> None:
    assert (422, code) == refusal(lambda: put_config(registry, "s", **fields))[:2]


def test_invalid_subjects(registry: Registry) -> None:
    assert 42208 == refused_with(lambda: put_config(registry, "__EMPTY", compatibility="NONE"))
    assert 42208 == refused_with(lambda: put_mode(registry, "a\x00", "READONLY"))


def test_a_deleted_config_is_answered(registry: Registry) -> None:
    assert 40401 == refused_with(lambda: configs.delete_config(registry.image, "s"))
    put_config(registry, "s", compatibility="NONE")
    deleted = registry.commit(configs.delete_config(registry.image, "s"))
    assert Config(compatibility_level="NONE") == deleted
    assert 40408 == refused_with(lambda: configs.get_config(registry.image, "s"))
    assert ((), Config(compatibility_level="BACKWARD")) == (
        configs.delete_config(registry.image).records,
        configs.delete_config(registry.image).answer,
    )


def test_configs_of_read_only_subjects_stay(registry: Registry) -> None:
    put_config(registry, "s", compatibility="NONE")
    put_mode(registry, "s", "READONLY")
    assert 42205 == refused_with(lambda: put_config(registry, "s", compatibility="FULL"))
    assert 42205 == refused_with(lambda: configs.delete_config(registry.image, "s"))


# Modes


def test_scopes_of_a_mode(registry: Registry) -> None:
    def mode(subject: str | None) -> str | None:
        return modes.get_mode(registry.image, subject, default_to_global=True).mode

    assert ("READWRITE", "READWRITE") == (mode(None), mode(":.x:s"))
    assert (404, 40409) == refusal(lambda: modes.get_mode(registry.image, "s"))[:2]
    put_mode(registry, ":.__GLOBAL:", "READONLY")
    assert ("READONLY", "READONLY") == (mode("s"), mode(":.x:s"))
    put_mode(registry, None, "READWRITE")
    assert ("READWRITE", "READONLY") == (mode("s"), mode(":.x:s"))
    put_mode(registry, ":.x:", "IMPORT")
    assert ("READWRITE", "IMPORT") == (mode("s"), mode(":.x:s"))


def test_the_answer_is_the_mode_as_it_was_sent(registry: Registry) -> None:
    assert ModeUpdate("readonly") == put_mode(registry, "s", "readonly")
    assert "READONLY" == modes.get_mode(registry.image, "s").mode
    assert ModeUpdate(None) == put_mode(registry, "s", None)
    assert 40409 == refused_with(lambda: modes.get_mode(registry.image, "s"))


@pytest.mark.parametrize("mode", ["SIDEWAYS", "", UNSET])
def test_invalid_modes(registry: Registry, mode: Any) -> None:
    assert (422, 42204) == refusal(lambda: modes.update_mode(registry.image, "s", ModeUpdate(mode)))[:2]


def test_forward_is_a_mode_of_the_whole_registry(registry: Registry) -> None:
    for scope in (None, "s", ":.x:"):
        refused = refusal(partial(put_mode, registry, scope, "forward"))
        assert (422, 42204) == refused[:2]
    put_mode(registry, ":.__GLOBAL:", "FORWARD")


def test_an_import_needs_empty_subjects(registry: Registry) -> None:
    registry.register("s", "a")
    for scope in ("s", None, ":.__GLOBAL:"):
        refused = refusal(partial(put_mode, registry, scope, "IMPORT"))
        assert (422, 42205) == refused[:2]
    put_mode(registry, "t", "IMPORT")
    put_mode(registry, ":.x:", "IMPORT")
    put_mode(registry, "s", "IMPORT", force=True)
    # Nothing is cleared by an import that is under way.
    put_mode(registry, "s", "IMPORT")
    assert 1 == len(registry.image.versions("s"))


def test_an_import_clears_what_was_deleted_softly(registry: Registry) -> None:
    registry.register("s", "a")
    registry.register(":.x:s", "a")
    registry.commit(deletions.delete_subject(registry.image, "s"))
    registry.commit(deletions.delete_subject(registry.image, ":.x:s"))
    put_mode(registry, "s", "IMPORT")
    assert [":.x:s"] == lookups.list_subjects(registry.image, deleted=True)
    put_mode(registry, None, "IMPORT")
    assert [] == lookups.list_subjects(registry.image, deleted=True)
    image = registry.replayed(compact=True)
    assert ([], 1, 1) == (lookups.list_subjects(image, deleted=True), image.highest_id("."), image.highest_id(".x"))


def test_modes_are_deleted_one_by_one_or_with_a_context(registry: Registry) -> None:
    assert 40401 == refused_with(lambda: modes.delete_mode(registry.image, "s"))
    for scope in ("s", "t", ":.x:s", ":.x:", ":.y:s"):
        put_mode(registry, scope, "READONLY")
    assert "READONLY" == registry.commit(modes.delete_mode(registry.image, "s")).mode
    assert {"t", ":.x:s", ":.x:", ":.y:s"} == set(registry.image.modes)
    registry.commit(modes.delete_mode(registry.image, ":.x:", recursive=True))
    assert {"t", ":.y:s"} == set(registry.image.modes)
    assert "READWRITE" == registry.commit(modes.delete_mode(registry.image, recursive=True)).mode
    assert {":.y:s"} == set(registry.image.modes)
    assert registry.commit(modes.delete_mode(registry.image, ":.z:", recursive=True)).mode is None


def test_modes_may_be_fixed(registry: Registry) -> None:
    image = RegistryImage(LANGUAGES, RegistryOptions(mode_mutability=False))
    assert 42205 == refused_with(lambda: modes.update_mode(image, "s", ModeUpdate("READONLY")))
    assert 42205 == refused_with(lambda: modes.delete_mode(image))
