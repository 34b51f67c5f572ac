"""Whether a reader's schema can read what a writer's schema wrote, by the rules of Avro's specification.

Kinds and places are those of Avro's Java library. Like it, names are compared without their namespaces, and a pair of
types is compared once: if it comes again, the places of the first comparison are reported again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from ottla.registry.schemas.avro.avro_types import Array, AvroType, Enumeration, Field, Fixed, Map, Named, Record, Union
from ottla.registry.schemas.avro.deep_calls import TooManyCallsError, Walk, run_walk
from ottla.registry.schemas.parsed_schema import Incompatibility

CALLS_MAX: Final = 300_000
"""How many pairs of types are compared, at most."""
INCOMPATIBILITIES_MAX: Final = 1_000
"""How many reasons are reported, at most."""

_PROMOTED: Final = {
    "long": frozenset({"int"}),
    "float": frozenset({"int", "long"}),
    "double": frozenset({"int", "long", "float"}),
    "bytes": frozenset({"string"}),
    "string": frozenset({"bytes"}),
}
_NAMES_SHOWN_MAX: Final = 10

_Reasons = tuple[Incompatibility, ...]


@dataclass(frozen=True, slots=True)
class _Path:
    """A place in the reader's schema: a token of a JSON pointer, and the place that it is in."""

    parent: "_Path | None"
    token: str

    def __str__(self) -> str:
        tokens: list[str] = []
        here: _Path | None = self
        while here is not None and here.parent is not None:
            tokens.append(here.token.replace("~", "~0").replace("/", "~1"))
            here = here.parent
        return "/" + "/".join(reversed(tokens))


_ROOT: Final = _Path(None, "")


class _AmbiguousFieldError(Exception):
    def __init__(self, reason: Incompatibility) -> None:
        super().__init__(reason.message)
        self.reason = reason


def incompatibilities(reader: AvroType, writer: AvroType) -> Sequence[Incompatibility]:
    """Why the reader's schema cannot read what was written with the writer's. Empty if it can."""
    try:
        found: _Reasons = run_walk(_Comparison().compare(reader, writer, _ROOT), CALLS_MAX)
    except TooManyCallsError:
        return [
            Incompatibility(
                kind="TOO_COMPLEX",
                path="/",
                message=f"The schemas are too complex to compare: more than {CALLS_MAX} pairs of types.",
            )
        ]
    except _AmbiguousFieldError as error:
        return [error.reason]
    return found


class _Comparison:
    """The comparison of two schemas."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], _Reasons | None] = {}
        """The answers for pairs of types; None while a pair is being compared."""
        self._candidates: dict[int, _Branches] = {}

    def compare(self, reader: AvroType, writer: AvroType, path: _Path) -> Walk[_Reasons]:
        """Why the reader's type cannot read the writer's."""
        pair = (id(reader), id(writer))
        if pair in self._known:
            # A pair that is being compared has come back to itself: compatible unless something else is found.
            return self._known[pair] or ()
        self._known[pair] = None
        reasons: _Reasons = yield self._compare(reader, writer, path)
        self._known[pair] = reasons
        return reasons

    def _compare(self, reader: AvroType, writer: AvroType, path: _Path) -> Walk[_Reasons]:
        reasons: _Reasons = ()
        match reader, writer:
            case Union(), Union():
                reasons = yield self._unions(reader, writer, path)
                return reasons
            case _, Union():
                for position, branch in enumerate(writer.branches):
                    reasons = _merged(reasons, (yield self.compare(reader, branch, _Path(path, str(position)))))
                return reasons
            case Union(), _:
                reasons = yield self._branch(reader, writer, path)
                return reasons
            case Array(), Array():
                reasons = yield self.compare(reader.items, writer.items, _Path(path, "items"))
                return reasons
            case Map(), Map():
                reasons = yield self.compare(reader.values, writer.values, _Path(path, "values"))
                return reasons
            case Record(), Record():
                reasons = yield self._fields(reader, writer, _Path(path, "fields"))
                return _merged(_name_reasons(reader, writer, path), reasons)
            case Enumeration(), Enumeration():
                return _merged(_name_reasons(reader, writer, path), _symbol_reasons(reader, writer, path))
            case Fixed(), Fixed():
                return _merged(_name_reasons(reader, writer, path), _size_reasons(reader, writer, path))
        if _is_readable(reader.kind, writer.kind):
            return ()
        return (
            Incompatibility(
                kind="TYPE_MISMATCH",
                path=str(path),
                message=f"The reader's type {_shown(reader)} cannot read the writer's type {_shown(writer)}.",
            ),
        )

    def _unions(self, reader: Union, writer: Union, path: _Path) -> Walk[_Reasons]:
        reasons: _Reasons = ()
        for position, branch in enumerate(writer.branches):
            if (yield self.compare(reader, branch, _ROOT)):
                reasons = _merged(reasons, (_missing_branch(branch, _Path(path, str(position))),))
        return reasons

    def _branch(self, reader: Union, writer: AvroType, path: _Path) -> Walk[_Reasons]:
        candidates = self._candidates.get(id(reader))
        if candidates is None:
            candidates = self._candidates[id(reader)] = _Branches(reader)
        for branch in candidates.that_may_read(writer):
            if not (yield self.compare(branch, writer, _ROOT)):
                return ()
        return (_missing_branch(writer, path),)

    def _fields(self, reader: Record, writer: Record, path: _Path) -> Walk[_Reasons]:
        reasons: _Reasons = ()
        for position, field in enumerate(reader.fields):
            here = _Path(path, str(position))
            written = _written_field(field, reader, writer, here)
            if written is not None:
                found = yield self.compare(field.type, written.type, _Path(here, "type"))
            elif field.has_default:
                continue
            elif isinstance(field.type, Enumeration) and field.type.default is not None:
                # The default of an enum is not a default of the field. Java reports it in this way.
                found = yield self.compare(field.type, writer, _Path(here, "type"))
            else:
                found = (
                    Incompatibility(
                        kind="READER_FIELD_MISSING_DEFAULT_VALUE",
                        path=str(here),
                        message=f"The reader's field {field.name} of record {reader.name.full} has no default, and the"
                        f" writer's record {writer.name.full} has no such field.",
                    ),
                )
            reasons = _merged(reasons, found)
        return reasons


class _Branches:
    """The branches of a reader's union by what they may read, so that a union of thousands is searched fast."""

    def __init__(self, union: Union) -> None:
        self._unnamed: list[AvroType] = []
        self._named: dict[tuple[str, str], list[tuple[int, AvroType]]] = {}
        for position, branch in enumerate(union.branches):
            if not isinstance(branch, Named):
                self._unnamed.append(branch)
                continue
            for name in {branch.name.simple, *(f"={alias}" for alias in branch.alias_texts)}:
                self._named.setdefault((branch.kind, name), []).append((position, branch))

    def that_may_read(self, writer: AvroType) -> list[AvroType]:
        """The branches of the kind and with the name of the writer's type, in their order."""
        if not isinstance(writer, Named):
            return [each for each in self._unnamed if _is_readable(each.kind, writer.kind)]
        found = {
            *self._named.get((writer.kind, writer.name.simple), ()),
            *self._named.get((writer.kind, f"={writer.name.full}"), ()),
        }
        return [branch for _, branch in sorted(found, key=lambda each: each[0])]


