"""From a document to subschemas: children before parents, each value once, and without recursion.

Time and memory grow with the size of the documents alone: a value that many references name is loaded once.
"""

from collections.abc import Mapping
from typing import Any

from ottla.registry.schemas.json_schema import classic_drafts, modern_drafts
from ottla.registry.schemas.json_schema.documents import Document, Library, Place
from ottla.registry.schemas.json_schema.drafts import Draft, meta_schema_of
from ottla.registry.schemas.json_schema.keywords import Keywords, Location
from ottla.registry.schemas.json_schema.subschemas import (
    AnythingSchema,
    ExternalSchema,
    NothingSchema,
    ReferenceSchema,
    Subschema,
)
from ottla.registry.schemas.json_schema.uris import resolve_uri
from ottla.registry.schemas.parsed_schema import InvalidSchemaError
from ottla.registry.schemas.time_limit import check_time


def load(document: Document, references: Mapping[str, str], *, all_at_hand: bool) -> Subschema:
    """The schema of a document, with the texts of its references by name. Raises `InvalidSchemaError`.

    With `all_at_hand`, a `$ref` to something that is not at hand is an error.
    """
    loader = _Loader(Library(document, references))
    root = loader.load(document.root, Location("#"))
    loader.resolve(all_at_hand=all_at_hand)
    return root


def load_alone(value: Any, draft: Draft) -> Subschema:
    """The schema of a value inside a document, without what its references name. Raises `InvalidSchemaError`."""
    document = Document(value, uri="", draft=draft)
    return _Loader(Library(document, {})).load(document.root, Location("#"))


class _Loader:
    def __init__(self, library: Library) -> None:
        self._library = library
        self._loaded: dict[int, Subschema] = {}  # by the identity of the value, which its document keeps alive
        self._unresolved: list[tuple[ReferenceSchema, Place, Location]] = []
        self._targets: dict[int, Subschema] = {}  # by the identity of the reference

    def load(self, root: Place, location_of_root: Location) -> Subschema:
        stack = [(root, location_of_root, False)]
        while stack:
            check_time()
            place, location, ready = stack.pop()
            value = place.value
            if not isinstance(value, dict) or id(value) in self._loaded:
                continue
            if ready:
                self._loaded[id(value)] = self._build(place, location)
                continue
            stack.append((place, location, True))
            document = place.document
            for segment, child in self._children(place):
                below = Place(child, document.uri_inside(child, place.uri), document)
                stack.append((below, Location(segment, location), False))
        return self._child(root.value, location_of_root)

    def resolve(self, *, all_at_hand: bool) -> None:
        """Loads what references name, which may have references itself, until all are loaded."""
        references: list[ReferenceSchema] = []
        while self._unresolved:
            reference, start, location = self._unresolved.pop()
            references.append(reference)
            place = self._library.find(reference.reference, start)
            if place is not None:
                self._targets[id(reference)] = self.load(place, Location(reference.reference))
                continue
            name = resolve_uri(start.uri, reference.reference)
            draft = meta_schema_of(name)
            if draft is None and all_at_hand:
                missing = f"$ref {reference.reference!r} is neither in the schema nor in its registered references"
                raise InvalidSchemaError(f"{location}: {missing}")
            self._targets[id(reference)] = ExternalSchema(name=name if draft is None else draft.name)
        for reference in references:
            self._follow(reference)

    def _follow(self, reference: ReferenceSchema) -> None:
        """Sets the target of a reference, and of those on the way if it names a reference itself."""
        way: dict[int, ReferenceSchema] = {}
        target: Subschema = reference
        while isinstance(target, ReferenceSchema):
            if target.target is not ReferenceSchema.UNRESOLVED or id(target) in way:
                target = target.target
                break
            way[id(target)] = target
            target = self._targets[id(target)]
        for passed in way.values():
            passed.target = target

    @staticmethod
    def _children(place: Place) -> list[tuple[str, Any]]:
        draft = place.document.draft
        if not draft.is_modern:
            return list(classic_drafts.children(place.value, draft))
        children = list(modern_drafts.children(place.value))
        definitions = place.document.definitions
        if place.value is place.document.value and isinstance(definitions, dict):
            children += ((f"$defs/{name}", child) for name, child in definitions.items())
        return children

    def _build(self, place: Place, location: Location) -> Subschema:
        keywords = Keywords(place.value, location)

        def child(value: Any) -> Subschema:
            return self._child(value, location)

        def refer(reference: str) -> Subschema:
            schema = ReferenceSchema(reference=reference)
            self._unresolved.append((schema, place, location))
            return schema

        draft = place.document.draft
        if draft.is_modern:
            return modern_drafts.build(keywords, child=child, refer=refer)
        return classic_drafts.build(keywords, draft, child=child, refer=refer)

    def _child(self, value: Any, location: Location) -> Subschema:
        if isinstance(value, dict):
            return self._loaded[id(value)]
        if isinstance(value, bool):
            return AnythingSchema(literal=True) if value else NothingSchema()
        raise InvalidSchemaError(f"{location}: a schema must be an object or a boolean")
