"""Subject names with contexts: `:.context:name`, and `name` alone in the default context.

A context is a separate space of subjects, ids, configs and modes. `:.context:` without a name stands for the context as
a whole, `:*:` for all contexts, `:.__GLOBAL:` for the config and mode below all others.
"""

from dataclasses import dataclass
from typing import Final

from ottla.registry.state.errors import RegistryError

DEFAULT_CONTEXT: Final = "."
GLOBAL_CONTEXT: Final = ".__GLOBAL"
ALL_CONTEXTS: Final = ":*:"

_RESERVED_NAMES: Final = ("__GLOBAL", "__EMPTY")


@dataclass(frozen=True, slots=True)
class QualifiedSubject:
    """A subject in its parts. `context` starts with a dot; `name` is empty for a context as a whole."""

    context: str
    name: str

    def __str__(self) -> str:
        return self.prefix + self.name

    @property
    def prefix(self) -> str:
        """What stands before the name: empty for the default context."""
        return "" if self.context == DEFAULT_CONTEXT else f":{self.context}:"


def parse_subject(subject: str) -> QualifiedSubject:
    """The parts of a subject."""
    if subject.startswith(":."):
        context, _, name = subject[1:].partition(":")
        return QualifiedSubject(context, name)
    if subject.startswith(ALL_CONTEXTS):
        return QualifiedSubject("*", subject[len(ALL_CONTEXTS) :])
    return QualifiedSubject(DEFAULT_CONTEXT, subject)


def context_of(subject: str | None) -> str:
    """The context of a subject."""
    if not subject or subject[0] != ":":
        return DEFAULT_CONTEXT
    return parse_subject(subject).context


def normalize_subject(subject: str) -> str:
    """The one spelling under which a subject is stored: without the default context."""
    return str(parse_subject(subject)) if subject.startswith(":") else subject


def qualify_beside(parent: str, subject: str) -> str:
    """A subject that another one names in a reference or an alias: in the context of `parent` unless it has its own."""
    parts = parse_subject(subject)
    if parts.context != DEFAULT_CONTEXT:
        return str(parts)
    return parse_subject(parent).prefix + parts.name


def is_default_context(subject: str | None) -> bool:
    """Whether this stands for the default context as a whole, which is the top level of configs and modes."""
    return subject is None or parse_subject(subject) == QualifiedSubject(DEFAULT_CONTEXT, "")


def is_context(subject: str | None) -> bool:
    """Whether this stands for a context as a whole."""
    return subject is None or not parse_subject(subject).name


def normalize_context(context: str) -> str:
    """The prefix of a context that was written as `ctx`, `.ctx` or `:.ctx:`; empty for the default context.

    Raises `RegistryError` (400) if the name contains a colon.
    """
    name = context.removeprefix(":").removesuffix(":")
    if ":" in name:
        raise RegistryError(400, 400, f"Context name '{name}' cannot contain a colon")
    if not name.startswith("."):
        name = "." + name
    return QualifiedSubject(name, "").prefix


def is_valid_subject(subject: str, *, config_or_mode: bool = False) -> bool:
    """Whether a subject may be written: no control characters, no reserved name, not in `:.__GLOBAL:` or `:*:`."""
    if any(character <= "\x1f" or "\x7f" <= character <= "\x9f" for character in subject):
        return False
    if subject.startswith(ALL_CONTEXTS):
        return False
    parts = parse_subject(subject)
    return parts.name not in _RESERVED_NAMES and (config_or_mode or parts.context != GLOBAL_CONTEXT)
