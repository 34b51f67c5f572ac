"""POST /compatibility/subjects/{subject}/versions and …/{version}."""

from functools import partial

import pytest

from ottla.registry.state import configs
from ottla.registry.state.answers import CompatibilityAnswer
from ottla.registry.state.compatibility_checks import check_against_subject, check_against_version
from ottla.registry.state.metadata import Metadata
from ottla.registry.state.record_formats import Record, SchemaKey, SchemaValue
from ottla.registry.state.requests import ConfigUpdate, SchemaRequest
from tests.unit.registry.state.refusals import refusal, refused_with
from tests.unit.registry.state.tiny_language import Registry, schema


def request(*fields: str, **more: object) -> SchemaRequest:
    return SchemaRequest(schema=schema(*fields), **more)  # type: ignore[arg-type]


def configure(registry: Registry, **fields: object) -> None:
    registry.commit(configs.update_config(registry.image, "s", ConfigUpdate(**fields)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("level", "fields", "compatible"),
    [
        # Version 1 has a and b, version 2 has a alone.
        ("NONE", "z", True),
        ("BACKWARD", ("a",), True),
        ("BACKWARD", ("a", "b"), False),
        ("BACKWARD_TRANSITIVE", ("a", "b?"), True),
        ("BACKWARD_TRANSITIVE", ("a", "c"), False),
        ("FORWARD", ("a", "c"), True),
        ("FORWARD", ("c",), False),
        ("FORWARD_TRANSITIVE", ("a", "c"), False),
        ("FORWARD_TRANSITIVE", ("a", "b", "c"), True),
        ("FULL", ("a", "c?"), True),
        ("FULL", ("a", "c"), False),
        ("FULL_TRANSITIVE", ("a", "c?"), False),
        ("FULL_TRANSITIVE", ("a", "b", "c?"), False),
    ],
)
def test_levels(registry: Registry, level: str, fields: tuple[str, ...], compatible: bool) -> None:
    registry.register("s", "a", "b")
    registry.register("s", "a")
    configure(registry, compatibility=level)
    answer = check_against_subject(registry.image, "s", request(*fields), verbose=True)
    assert compatible is answer.is_compatible
    assert compatible is (answer.messages == [])


def test_messages_say_what_breaks_and_where(registry: Registry) -> None:
    registry.register("s", "a")
    configure(registry, compatibility="FULL")
    answer = check_against_subject(registry.image, "s", request("b"), verbose=True)
    assert answer.messages == [
        "{errorType:'MISSING', description:'field a has no default', path:'/a', reader:'old schema',"
        " writer:'new schema'}",
        "{errorType:'MISSING', description:'field b has no default', path:'/b', reader:'new schema',"
        " writer:'old schema'}",
        "{oldSchemaVersion: 1}",
        "{oldSchema: '" + schema("a") + "'}",
        "{validateFields: 'false', compatibility: 'FULL'}",
    ]
    assert CompatibilityAnswer(False) == check_against_subject(registry.image, "s", request("b"))


def test_one_version(registry: Registry) -> None:
    registry.register("s", "a", "b")
    registry.register("s", "a")
    assert not check_against_version(registry.image, "s", "latest", request("a", "b")).is_compatible
    assert check_against_version(registry.image, "s", "1", request("a", "b")).is_compatible
    assert check_against_version(registry.image, "unknown", "latest", request("a")).is_compatible
    assert (404, 40402) == refusal(lambda: check_against_version(registry.image, "s", "3", request("a")))[:2]
    assert (422, 42202) == refusal(lambda: check_against_version(registry.image, "s", "0", request("a")))[:2]


def test_invalid_schemas_are_an_error_or_a_message(registry: Registry) -> None:
    for invalid in (SchemaRequest(schema="{"), SchemaRequest()):
        refused = refused_with(partial(check_against_subject, registry.image, "s", invalid))
        assert 42201 == refused
        answer = check_against_subject(registry.image, "s", invalid, verbose=True)
        assert (False, 1) == (answer.is_compatible, len(answer.messages or ()))


def test_other_languages_are_incompatible(registry: Registry) -> None:
    registry.register("s", "a")
    answer = check_against_subject(registry.image, "s", request("a", schema_type="JSON"), verbose=True)
    assert "different schema type" in (answer.messages or [""])[0]


def test_groups_are_checked_apart(registry: Registry) -> None:
    configure(registry, compatibility_group="major")
    registry.register("s", "a", metadata=Metadata(properties={"major": "1"}))
    registry.register("s", "z", metadata=Metadata(properties={"major": "2"}))
    one = request("a", "b", metadata=Metadata(properties={"major": "1"}))
    three = request("q", metadata=Metadata(properties={"major": "3"}))
    assert not check_against_subject(registry.image, "s", one).is_compatible
    assert check_against_subject(registry.image, "s", three).is_compatible


def test_the_lenient_policy(registry: Registry) -> None:
    registry.register("s", "a")
    other_type = SchemaRequest(schema=schema("a", type="string"))
    assert not check_against_subject(registry.image, "s", other_type).is_compatible
    configure(registry, compatibility_policy="lenient")
    assert check_against_subject(registry.image, "s", other_type).is_compatible


def test_reserved_fields(registry: Registry) -> None:
    configure(registry, validate_fields=True)
    registry.register("s", "a", metadata=Metadata(properties={"confluent:reserved": "x, y"}))
    removed = request("a", metadata=Metadata(properties={"confluent:reserved": "x"}))
    used = request("a", "x", metadata=Metadata(properties={"confluent:reserved": "x,y"}))
    kept = request("a", "z?", metadata=Metadata(properties={"confluent:reserved": "y,x"}))
    messages = check_against_subject(registry.image, "s", removed, verbose=True).messages or []
    assert any("reserved field y" in message for message in messages)
    messages = check_against_subject(registry.image, "s", used, verbose=True).messages or []
    assert any("conflicts with the reserved field x" in message for message in messages)
    assert check_against_subject(registry.image, "s", kept).is_compatible
    assert 40901 == refused_with(lambda: registry.register("s", "a", metadata=removed.metadata, schema_type=None))


def test_old_schemas_in_messages_are_shortened(registry: Registry) -> None:
    registry.register("s", "a" * 20_000)
    answer = check_against_subject(registry.image, "s", request("b"), verbose=True)
    assert max(len(message) for message in answer.messages or ()) < 11_000


def test_an_old_version_that_cannot_be_parsed_is_named(registry: Registry) -> None:
    registry.write(Record(SchemaKey("s", 1), SchemaValue(id=1, schema="nonsense")))
    assert "Version 1 of subject 's'" in refusal(lambda: check_against_subject(registry.image, "s", request("b")))[2]
