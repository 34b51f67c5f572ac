"""What an operator chooses for a registry as a whole."""

from dataclasses import dataclass

from ottla.registry.state.record_formats import CompatibilityLevel


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryOptions:
    """Defaults where no config says otherwise, and what requests may do. Confluent's defaults."""

    compatibility_level: CompatibilityLevel = "BACKWARD"
    validate_fields: bool = False
    """Whether new schemas are checked against reserved fields."""
    validate_new_schemas: bool = True
    """Whether new schemas are parsed strictly and must not refer to deleted versions."""
    mode_mutability: bool = True
    """Whether modes may be changed."""
    allow_empty_subject: bool = True
    schemas_limit: int = 1000
    """The most schemas in one answer of GET /schemas."""
