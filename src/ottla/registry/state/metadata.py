"""Metadata and rule sets of schemas: their JSON form, how defaults and overrides are merged, what is valid.

The registry stores rules and returns them; clients apply them. Sets and maps are kept sorted as Confluent's registry
does, because GUIDs depend on the order.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import force_setattr, replace

from ottla.registry.state.errors import INVALID_RULE_SET, registry_error

CONFLUENT_VERSION: Final = "confluent:version"
"""The property that carries the version of the subject, so that equal schemas of several versions get several ids."""

RESERVED_FIELDS: Final = "confluent:reserved"
"""The property that names fields which no later version may use, separated by commas."""

_RULE_NAME_LENGTH_MAX: Final = 256

Scalar: TypeAlias = str | bool | int | float


class Metadata(Struct, frozen=True, omit_defaults=True):
    """Tags by path, properties, and the names of sensitive properties. Empty parts are None."""

    tags: dict[str, list[str]] | None = None
    properties: dict[str, Scalar] | None = None
    sensitive: list[str] | None = None

    def __post_init__(self) -> None:
        given, values = self.tags or {}, self.properties or {}
        tags = {path: _sorted_set(given[path]) for path in _sorted(given)}
        properties = {name: _text(values[name]) for name in _sorted(values)}
        force_setattr(self, "tags", tags or None)
        force_setattr(self, "properties", properties or None)
        force_setattr(self, "sensitive", _sorted_set(self.sensitive or ()) or None)

    @property
    def texts(self) -> Mapping[str, str]:
        """The properties; each value is text."""
        return {name: _text(value) for name, value in (self.properties or {}).items()}

    @property
    def confluent_version(self) -> int | None:
        """The number in `confluent:version`, if there is one."""
        try:
            return int(self.texts[CONFLUENT_VERSION])
        except (KeyError, ValueError):
            return None

    @property
    def reserved_fields(self) -> frozenset[str]:
        """The names of fields that no later version may use."""
        names = (name.strip() for name in self.texts.get(RESERVED_FIELDS, "").split(","))
        return frozenset(name for name in names if name)


class Rule(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """One rule of a rule set. Kind, mode and `disabled` always have a value."""

    name: str | None = None
    doc: str | None = None
    kind: Literal["TRANSFORM", "CONDITION"] | None = None
    mode: Literal["UPGRADE", "DOWNGRADE", "UPDOWN", "WRITE", "READ", "WRITEREAD"] | None = None
    type: str | None = None
    tags: list[str] | None = None
    params: dict[str, Scalar] | None = None
    expr: str | None = None
    on_success: str | None = None
    on_failure: str | None = None
    disabled: bool | None = None

    def __post_init__(self) -> None:
        force_setattr(self, "kind", self.kind or "TRANSFORM")
        force_setattr(self, "mode", self.mode or "WRITEREAD")
        force_setattr(self, "tags", _sorted_set(self.tags or ()) or None)
        values = self.params or {}
        params = {name: _text(values[name]) for name in _sorted(values)}
        force_setattr(self, "params", params or None)
        for field in ("doc", "expr", "on_success", "on_failure"):
            force_setattr(self, field, getattr(self, field) or None)
        force_setattr(self, "disabled", bool(self.disabled))


class RuleSet(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Migration, domain and encoding rules. Empty lists are None."""

    migration_rules: list[Rule] | None = None
    domain_rules: list[Rule] | None = None
    encoding_rules: list[Rule] | None = None
    enable_at: str | None = None

    def __post_init__(self) -> None:
        for field in ("migration_rules", "domain_rules", "encoding_rules"):
            force_setattr(self, field, getattr(self, field) or None)

    @property
    def rules(self) -> Sequence[Rule]:
        """All rules, in the order in which GUIDs count them."""
        return [*(self.migration_rules or ()), *(self.domain_rules or ()), *(self.encoding_rules or ())]

    def has_type(self, rule_type: str) -> bool:
        """Whether a rule is of this type."""
        return any(rule.type == rule_type for rule in self.rules)


def without_empty(rule_set: RuleSet | None) -> RuleSet | None:
    """None for a rule set that says nothing. With one, a schema would have the GUID that it has with empty metadata,
    and that of no schema without it."""
    return None if rule_set == RuleSet() else rule_set


def merge_metadata(older: Metadata | None, newer: Metadata | None) -> Metadata | None:
    """Both together; where both have a value, the newer one."""
    if older is None or newer is None:
        return newer if older is None else older
    return Metadata(
        tags={**(older.tags or {}), **(newer.tags or {})},
        properties={**(older.properties or {}), **(newer.properties or {})},
        sensitive=[*(older.sensitive or ()), *(newer.sensitive or ())],
    )


