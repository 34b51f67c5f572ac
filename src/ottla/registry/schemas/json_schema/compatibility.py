"""Whether a reader's schema accepts what a writer's schema accepts, by Confluent's table of differences.

Two schemas are compared place by place. Each difference has a name; `differences.py` says which of them break a
reader. This is not general subtyping: schemas of different kinds at one place count as different, whatever they accept.

Places of `$ref` are compared as what they name. `comparison.py` runs the rules of this file, without recursion. After
`STEPS_MAX` steps the schemas count as incompatible.
"""

from collections.abc import Callable, Generator, Sequence
from typing import Any, Final

from ottla.model.re2_patterns import InvalidPatternError, Pattern, PatternTooLargeError
from ottla.registry.schemas.json_schema.comparison import (
    Budget,
    Comparison,
    Difference,
    FitQuestion,
    Path,
    Question,
    TooComplexError,
    compare,
)
from ottla.registry.schemas.json_schema.differences import BREAKING, LENIENT, SENTENCES
from ottla.registry.schemas.json_schema.fingerprints import Fingerprints
from ottla.registry.schemas.json_schema.json_text import DIGITS_MAX, write_json
from ottla.registry.schemas.json_schema.keywords import whole_number
from ottla.registry.schemas.json_schema.matching import matching_size
from ottla.registry.schemas.json_schema.subschemas import (
    ALL_OF,
    ANY_OF,
    ONE_OF,
    AnythingSchema,
    ArraySchema,
    CombinedSchema,
    ConstSchema,
    EnumSchema,
    ExternalSchema,
    NothingSchema,
    NotSchema,
    Number,
    NumberSchema,
    ObjectSchema,
    StringSchema,
    Subschema,
)
from ottla.registry.schemas.parsed_schema import Incompatibility

STEPS_MAX: Final = 500_000
"""Some seconds. Unions of 700 members that all changed still fit."""
_PATTERN_STEPS: Final = 1_000
"""Steps of a pattern that take about as long as one step of a comparison, ten microseconds."""
_COMPILED_INSTRUCTIONS: Final = 50
"""Instructions of a pattern that are compiled in the same time."""
_TOO_LARGE_STEPS: Final = 1_000
"""To find out that a pattern is too large."""
_PATH_LENGTH_MAX: Final = 2_000
_PAIRS_EXACT_MAX: Final = 10_000
"""Unions with more pairs of members match members that are written alike first."""


def incompatibilities(reader: Subschema, writer: Subschema, *, lenient: bool) -> list[Incompatibility]:
    """Why the reader's schema does not accept what the writer's accepts. Empty if it does."""
    breaking = BREAKING - LENIENT if lenient else BREAKING
    budget = Budget(STEPS_MAX)
    try:
        found = compare(writer, reader, _Rules(breaking, budget).of, budget)
    except TooComplexError:
        found = [Difference("SCHEMAS_TOO_COMPLEX", None)]
    return [
        Incompatibility(kind=kind, path=path, message=SENTENCES[kind].format(path=path))
        for kind, path in ((difference.kind, _text(difference.path)) for difference in found)
    ]


def _text(path: Path | None) -> str:
    segments, length = [], 0
    while path is not None and length <= _PATH_LENGTH_MAX:
        segments.append(path.segment)
        length += len(path.segment) + 1
        path = path.rest
    text = f"#/{'/'.join(segments)}"
    return text if length <= _PATH_LENGTH_MAX else f"{text[:_PATH_LENGTH_MAX]}..."


