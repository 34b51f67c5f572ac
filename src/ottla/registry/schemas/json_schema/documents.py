"""Documents: where the schema that a `$ref` names is found.

A reference names a schema by an `$id`, by an anchor, by a JSON pointer, or by the name of a reference that was
registered with the schema. Nothing is fetched from a network: a schema in another document must be registered.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final
from urllib.parse import unquote

from ottla.registry.schemas.json_schema.drafts import Draft, draft_of
from ottla.registry.schemas.json_schema.json_text import read_json
from ottla.registry.schemas.json_schema.uris import fragment_of, resolve_uri, without_fragment
from ottla.registry.schemas.parsed_schema import InvalidSchemaError

_DATA_KEYWORDS: Final = frozenset({"enum", "const"})
"""Their values are data: an `$id` inside means nothing."""
_INDEX: Final = re.compile(r"[0-9]{1,9}")
_MISSING: Final = object()


@dataclass(frozen=True, slots=True)
class Place:
    """A value in a document, with the URI that its relative references start from."""

    value: Any
    uri: str
    document: "Document"


class Document:
    """A JSON text with its URI; "" if it has none."""

    def __init__(self, value: Any, *, uri: str, draft: Draft) -> None:
        self.value: Final = value
        self.draft: Final = draft
        self.uri: Final = self.uri_inside(value, uri)

    @property
    def root(self) -> Place:
        """The whole document."""
        return Place(self.value, self.uri, self)

    @cached_property
    def definitions(self) -> Any:
        """What `#/$defs` names: `$defs`, and `definitions` for the names that `$defs` lacks."""
        if not isinstance(self.value, dict):
            return _MISSING
        classic, modern = self.value.get("definitions"), self.value.get("$defs", {})
        if isinstance(classic, dict) and isinstance(modern, dict):
            return classic | modern
        return self.value.get("$defs", _MISSING)

    def uri_inside(self, value: Any, uri: str) -> str:
        """The URI that relative references inside `value` start from, if around it they start from `uri`."""
        own = value.get(self.draft.id_keyword) if isinstance(value, dict) else None
        return without_fragment(resolve_uri(uri, own)) if isinstance(own, str) else uri

    def named(self, uri: str) -> Place | None:
        """The schema with this `$id`, or with this anchor after a `#`."""
        return self._places.get(uri.removesuffix("#"))

    def at(self, pointer: str, start: Place | None = None) -> Place | None:
        """The value at a JSON pointer, from the root of the document or from an embedded schema."""
        place = start or self.root
        tokens = pointer.split("/")[1:]
        if tokens == [""]:
            return place  # "#/" is often written for the root
        for token in tokens:
            key = unquote(token).replace("~1", "/").replace("~0", "~")
            child = self.definitions if place.value is self.value and key == "$defs" else _child(place.value, key)
            if child is _MISSING:
                return None
            place = Place(child, self.uri_inside(child, place.uri), self)
        return place

    @cached_property
    def _places(self) -> dict[str, Place]:
        places: dict[str, Place] = {}
        unvisited = [self.root]
        while unvisited:
            place = unvisited.pop()
            if isinstance(place.value, dict):
                for name in self._names(place):
                    places.setdefault(name, place)
                children = [child for key, child in place.value.items() if key not in _DATA_KEYWORDS]
            else:
                children = place.value if isinstance(place.value, list) else []
            unvisited.extend(
                Place(child, self.uri_inside(child, place.uri), self)
                for child in reversed(children)
                if isinstance(child, dict | list)
            )
        return places

    def _names(self, place: Place) -> Iterator[str]:
        own = place.value.get(self.draft.id_keyword)
        if isinstance(own, str):
            yield resolve_uri(place.uri, own).removesuffix("#")
            yield own.removesuffix("#")
        if self.draft.is_modern:
            for keyword in ("$anchor", "$dynamicAnchor"):
                anchor = place.value.get(keyword)
                if isinstance(anchor, str):
                    yield f"{place.uri}#{anchor}"


class Library:
    """A schema's own document and those of the references that were registered with it."""

    def __init__(self, root: Document, references: Mapping[str, str]) -> None:
        self._root = root
        self._texts = references
        self._names = {resolve_uri(root.uri, name).removesuffix("#"): name for name in references}
        self._documents: dict[str, Document] = {}

    def find(self, reference: str, start: Place) -> Place | None:
        """What a `$ref` at `start` means; None if neither the schema nor its references have it."""
        uri = resolve_uri(start.uri, reference)
        document = start.document
        place = document.named(uri) or document.named(reference)
        if place is not None:
            return place
        if reference.startswith("#"):
            return self._inside(document, uri, start)
        other = self._document(uri) or self._document(reference)
        if other is None:
            embedded = document.named(without_fragment(uri))
            return embedded and document.at(fragment_of(uri), embedded)
        fragment = fragment_of(reference)
        return other.named(f"{other.uri}#{fragment}") or other.named(f"#{fragment}") or _pointed(other, fragment)

    @staticmethod
    def _inside(document: Document, uri: str, start: Place) -> Place | None:
        pointer = fragment_of(uri)
        if document.draft.is_modern and start.uri != document.uri:
            embedded = document.named(start.uri)
            if embedded is not None:
                return _pointed(document, pointer, embedded)
        return _pointed(document, pointer)

    def _document(self, uri: str) -> Document | None:
        address = without_fragment(uri)
        if address and address == self._root.uri:
            return self._root
        name = self._names.get(address)
        if name is None:
            plain = address.removeprefix("./")
            name = plain if plain in self._texts else None
        if name is None:
            return None
        document = self._documents.get(name)
        if document is None:
            try:
                value = read_json(self._texts[name])
                draft = self._root.draft if self._root.draft.is_modern else _classic(value, self._root.draft)
            except InvalidSchemaError as error:
                raise InvalidSchemaError(f"reference {name!r}: {error}") from None
            document = self._documents[name] = Document(value, uri=address, draft=draft)
        return document


def _pointed(document: Document, pointer: str, start: Place | None = None) -> Place | None:
    if pointer and not pointer.startswith("/"):
        return None  # an anchor that does not exist
    return document.at(pointer, start)


def _classic(value: Any, otherwise: Draft) -> Draft:
    draft = draft_of(value, otherwise=otherwise)
    return otherwise if draft.is_modern else draft


def _child(value: Any, key: str) -> Any:
    if isinstance(value, dict):
        return value.get(key, _MISSING)
    if isinstance(value, list) and _INDEX.fullmatch(key) and int(key) < len(value):
        return value[int(key)]
    return _MISSING
