"""Which config and which mode hold for a subject: its own, its context's, the top level's, that of `:.__GLOBAL:`."""

from typing import Final

from msgspec.structs import replace

from ottla.registry.state.errors import operation_not_permitted
from ottla.registry.state.qualified_subjects import (
    DEFAULT_CONTEXT,
    GLOBAL_CONTEXT,
    context_of,
    normalize_subject,
    parse_subject,
    qualify_beside,
)
from ottla.registry.state.record_formats import Config, Mode
from ottla.registry.state.registry_image import RegistryImage

DEFAULT_MODE: Final[Mode] = "READWRITE"

_GLOBAL: Final = f":{GLOBAL_CONTEXT}:"

_INHERITED: Final = (
    "normalize",
    "validate_fields",
    "validate_new_schemas",
    "validate_rules",
    "compatibility_policy",
    "compatibility_group",
)
"""What a subject takes over from the top level where its own config does not say it."""


def own_config(image: RegistryImage, subject: str | None) -> Config | None:
    """The config that was set for exactly this subject or context; the top level always has one."""
    config = image.configs.get(subject)
    if config is not None:
        return _with_level(image, config)
    return _default_config(image) if subject is None or context_of(subject) == GLOBAL_CONTEXT else None


def config_in_scope(image: RegistryImage, subject: str | None) -> Config:
    """The config that holds for a subject."""
    if subject is None:
        return _inherited_config(image, None)
    config = own_config(image, subject)
    if config is None:
        return _inherited_config(image, subject)
    top = own_config(image, None) or _default_config(image)
    return replace(config, **{name: getattr(top, name) for name in _INHERITED if getattr(config, name) is None})


def own_mode(image: RegistryImage, subject: str | None) -> Mode | None:
    """The mode that was set for exactly this subject or context; the top level always has one."""
    mode = image.modes.get(subject)
    if mode is None and (subject is None or context_of(subject) == GLOBAL_CONTEXT):
        return DEFAULT_MODE
    return mode


def mode_in_scope(image: RegistryImage, subject: str | None) -> Mode:
    """The mode that holds for a subject."""
    for scope in (subject, _parent(subject), _GLOBAL):
        mode = image.modes.get(scope)
        if mode is not None:
            return mode
    return DEFAULT_MODE


def is_importing(mode: Mode) -> bool:
    """Whether schemas come with ids of another registry and are taken as they are."""
    return mode in ("IMPORT", "FORWARD")


def check_writable(image: RegistryImage, subject: str | None) -> None:
    """Raises a `RegistryError` (42205) if the mode is read-only."""
    if mode_in_scope(image, subject) in ("READONLY", "READONLY_OVERRIDE"):
        context = parse_subject(subject).prefix if subject is not None else ""
        raise operation_not_permitted(f"Subject {subject} in context {context} is in read-only mode")


def actual_subject(image: RegistryImage, subject: str) -> str:
    """The subject that a request means: in its one spelling, or the one that it is an alias for."""
    subject = normalize_subject(subject)
    config = image.configs.get(subject) if subject else None
    return qualify_beside(subject, config.alias) if config is not None and config.alias else subject


def _inherited_config(image: RegistryImage, subject: str | None) -> Config:
    for scope in (subject, _parent(subject), _GLOBAL):
        config = image.configs.get(scope)
        if config is not None:
            return _with_level(image, config)
    return _default_config(image)


def _parent(subject: str | None) -> str | None:
    """The context of a subject; the default context is the top level."""
    if subject is None:
        return None
    parts = parse_subject(subject)
    return None if parts.context == DEFAULT_CONTEXT else parts.prefix


def _with_level(image: RegistryImage, config: Config) -> Config:
    if config.compatibility_level is not None:
        return config
    return replace(config, compatibility_level=image.options.compatibility_level)


def _default_config(image: RegistryImage) -> Config:
    return Config(compatibility_level=image.options.compatibility_level)