def _is_readable(reader_kind: str, writer_kind: str) -> bool:
    return reader_kind == writer_kind or writer_kind in _PROMOTED.get(reader_kind, ())


def _written_field(field: Field, reader: Record, writer: Record, path: _Path) -> Field | None:
    found = [writer.by_name[each] for each in (field.name, *field.aliases) if each in writer.by_name]
    if len(found) > 1:
        raise _AmbiguousFieldError(
            Incompatibility(
                kind="READER_FIELD_AMBIGUOUS",
                path=str(path),
                message=f"The reader's field {field.name} of record {reader.name.full} matches several fields of the"
                f" writer's record {writer.name.full}: {_listed([each.name for each in found])}.",
            )
        )
    return found[0] if found else None


def _name_reasons(reader: Named, writer: Named, path: _Path) -> _Reasons:
    if reader.name.simple == writer.name.simple or writer.name.full in reader.alias_texts:
        return ()
    return (
        Incompatibility(
            kind="NAME_MISMATCH",
            path=str(_Path(path, "name")),
            message=f"The reader's {reader.kind} {reader.name.full} has another name than the writer's"
            f" {writer.name.full}, and no alias for it.",
        ),
    )


def _symbol_reasons(reader: Enumeration, writer: Enumeration, path: _Path) -> _Reasons:
    missing = sorted(set(writer.symbols) - set(reader.symbols))
    if not missing or reader.default is not None:
        return ()
    return (
        Incompatibility(
            kind="MISSING_ENUM_SYMBOLS",
            path=str(_Path(path, "symbols")),
            message=f"The reader's enum {reader.name.full} has no default, and lacks symbols that the writer's has:"
            f" {_listed(missing)}.",
        ),
    )


def _size_reasons(reader: Fixed, writer: Fixed, path: _Path) -> _Reasons:
    if reader.size == writer.size:
        return ()
    return (
        Incompatibility(
            kind="FIXED_SIZE_MISMATCH",
            path=str(_Path(path, "size")),
            message=f"The reader's fixed {reader.name.full} has {reader.size} bytes, the writer's has {writer.size}.",
        ),
    )


def _missing_branch(writer: AvroType, path: _Path) -> Incompatibility:
    return Incompatibility(
        kind="MISSING_UNION_BRANCH",
        path=str(path),
        message=f"No branch of the reader's union can read the writer's type {_shown(writer)}.",
    )


def _merged(one: _Reasons, other: Any) -> _Reasons:
    if not other:
        return one
    return (*one, *other)[:INCOMPATIBILITIES_MAX]


def _shown(node: AvroType) -> str:
    return f"{node.kind} {node.name.full}" if isinstance(node, Named) else node.kind


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _NAMES_SHOWN_MAX
    return ", ".join(names[:_NAMES_SHOWN_MAX]) + (f" and {more} more" if more > 0 else "")
