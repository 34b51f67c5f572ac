"""Bodies of answers, with Confluent's field names and order. Empty fields are left out."""

from msgspec import Struct

from ottla.registry.schemas.schema import Reference
from ottla.registry.state.metadata import Metadata, RuleSet
from ottla.registry.state.record_formats import Config, Lifecycle, ModeValue
from ottla.registry.state.requests import SchemaTags


class SubjectSchema(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A version of a subject: the answer to look-ups by subject."""

    subject: str
    version: int
    id: int
    guid: str
    schema_type: str
    references: list[Reference] | None = None
    metadata: Metadata | None = None
    schema: str = ""
    schema_tags: list[SchemaTags] | None = None
    ts: int | None = None
    deleted: bool | None = None
    aliases: list[str] | None = None
    associations: "list[Association] | None" = None
    rule_set: RuleSet | None = None


class SchemaOfId(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A schema found by id or GUID."""

    subject: str | None = None
    version: int | None = None
    guid: str = ""
    schema_type: str = ""
    schema: str = ""
    references: list[Reference] | None = None
    metadata: Metadata | None = None
    rule_set: RuleSet | None = None
    schema_tags: list[SchemaTags] | None = None
    max_id: int | None = None
    ts: int | None = None
    deleted: bool | None = None


class RegisteredSchema(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The answer to a registration."""

    id: int
    version: int | None = None
    guid: str = ""
    schema_type: str = ""
    references: list[Reference] | None = None
    metadata: Metadata | None = None
    rule_set: RuleSet | None = None
    schema: str = ""
    ts: int | None = None
    deleted: bool | None = None


class SubjectVersion(Struct, frozen=True):
    """A version of a subject that has a certain schema."""

    subject: str
    version: int


class ContextId(Struct, frozen=True):
    """The id of a schema in a context."""

    context: str
    id: int


class Settings(Struct, frozen=True, rename="camel"):
    """All configs and modes as they were set, with their subjects, and the highest id that each context gave out."""

    configs: list[Config]
    modes: list[ModeValue]
    highest_ids: list[ContextId]


class CompatibilityAnswer(Struct, frozen=True, omit_defaults=True):
    """Whether a schema is compatible, and if asked for, why not."""

    is_compatible: bool
    messages: list[str] | None = None


class ModeAnswer(Struct, frozen=True, omit_defaults=True):
    """A mode."""

    mode: str | None = None


class Association(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """An association of a resource with a subject."""

    subject: str
    guid: str
    resource_name: str
    resource_namespace: str
    resource_id: str
    resource_type: str
    association_type: str
    lifecycle: Lifecycle
    frozen: bool | None = None
    """Only where it differs from what the lifecycle implies."""
    create_ts: int | None = None
    update_ts: int | None = None


class AssociationAnswer(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """One association in the answer to a change."""

    subject: str
    association_type: str
    lifecycle: Lifecycle
    frozen: bool | None = None
    schema: SubjectSchema | None = None


class AssociationsAnswer(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The answer to a change of a resource's associations."""

    resource_name: str | None = None
    resource_namespace: str | None = None
    resource_id: str | None = None
    resource_type: str | None = None
    associations: list[AssociationAnswer] | None = None
