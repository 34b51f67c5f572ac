"""Configs of the top level, of contexts and of subjects."""

from typing import Any, get_args

from msgspec import UNSET
from msgspec.structs import replace

from ottla.registry.state.decision import Decision
from ottla.registry.state.errors import (
    INVALID_COMPATIBILITY_LEVEL,
    SUBJECT_CONFIG_NOT_FOUND,
    invalid_subject,
    registry_error,
    subject_not_found,
)
from ottla.registry.state.metadata import check_rule_set
from ottla.registry.state.qualified_subjects import is_default_context, is_valid_subject, normalize_subject
from ottla.registry.state.record_formats import CompatibilityLevel, Config, ConfigKey, Record
from ottla.registry.state.registry_image import RegistryImage
from ottla.registry.state.requests import CONFIG_FIELDS, ConfigUpdate
from ottla.registry.state.scopes import check_writable, config_in_scope, own_config


def get_config(image: RegistryImage, subject: str | None = None, *, default_to_global: bool = False) -> Config:
    """GET /config and /config/{subject}. `subject` may be a context; None is the top level."""
    subject = _scope(subject)
    config = config_in_scope(image, subject) if default_to_global else own_config(image, subject)
    if config is None:
        raise registry_error(
            SUBJECT_CONFIG_NOT_FOUND, f"Subject '{subject}' does not have subject-level compatibility configured"
        )
    return config


def update_config(image: RegistryImage, subject: str | None, update: ConfigUpdate) -> Decision[ConfigUpdate]:
    """PUT /config and /config/{subject}: the answer is the whole config."""
    if subject is not None and not is_valid_subject(subject, config_or_mode=True):
        raise invalid_subject(subject)
    changes = {CONFIG_FIELDS[name]: getattr(update, name) for name in update.__struct_fields__}
    changes = {name: value for name, value in changes.items() if value is not UNSET}
    _check(changes)
    subject = _scope(subject)
    check_writable(image, subject)
    config = replace(image.configs.get(subject, Config()), **changes)
    record = Record(ConfigKey(subject), replace(config, subject=subject))
    return Decision((record,), ConfigUpdate.of(config))


def delete_config(image: RegistryImage, subject: str | None = None) -> Decision[Config]:
    """DELETE /config and /config/{subject}: the answer is what was deleted."""
    subject = _scope(subject)
    config = own_config(image, subject)
    if config is None:
        raise subject_not_found(subject)
    check_writable(image, subject)
    return Decision((Record(ConfigKey(subject), None),) if subject in image.configs else (), config)


def _scope(subject: str | None) -> str | None:
    """The spelling under which a config is stored; None for the top level."""
    return None if subject is None or is_default_context(subject) else normalize_subject(subject)


def _check(changes: dict[str, Any]) -> None:
    level = changes.get("compatibility_level")
    if level is not None:
        changes["compatibility_level"] = level.upper()
        if level.upper() not in get_args(CompatibilityLevel):
            names = ", ".join(name.lower() for name in get_args(CompatibilityLevel))
            message = f"Invalid compatibility level. Valid values are {names}"
            raise registry_error(INVALID_COMPATIBILITY_LEVEL, message)
    policy = changes.get("compatibility_policy")
    if policy is not None:
        changes["compatibility_policy"] = policy.upper()
        if policy.upper() not in ("STRICT", "LENIENT"):
            message = "Invalid compatibility policy. Valid values are strict and lenient"
            raise registry_error(INVALID_COMPATIBILITY_LEVEL, message)
    for name in ("default_rule_set", "override_rule_set"):
        check_rule_set(changes.get(name))
