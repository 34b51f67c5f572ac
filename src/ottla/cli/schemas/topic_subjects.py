"""The subjects of a topic: their latest version, and the compatibility level."""

from typing import Any

from ottla.registry.serde import registry_calls as calls
from ottla.registry.serde.errors import RegistryAnswerError
from ottla.registry.serde.registry_client import RegistryClient

_NOT_FOUND = 404


def topic_subjects(registry: RegistryClient, topic: str) -> list[dict[str, Any]]:
    """The subjects for the topic's keys and values that exist."""
    found = []
    for subject in (f"{topic}-key", f"{topic}-value"):
        try:
            latest = registry.version(subject)
        except RegistryAnswerError as error:
            if error.status == _NOT_FOUND:
                continue
            raise
        config = registry.ask(calls.config(subject))
        found.append(
            {
                "subject": subject,
                "version": latest.version,
                "id": latest.id,
                "type": latest.schema.type,
                "compatibility": config.get("compatibilityLevel"),
            }
        )
    return found