class _Rules:
    """The rules for every kind of schema."""

    def __init__(self, breaking: frozenset[str], budget: Budget) -> None:
        self._breaking = breaking
        self._spend = budget.spend
        self._fingerprints = Fingerprints(budget.spend)
        self._patterns: dict[str, Pattern | None] = {}
        self._values: dict[int, frozenset[Any]] = {}

    def _found(self, kind: str, *path: str) -> list[Difference]:
        if kind not in self._breaking:
            return []
        whole: Path | None = None
        for segment in reversed(path):
            whole = Path(segment, whole)
        return [Difference(kind, whole)]

    def _below(self, segment: str, differences: list[Difference]) -> list[Difference]:
        self._spend(len(differences))
        return [Difference(kind, Path(segment, path)) for kind, path in differences]

    # Kinds of schemas

    def of(self, original: Subschema, update: Subschema) -> Comparison:
        """Compares two schemas; neither is a reference."""
        if (yield from self._fits_a_member(original, update)):
            return []
        if isinstance(original, NothingSchema) or isinstance(update, AnythingSchema):
            return []
        if type(original) is not type(update):
            are_bytes = "bytes" == original.other.get("connect.type") == update.other.get("connect.type")
            return [] if are_bytes else self._found("TYPE_CHANGED")
        if type(original) in _INNER_RULES:
            return (yield from _INNER_RULES[type(original)](self, original, update))
        rule = _RULES.get(type(original))
        return rule(self, original, update) if rule else []

    def _fits_a_member(self, original: Subschema, update: Subschema) -> Generator[Any, Any, bool]:
        """Whether one is a union or an `allOf`, and the other fits a member of it that suffices."""
        if isinstance(original, CombinedSchema) == isinstance(update, CombinedSchema):
            return False
        if isinstance(update, CombinedSchema):
            pairs = [(original, member) for member in update.members]
            suffices = len(pairs) == 1 or update.criterion in (ANY_OF, ONE_OF)
        else:
            assert isinstance(original, CombinedSchema)
            pairs = [(member, update) for member in original.members]
            suffices = len(pairs) == 1 or original.criterion == ALL_OF
        if suffices:
            for pair in pairs:
                if not (yield FitQuestion(*pair)):
                    return True
        return False

    def _string(self, original: StringSchema, update: StringSchema) -> list[Difference]:
        found = self._limit("maxLength", "MAX_LENGTH", original.max_length, update.max_length)
        found += self._limit("minLength", "MIN_LENGTH", original.min_length, update.min_length)
        if original.pattern != update.pattern and update.pattern is not None:
            found += self._found("PATTERN_ADDED" if original.pattern is None else "PATTERN_CHANGED", "pattern")
        return found

    def _number(self, original: NumberSchema, update: NumberSchema) -> list[Difference]:
        found = self._limit("maximum", "MAXIMUM", original.maximum, update.maximum)
        found += self._limit("minimum", "MINIMUM", original.minimum, update.minimum)
        for keyword, name, old, new in (
            ("exclusiveMaximum", "EXCLUSIVE_MAXIMUM", original.exclusive_maximum, update.exclusive_maximum),
            ("exclusiveMinimum", "EXCLUSIVE_MINIMUM", original.exclusive_minimum, update.exclusive_minimum),
        ):
            # The booleans of draft 4 are not compared.
            old, new = (None if isinstance(value, bool) else value for value in (old, new))
            found += self._limit(keyword, name, old, new)
        found += self._multiple_of(original.multiple_of, update.multiple_of)
        if update.integer and not original.integer:
            found += self._found("TYPE_NARROWED")
        return found

    def _multiple_of(self, old: Number | None, new: Number | None) -> list[Difference]:
        if new is None or old == new:
            return []
        if old is None:
            return self._found("MULTIPLE_OF_ADDED", "multipleOf")
        if _divides(old, new):
            return self._found("MULTIPLE_OF_EXPANDED", "multipleOf")
        return [] if _divides(new, old) else self._found("MULTIPLE_OF_CHANGED", "multipleOf")

    def _limit(self, keyword: str, name: str, old: Number | None, new: Number | None) -> list[Difference]:
        if new is None:
            return []
        if old is None:
            return self._found(f"{name}_ADDED", keyword)
        before, after = _as_double(old), _as_double(new)
        if before == after:
            return []
        return self._found(f"{name}_{'INCREASED' if before < after else 'DECREASED'}", keyword)

    def _enum(self, original: EnumSchema, update: EnumSchema) -> list[Difference]:
        old, new = (self._values_of(schema) for schema in (original, update))
        self._spend((len(old) + len(new)) // 10)
        if old <= new:
            return []
        return self._found("ENUM_ARRAY_NARROWED" if new < old else "ENUM_ARRAY_CHANGED", "enum")

    def _values_of(self, schema: EnumSchema) -> frozenset[Any]:
        values = self._values.get(id(schema))
        if values is None:
            values = self._values[id(schema)] = frozenset(map(_exactly, schema.values))
        return values

    def _const(self, original: ConstSchema, update: ConstSchema) -> list[Difference]:
        same = _exactly(original.value) == _exactly(update.value)
        return [] if same else self._found("ENUM_ARRAY_CHANGED", "const")

    def _external(self, original: ExternalSchema, update: ExternalSchema) -> list[Difference]:
        return [] if original.name == update.name else self._found("TYPE_CHANGED")

    def _not(self, original: NotSchema, update: NotSchema) -> Comparison:
        # The more the inner schema accepts, the less the outer one does: the roles are exchanged.
        return self._found("NOT_TYPE_EXTENDED", "not") if (yield FitQuestion(update.schema, original.schema)) else []

    # allOf, anyOf, oneOf

    def _combined(self, original: CombinedSchema, update: CombinedSchema) -> Comparison:
        if not _may_become(original, update):
            return self._found("COMBINED_TYPE_CHANGED")
        old, new = self._distinct(original.members), self._distinct(update.members)
        found: list[Difference] = []
        if len(old) < len(new) and update.criterion == ALL_OF:
            found += self._found("PRODUCT_TYPE_EXTENDED")
        if len(old) > len(new) and original.criterion != ALL_OF:
            found += self._found("SUM_TYPE_NARROWED")
        matched = 0
        if len(old) * len(new) > _PAIRS_EXACT_MAX:
            alike = {self._fingerprints.of(member): member for member in new}
            for member in old[:]:
                twin = alike.get(self._fingerprints.of(member))
                if twin is not None and not (yield FitQuestion(member, twin)):
                    matched += 1
                    old.remove(member)
                    new.remove(twin)
        partners: list[list[int]] = []
        for member in old:
            fitting: list[int] = []
            for index, candidate in enumerate(new):
                if not (yield FitQuestion(member, candidate)):
                    fitting.append(index)
            partners.append(fitting)
        smaller = min(len(old), len(new))
        if matching_size(partners, spend=self._spend) < smaller:
            found += self._found("COMBINED_TYPE_SUBSCHEMAS_CHANGED")
        return found

    def _distinct(self, members: Sequence[Subschema]) -> list[Subschema]:
        if len(members) < 2:
            return list(members)
        return list({self._fingerprints.of(member): member for member in members}.values())

    # Arrays

    def _array(self, original: ArraySchema, update: ArraySchema) -> Comparison:
        found: list[Difference] = []
        if original.items is None and update.items is not None:
            found += self._found("SCHEMA_ADDED", "items")
        elif original.items is not None and update.items is not None:
            found += self._below("items", (yield Question(original.items, update.items)))
        found += yield from self._prefix_items(original, update)
        found += yield from self._additional(
            "additionalItems", "ADDITIONAL_ITEMS", original.additional_items, update.additional_items
        )
        found += yield from self._unevaluated(
            "unevaluatedItems", "UNEVALUATED_ITEMS", original.unevaluated_items, update.unevaluated_items
        )
        found += self._limit("maxItems", "MAX_ITEMS", original.max_items, update.max_items)
        found += self._limit("minItems", "MIN_ITEMS", original.min_items, update.min_items)
        if update.unique_items and not original.unique_items:
            found += self._found("UNIQUE_ITEMS_ADDED", "uniqueItems")
        for keyword, name in (("maxContains", "MAX_CONTAINS"), ("minContains", "MIN_CONTAINS")):
            found += self._limit(keyword, name, _contained(original, keyword), _contained(update, keyword))
        return found

    def _prefix_items(self, original: ArraySchema, update: ArraySchema) -> Comparison:
        old, new = original.prefix_items or (), update.prefix_items or ()
        found: list[Difference] = []
        for index in range(max(len(old), len(new))):
            path = f"items/{index}"
            if index < len(old) and index < len(new):
                found += self._below(path, (yield Question(old[index], new[index])))
            elif index < len(old):
                found += self._below(path, (yield from self._removed("ITEM", old[index], _model_of_items(update))))
            else:
                model = _model_of_items(original)
                if model is OPEN:
                    if not isinstance(new[index], AnythingSchema):
                        found += self._found("ITEM_ADDED_TO_OPEN_CONTENT_MODEL", path)
                else:
                    found += self._below(path, (yield from self._added("ITEM", new[index], model)))
        return found

    # Objects

    def _object(self, original: ObjectSchema, update: ObjectSchema) -> Comparison:
        found = yield from self._properties(original, update)
        for name in original.properties:
            is_added = name in update.properties and name in update.required and name not in original.required
            if is_added and not update.properties[name].has_default:
                found += self._found("REQUIRED_ATTRIBUTE_ADDED", "required", name)
        found += yield from self._dependencies(original, update)
        found += yield from self._additional(
            "additionalProperties",
            "ADDITIONAL_PROPERTIES",
            original.additional_properties,
            update.additional_properties,
        )
        found += yield from self._unevaluated(
            "unevaluatedProperties",
            "UNEVALUATED_PROPERTIES",
            original.unevaluated_properties,
            update.unevaluated_properties,
        )
        found += self._limit("maxProperties", "MAX_PROPERTIES", original.max_properties, update.max_properties)
        found += self._limit("minProperties", "MIN_PROPERTIES", original.min_properties, update.min_properties)
        return found

    def _properties(self, original: ObjectSchema, update: ObjectSchema) -> Comparison:
        found: list[Difference] = []
        self._spend((len(original.properties) + len(update.properties)) // 10)
        for name in {**original.properties, **update.properties}:
            old, new = original.properties.get(name), update.properties.get(name)
            if old is not None and new is not None:
                differences = yield Question(old, new)
            elif old is not None:
                models = self._models(update, name)
                differences = []
                for model in models:
                    differences += yield from self._removed("PROPERTY", old, model)
            else:
                assert new is not None
                *undecided, model = self._models(original, name)
                differences = yield from self._property_added(new, model, required=name in update.required)
                for schema in undecided:
                    differences += yield from self._added("PROPERTY", new, schema)
            found += self._below("properties", self._below(name, differences))
        return found

    def _property_added(self, schema: Subschema, model: "Subschema | _Model", *, required: bool) -> Comparison:
        if model is OPEN and isinstance(schema, AnythingSchema):
            return []
        found: list[Difference] = []
        if model is not OPEN:
            found += yield from self._added("PROPERTY", schema, model)
        if not required:
            kind = "OPTIONAL_PROPERTY_ADDED"
        else:
            kind = "REQUIRED_PROPERTY_WITH_DEFAULT_ADDED" if schema.has_default else "REQUIRED_PROPERTY_ADDED"
        return found + self._found(f"{kind}_TO_{'OPEN' if model is OPEN else 'UNOPEN'}_CONTENT_MODEL")

    def _dependencies(self, original: ObjectSchema, update: ObjectSchema) -> Comparison:
        found: list[Difference] = []
        for name, new in update.required_by.items():
            old = original.required_by.get(name)
            if old is None:
                found += self._found("DEPENDENCY_ARRAY_ADDED", "dependencies", name)
            elif not new <= old:
                kind = "DEPENDENCY_ARRAY_EXTENDED" if new > old else "DEPENDENCY_ARRAY_CHANGED"
                found += self._found(kind, "dependencies", name)
        for name, schema in update.schemas_by.items():
            if name in original.schemas_by:
                differences = yield Question(original.schemas_by[name], schema)
                found += self._below("dependencies", self._below(name, differences))
            else:
                found += self._found("DEPENDENCY_SCHEMA_ADDED", "dependencies", name)
        return found

    def _models(self, schema: ObjectSchema, name: str) -> list["Subschema | _Model"]:
        """What an object schema says about a property that it does not list.

        The last one is certain; before it are the schemas of patterns that RE2 cannot run, which may match or not.
        """
        undecided: list[Subschema | _Model] = []
        for pattern, matching in schema.pattern_properties.items():
            match self._finds(pattern, name):
                case True:
                    return [*undecided, matching]
                case None:
                    undecided.append(matching)
        model = _content_model(schema.additional_properties, schema.unevaluated_properties)
        return [*undecided, CLOSED if model is OPEN and schema.pattern_properties else model]

    def _finds(self, pattern: str, name: str) -> bool | None:
        """Whether a regular expression matches somewhere in a name; None if RE2 cannot run it."""
        if pattern not in self._patterns:
            self._patterns[pattern] = self._compiled(pattern)
        compiled = self._patterns[pattern]
        if compiled is None:
            self._spend(1)
            return None
        self._spend(1 + compiled.steps(name) // _PATTERN_STEPS)
        return compiled.matches_inside(name)

    def _compiled(self, pattern: str) -> Pattern | None:
        self._spend(1 + len(pattern) // 10)
        try:
            compiled = Pattern(pattern)
        except PatternTooLargeError:
            self._spend(_TOO_LARGE_STEPS)
            return None
        except InvalidPatternError:
            return None
        self._spend(compiled.instructions // _COMPILED_INSTRUCTIONS)
        return compiled

    # Arrays and objects

    def _removed(self, noun: str, schema: Subschema, model: "Subschema | _Model") -> Comparison:
        """What the writer lists and the reader does not."""
        if model is OPEN or (model is CLOSED and isinstance(schema, NothingSchema)):
            return []
        if not isinstance(model, Subschema):
            return self._found(f"{noun}_REMOVED_FROM_CLOSED_CONTENT_MODEL")
        differences = yield Question(schema, model)
        covered = not differences
        return differences + (
            [] if covered else self._found(f"{noun}_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL")
        )

    def _added(self, noun: str, schema: Subschema, model: "Subschema | _Model") -> Comparison:
        """What the reader lists and the writer does not, where the writer does not accept everything."""
        if not isinstance(model, Subschema):
            return []
        differences = yield Question(model, schema)
        covered = not differences
        return differences + (
            [] if covered else self._found(f"{noun}_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL")
        )

    def _additional(self, keyword: str, name: str, old: Subschema | bool, new: Subschema | bool) -> Comparison:
        if old is False or new is True:
            return []
        if new is False:
            return self._found(f"{name}_REMOVED", keyword)
        if old is True:
            return self._found(f"{name}_NARROWED", keyword)
        assert isinstance(old, Subschema)
        return self._below(keyword, (yield Question(old, new)))

    def _unevaluated(self, keyword: str, name: str, old: Subschema | None, new: Subschema | None) -> Comparison:
        if new is None or isinstance(old, NothingSchema):
            return []
        if isinstance(new, NothingSchema):
            return self._found(f"{name}_REMOVED", keyword)
        if old is None or (isinstance(old, AnythingSchema) and not isinstance(new, AnythingSchema)):
            return self._found(f"{name}_NARROWED", keyword)
        return [] if isinstance(new, AnythingSchema) else self._below(keyword, (yield Question(old, new)))


_RULES: Final[dict[type[Subschema], Callable[..., list[Difference]]]] = {
    StringSchema: _Rules._string,
    NumberSchema: _Rules._number,
    ConstSchema: _Rules._const,
    EnumSchema: _Rules._enum,
    ExternalSchema: _Rules._external,
}
"""How two schemas of one kind are compared that have no schemas inside."""
_INNER_RULES: Final[dict[type[Subschema], Callable[..., Comparison]]] = {
    CombinedSchema: _Rules._combined,
    NotSchema: _Rules._not,
    ObjectSchema: _Rules._object,
    ArraySchema: _Rules._array,
}
"""The same for kinds that have. Kinds in neither table have nothing that is compared."""


class _Model:
    """What an array or an object schema says about items and properties that it does not list."""


OPEN: Final = _Model()
"""Any value is valid."""
CLOSED: Final = _Model()
"""None is valid."""


def _content_model(additional: Subschema | bool, unevaluated: Subschema | None) -> Subschema | _Model:
    if isinstance(additional, Subschema):
        return additional
    if not additional or isinstance(unevaluated, NothingSchema):
        return CLOSED
    return OPEN if unevaluated is None or isinstance(unevaluated, AnythingSchema) else unevaluated


def _model_of_items(schema: ArraySchema) -> Subschema | _Model:
    return _content_model(schema.additional_items, schema.unevaluated_items)


def _may_become(original: CombinedSchema, update: CombinedSchema) -> bool:
    if original.criterion == update.criterion or update.criterion == ANY_OF:
        return True
    if len(original.members) == 1:
        return len(update.members) == 1 or update.criterion == ONE_OF
    return len(update.members) == 1 and original.criterion == ALL_OF


def _contained(schema: ArraySchema, keyword: str) -> int | None:
    """`minContains` or `maxContains` without its fraction; the drafts before 2019-09 do not know these keywords."""
    value = schema.max_contains if keyword == "maxContains" else schema.min_contains
    if value is None:
        value = schema.other.get(keyword)
    return whole_number(value) if isinstance(value, Number) and not isinstance(value, bool) else None


def _as_double(value: Number) -> float:
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def _divides(divisor: Number, value: Number) -> bool:
    """Whether `value` is a multiple of `divisor`: in time that grows with their digits, not with their exponents."""
    (digits, exponent), (divisor_digits, divisor_exponent) = _scaled(value), _scaled(divisor)
    if divisor_digits == 0:
        return False
    shift = exponent - divisor_exponent
    if shift >= 0:
        remainder: int = digits * pow(10, shift, abs(divisor_digits)) % divisor_digits
        return remainder == 0
    if digits and -shift > len(str(abs(digits))):
        return False  # the divisor is greater than the value
    whole: int = digits % (divisor_digits * 10 ** min(-shift, DIGITS_MAX))
    return whole == 0


def _scaled(value: Number) -> tuple[int, int]:
    """Digits and exponent of ten."""
    if isinstance(value, int):
        return value, 0
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)  # only NaN and infinity have another one, and JSON has neither
    number = int("".join(map(str, digits)))
    return (-number if sign else number), exponent


def _exactly(value: Any) -> Any:
    """Equal for equal values; 1 and 1.0 are different, as in Confluent's registry."""
    return value if isinstance(value, str) else (write_json(value, sort_keys=True),)
