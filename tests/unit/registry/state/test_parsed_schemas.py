"""How often schemas are parsed, and how many stay in memory."""

from collections.abc import Mapping

from ottla.registry.schemas.parsed_schema import Language, ParsedSchema
from ottla.registry.state import lookups, registrations
from ottla.registry.state.parsed_schemas import ParsedSchemas
from ottla.registry.state.record_formats import Config, ConfigKey, Record, SchemaKey, SchemaValue
from ottla.registry.state.registry_image import RegistryImage
from ottla.registry.state.requests import SchemaRequest
from tests.unit.registry.state.tiny_language import parse, schema


class Counting:
    """A language that counts what is parsed."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.language = Language(self.parse, self.parse_new)

    def parse(self, text: str, references: Mapping[str, str]) -> ParsedSchema:
        self.texts.append(text)
        return parse(text, references)

    def parse_new(self, text: str, references: Mapping[str, str]) -> ParsedSchema:
        self.texts.append(text)
        return parse(text, references)


def subject_of(versions: int, text: str = "{}") -> tuple[RegistryImage, Counting]:
    """An image with one subject whose versions have never been parsed."""
    counting = Counting()
    image = RegistryImage({"AVRO": counting.language})
    for version in range(1, versions + 1):
        value = SchemaValue(id=version, schema=text.replace("}", " " * version + "}"))
        assert image.apply(Record(SchemaKey("s", version), value), 0) is None
    image.apply(Record(ConfigKey("s"), Config(compatibility_level="NONE")), 0)
    return image, counting


def test_a_new_schema_is_parsed_once() -> None:
    image, counting = subject_of(0)
    request = SchemaRequest(schema=schema("a"))
    for record in registrations.register(image, "s", request).records:
        image.apply(record, 0)
    lookups.look_up(image, "s", request)
    registrations.register(image, "t", request)
    assert [schema("a")] == counting.texts


def test_a_registration_parses_only_some_of_many_versions() -> None:
    image, counting = subject_of(2000, schema("a" * 1000))
    registrations.register(image, "s", SchemaRequest(schema=schema("b")))
    assert 1 < len(counting.texts) < 400


def test_a_text_that_differs_only_in_layout_is_found_among_the_newest() -> None:
    image, _ = subject_of(3, schema("a"))
    assert 3 == lookups.look_up(image, "s", SchemaRequest(schema=schema("a"))).version
    assert () == registrations.register(image, "s", SchemaRequest(schema=schema("a"))).records


def test_versions_that_cannot_be_parsed_do_not_stop_a_registration() -> None:
    image, _ = subject_of(3, "{nonsense}")
    assert 4 == registrations.register(image, "s", SchemaRequest(schema=schema("b"))).answer.version


def test_the_cache_is_bounded_and_forgets_the_oldest() -> None:
    counting = Counting()
    schemas = ParsedSchemas({"AVRO": counting.language})
    large = "x" * 1_000_000
    for number in range(100):
        schemas.parse("AVRO", schema(large, str(number)), {})
    counting.texts.clear()
    schemas.parse("AVRO", schema(large, "99"), {})
    assert [] == counting.texts
    schemas.parse("AVRO", schema(large, "0"), {})
    assert 1 == len(counting.texts)
    small = ParsedSchemas({"AVRO": counting.language})
    for number in range(20_000):
        small.parse("AVRO", schema(str(number)), {})
    assert len(small._parsed) < 10_000


def test_a_stricter_parse_serves_a_lenient_one_but_not_the_other_way_round() -> None:
    counting = Counting()
    schemas = ParsedSchemas({"AVRO": counting.language})
    schemas.parse("AVRO", schema("a"), {}, new=True)
    schemas.parse("AVRO", schema("a"), {})
    assert 1 == len(counting.texts)
    schemas.parse("AVRO", schema("b"), {})
    schemas.parse("AVRO", schema("b"), {}, new=True)
    assert 3 == len(counting.texts)
