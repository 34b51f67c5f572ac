"""Parses schemas, and remembers those parsed last and the results of comparisons."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final, TypeAlias

from ottla.registry.schemas.parsed_schema import InvalidSchemaError, Language, ParsedSchema
from ottla.registry.state.comparisons import Comparisons
from ottla.registry.state.errors import invalid_schema

_CHARACTERS_MAX: Final = 32 * 1024 * 1024
"""How much text the remembered schemas may have together. Parsed, they take some ten times the memory."""

_ENTRY_CHARACTERS_MIN: Final = 4096
"""What a small schema counts, so that their number is bounded too."""


_Key: TypeAlias = tuple[str, str, tuple[tuple[str, str], ...], bool]
"""Type, text, texts by reference name, and whether it was parsed as a new schema."""


class ParsedSchemas:
    """The languages of a registry and a bounded cache of parsed schemas.

    Several threads may parse at the same time: at worst a schema is parsed twice.
    """

    def __init__(self, languages: Mapping[str, Language]) -> None:
        self._languages = languages
        self._parsed: dict[_Key, ParsedSchema] = {}
        self._characters = 0
        self.comparisons = Comparisons()

    @property
    def types(self) -> Sequence[str]:
        """The languages: `AVRO`, `JSON` and so on."""
        return list(self._languages)

    def parse(self, type: str, text: str, references: Mapping[str, str], *, new: bool = False) -> ParsedSchema:
        """The schema of a text with the texts of its references, each after those that it uses itself.

        `new` schemas may have to follow stricter rules; one that does is the same schema under the lenient ones.
        Raises a `RegistryError` (42201) if it is invalid.
        """
        texts = tuple(references.items())
        strict = self._parsed.get((type, text, texts, True)) if not new else None
        if strict is not None:
            return strict
        key = (type, text, texts, new)
        parsed = self._parsed.pop(key, None)
        if parsed is None:
            parsed = self._parse(type, text, references, new=new)
            self._characters += _characters(key)
            self._make_room()
        self._parsed[key] = parsed
        return parsed

    def _parse(self, type: str, text: str, references: Mapping[str, str], *, new: bool) -> ParsedSchema:
        language = self._languages.get(type)
        if language is None:
            raise invalid_schema(f"Invalid schema type {type}; known types are {', '.join(self._languages)}")
        try:
            return language.parse_new(text, references) if new else language.parse(text, references)
        except InvalidSchemaError as error:
            raise invalid_schema(f"Invalid schema of type {type}, details: {error}") from error
        except RecursionError as error:
            raise invalid_schema(f"Invalid schema of type {type}, details: nested too deeply") from error

    def _make_room(self) -> None:
        with suppress(RuntimeError, StopIteration):  # another thread changes the cache too
            while self._characters > _CHARACTERS_MAX and self._parsed:
                oldest = next(iter(self._parsed))
                if self._parsed.pop(oldest, None) is not None:
                    self._characters -= _characters(oldest)


def _characters(key: _Key) -> int:
    return _ENTRY_CHARACTERS_MIN + len(key[1]) + sum(len(text) for _, text in key[2])