def with_confluent_version(metadata: Metadata | None, version: int) -> Metadata:
    """The metadata with the property `confluent:version`."""
    metadata = metadata or Metadata()
    return replace(metadata, properties={**metadata.texts, CONFLUENT_VERSION: str(version)})


def without_confluent_version(metadata: Metadata) -> Metadata:
    """The metadata without the property `confluent:version`."""
    properties: dict[str, Any] = {name: text for name, text in metadata.texts.items() if name != CONFLUENT_VERSION}
    return replace(metadata, properties=properties)


def merge_rule_sets(older: RuleSet | None, newer: RuleSet | None) -> RuleSet | None:
    """Both together; a newer rule replaces an older one of the same name in the same list."""
    if older is None or newer is None:
        return newer if older is None else older
    return RuleSet(
        migration_rules=_merge_rules(older.migration_rules, newer.migration_rules),
        domain_rules=_merge_rules(older.domain_rules, newer.domain_rules),
        encoding_rules=_merge_rules(older.encoding_rules, newer.encoding_rules),
        enable_at=newer.enable_at or older.enable_at,
    )


def without_rules(rule_set: RuleSet, names: Sequence[str]) -> RuleSet:
    """The rule set without the rules of these names."""

    def kept(rules: list[Rule] | None) -> list[Rule]:
        return [rule for rule in rules or () if rule.name not in names]

    return replace(
        rule_set,
        migration_rules=kept(rule_set.migration_rules),
        domain_rules=kept(rule_set.domain_rules),
        encoding_rules=kept(rule_set.encoding_rules),
    )


def check_rule_set(rule_set: RuleSet | None) -> None:
    """Raises a `RegistryError` (42210) that names the first rule which clients could not apply."""
    if rule_set is None:
        return
    names: set[str] = set()
    for rules, modes, kind in (
        (rule_set.migration_rules, ("UPGRADE", "DOWNGRADE", "UPDOWN"), "Migration"),
        (rule_set.domain_rules, ("WRITE", "READ", "WRITEREAD"), "Domain"),
        (rule_set.encoding_rules, ("WRITE", "READ", "WRITEREAD"), "Encoding"),
    ):
        for rule in rules or ():
            if rule.name is not None and rule.name in names:
                raise registry_error(INVALID_RULE_SET, f"Found rule with duplicate name '{rule.name}'")
            names.add(_valid_rule_name(rule))
            if rule.type is None:
                raise registry_error(INVALID_RULE_SET, f"Rule '{rule.name}' has no type")
            for action in (rule.on_success, rule.on_failure):
                if action is not None and "," in action and rule.mode not in ("WRITEREAD", "UPDOWN"):
                    message = f"Rule '{rule.name}': several actions are valid only with WRITEREAD and UPDOWN"
                    raise registry_error(INVALID_RULE_SET, message)
            if rule.mode not in modes:
                raise registry_error(INVALID_RULE_SET, f"{kind} rules can only be {', '.join(modes)}")


def _valid_rule_name(rule: Rule) -> str:
    name = rule.name
    if not name:
        raise registry_error(INVALID_RULE_SET, "Missing rule name" if name is None else "Empty rule name")
    if len(name) > _RULE_NAME_LENGTH_MAX:
        raise registry_error(INVALID_RULE_SET, f"Rule name is longer than {_RULE_NAME_LENGTH_MAX} characters")
    if not (name[0].isalpha() or name[0] == "_"):
        raise registry_error(INVALID_RULE_SET, f"Illegal initial character in rule name: {name}")
    if not all(character.isalnum() or character in "_-" for character in name):
        raise registry_error(INVALID_RULE_SET, f"Illegal character in rule name: {name}")
    return name


def _merge_rules(older: list[Rule] | None, newer: list[Rule] | None) -> list[Rule]:
    names = {rule.name for rule in newer or ()}
    return [*(rule for rule in older or () if rule.name not in names), *(newer or ())]


def _sorted(texts: Any) -> list[str]:
    """In Java's order of strings: by UTF-16 code units."""
    return sorted(texts, key=lambda text: text.encode("utf-16-be", "surrogatepass"))


def _sorted_set(texts: Any) -> list[str]:
    return _sorted(set(texts))


def _text(value: Scalar) -> str:
    """A JSON scalar as text: clients may send numbers and booleans as property values."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
