"""Bodies of requests. Fields that are not listed are ignored, as in Confluent's registry."""

from typing import Literal

from msgspec import UNSET, Struct, UnsetType

from ottla.registry.schemas.parsed_schema import SchemaEntity
from ottla.registry.schemas.schema import AVRO, Reference
from ottla.registry.state.metadata import Metadata, RuleSet
from ottla.registry.state.record_formats import Config, Int32


class SchemaTags(Struct, frozen=True, rename="camel"):
    """Tags of one place in a schema."""

    schema_entity: SchemaEntity
    tags: list[str]


class SchemaRequest(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A schema to register, to look up or to check."""

    schema: str | None = None
    schema_type: str | None = None
    references: list[Reference] | None = None
    metadata: Metadata | None = None
    rule_set: RuleSet | None = None
    version: Int32 | None = None
    """The version to register: -1 to keep it in the metadata, a positive one as it must be; None or 0 for the next."""
    id: Int32 | None = None
    """The id to register the schema with; only in the modes IMPORT and FORWARD."""
    schema_tags_to_add: list[SchemaTags] | None = None
    schema_tags_to_remove: list[SchemaTags] | None = None
    propagate_schema_tags: bool | None = None

    @property
    def type(self) -> str:
        """The language of the schema; Avro unless said otherwise."""
        return AVRO if self.schema_type is None else self.schema_type


class TagsRequest(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Tags and rules to add to a version or to remove from it, which makes a new version."""

    new_version: Int32 | None = None
    tags_to_add: list[SchemaTags] | None = None
    tags_to_remove: list[SchemaTags] | None = None
    metadata: Metadata | None = None
    rule_set: RuleSet | None = None
    rules_to_merge: RuleSet | None = None
    rules_to_remove: list[str] | None = None


class ConfigUpdate(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Changes of a config, and the answer to them: fields that are absent stay, fields that are null are removed."""

    alias: str | UnsetType | None = UNSET
    alias_for_deks: str | UnsetType | None = UNSET
    normalize: bool | UnsetType | None = UNSET
    validate_fields: bool | UnsetType | None = UNSET
    validate_new_schemas: bool | UnsetType | None = UNSET
    validate_rules: bool | UnsetType | None = UNSET
    compatibility: str | UnsetType | None = UNSET
    compatibility_policy: str | UnsetType | None = UNSET
    compatibility_group: str | UnsetType | None = UNSET
    default_metadata: Metadata | UnsetType | None = UNSET
    override_metadata: Metadata | UnsetType | None = UNSET
    default_rule_set: RuleSet | UnsetType | None = UNSET
    override_rule_set: RuleSet | UnsetType | None = UNSET

    @classmethod
    def of(cls, config: Config) -> "ConfigUpdate":
        """The whole config in the form of an update, as PUT answers it."""
        fields = {name: getattr(config, CONFIG_FIELDS[name]) for name in cls.__struct_fields__}
        return cls(**{name: value for name, value in fields.items() if value is not None})


CONFIG_FIELDS = {
    name: "compatibility_level" if name == "compatibility" else name for name in ConfigUpdate.__struct_fields__
}
"""The field of `Config` for each field of an update."""


class ModeUpdate(Struct, frozen=True, omit_defaults=True):
    """A mode to set, and the answer to it; null removes the mode."""

    mode: str | UnsetType | None = UNSET


class AssociationInfo(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """One association of a resource to create or to update."""

    subject: str | None = None
    association_type: str | None = None
    lifecycle: Literal["STRONG", "WEAK"] | None = None
    frozen: bool | None = None
    schema: SchemaRequest | None = None
    normalize: bool | None = None


class AssociationRequest(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Associations of one resource to create or to update."""

    resource_name: str | None = None
    resource_namespace: str | None = None
    resource_id: str | None = None
    resource_type: str | None = None
    associations: list[AssociationInfo] | None = None
