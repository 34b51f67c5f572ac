"""Typed columns for deserializers: one reader's schema for each topic, and a decoder for each schema it meets.

The reader's schema is the one that the deserializer was given, or the latest of the subject if it wants that. Else it
is the newest of those that the topic's records had so far, by the versions of the subject. So the columns grow as the
schema evolves, and all columns of a call have the same type.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, Generic, TypeVar

import pyarrow as pa

from ottla.client.serializers import DeserializedColumn, NotPreparedError
from ottla.model.errors import InvalidRequestError
from ottla.registry.serde.arrow.framed_columns import Decode, Written, decoded, groups_of
from ottla.registry.serde.errors import RegistryAnswerError
from ottla.registry.serde.schema_ids import NOT_FOUND_CODES

S = TypeVar("S")

_FAILURE_SECONDS: Final = 5.0
_SCHEMAS_MAX: Final = 1000
_NEVER: Final = float("inf")


@dataclass(slots=True)
class _Topic(Generic[S]):
    """What is known about the keys or the values of a topic."""

    schemas: dict[Written, S] = field(default_factory=dict)
    """The schemas of records."""
    ages: dict[Written, tuple[int, int]] = field(default_factory=dict)
    decoders: dict[Written, Decode] = field(default_factory=dict)
    failures: dict[Written, tuple[str, float]] = field(default_factory=dict)
    """Why rows cannot be read, and when to try again."""
    reader: S | None = None
    is_given: bool = False
    """Whether the reader's schema does not depend on what the records have."""
    reader_deadline: float = _NEVER
    type: pa.DataType | None = None


class ColumnReaders(Generic[S]):
    """Reads columns for one deserializer. `S` is a schema of its language."""

    def __init__(
        self,
        *,
        has_indexes: bool,
        find_schema: Callable[[str, bool, Written], S],
        find_age: Callable[[str, bool, Written, S], tuple[int, int]],
        find_reader: Callable[[str, bool, S], tuple[S, float] | None],
        make_decoder: Callable[[S, S], tuple[Decode, pa.DataType]],
    ) -> None:
        """`find_schema` returns the schema of a topic's frame, `find_age` how new it is; `find_reader` the reader's for
        a topic, given a writer's, and until when it holds, or None for the newest one; `make_decoder` takes
        writer's and reader's.
        """
        self._has_indexes = has_indexes
        self._find_schema = find_schema
        self._find_age = find_age
        self._find_reader = find_reader
        self._make_decoder = make_decoder
        self._topics: dict[tuple[str, bool], _Topic[S]] = {}

    def deserialize_column(self, topic: str, values: pa.Array, headers: pa.Array, is_key: bool) -> DeserializedColumn:
        """As `ColumnDeserializer`."""
        groups = groups_of(values, headers, is_key=is_key, has_indexes=self._has_indexes)
        known = self._topics.get((topic, is_key))
        now = time.monotonic()
        missing = []
        decoders: list[Decode | str] = []
        for group in groups:
            if group.written is None:
                decoders.append(group.reason)
            elif known is not None and group.written in known.decoders and known.reader_deadline > now:
                decoders.append(known.decoders[group.written])
            elif known is not None and known.failures.get(group.written, ("", 0.0))[1] > now:
                decoders.append(known.failures[group.written][0])
            else:
                missing.append(group.written)
        if missing:
            raise NotPreparedError(partial(self._prepare, topic, is_key, missing))
        column, bad = decoded(values, groups, decoders)
        if pa.types.is_null(column.type) and known is not None and known.type is not None:
            column = pa.nulls(len(values), known.type)
        return DeserializedColumn(column, bad)

    def _prepare(self, topic: str, is_key: bool, missing: Sequence[Written]) -> None:
        before = self._topics.get((topic, is_key))
        if before is None or len(before.schemas) + len(before.failures) > _SCHEMAS_MAX:
            known = _Topic[S]()
        else:
            # Other threads use the old one meanwhile.
            known = replace(
                before,
                schemas=dict(before.schemas),
                ages=dict(before.ages),
                decoders=dict(before.decoders),
                failures=dict(before.failures),
            )
        for written in missing:
            if written not in known.schemas:
                try:
                    known.schemas[written] = self._find_schema(topic, is_key, written)
                except (InvalidRequestError, RegistryAnswerError) as error:
                    self._fail(known, written, error)
        if known.schemas:
            self._resolve(known, topic, is_key)
        self._topics[topic, is_key] = known

    def _resolve(self, known: _Topic[S], topic: str, is_key: bool) -> None:
        """Chooses the reader's schema, and makes the decoders that are missing."""
        reader, deadline = known.reader, known.reader_deadline
        if reader is None or not known.is_given or deadline <= time.monotonic():
            given = self._find_reader(topic, is_key, next(iter(known.schemas.values())))
            known.is_given = given is not None
            reader, deadline = given or (self._newest(known, topic, is_key), _NEVER)
        if reader is not known.reader:
            known.decoders = {}
            known.failures = {each: why for each, why in known.failures.items() if each not in known.schemas}
        known.reader, known.reader_deadline = reader, deadline
        for written, schema in known.schemas.items():
            if written not in known.decoders:
                try:
                    known.decoders[written], known.type = self._make_decoder(schema, reader)
                except InvalidRequestError as error:
                    self._fail(known, written, error)

    def _newest(self, known: _Topic[S], topic: str, is_key: bool) -> S:
        for written, schema in known.schemas.items():
            if written not in known.ages:
                known.ages[written] = self._find_age(topic, is_key, written, schema)
        return known.schemas[max(known.ages, key=lambda each: known.ages[each])]

    @staticmethod
    def _fail(known: _Topic[Any], written: Written, error: InvalidRequestError) -> None:
        if isinstance(error, RegistryAnswerError) and error.error_code not in NOT_FOUND_CODES:
            raise error
        known.failures[written] = (f"schema {written.schema_id}: {error}", time.monotonic() + _FAILURE_SECONDS)
