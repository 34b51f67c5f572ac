"""All configs, modes and highest ids of a registry, which an export writes besides the schemas.

Ottla's registry lists them. Of another registry those are found that belong to subjects with versions, aliases,
contexts or the registry as a whole; a global config or mode that is the default counts as not set.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from ottla.cli.registry.rest_client import RefusedByRegistryError, RestClient
from ottla.registry.state.qualified_subjects import context_of, parse_subject

_NOT_SET: Final = frozenset({40401, 40408, 40409})
_GLOBAL: Final = ":.__GLOBAL:"
_DEFAULTS: Final = ({"compatibilityLevel": "BACKWARD"}, {"mode": "READWRITE"})

Setting = dict[str, Any]
"""`{"kind": "config" or "mode", "subject": …}` and its fields; the subject is None for the registry as a whole."""


def all_settings(
    registry: RestClient, schemas: Iterable[dict[str, Any]], tick: Callable[[int], None]
) -> tuple[list[Setting], dict[str, int]]:
    """Configs and modes, and the highest id that was given out in each context. `tick` gets the number of requests."""
    try:
        listed = registry.ask("GET", "ottla", "settings")
    except RefusedByRegistryError as error:
        if error.status != 404:
            raise
        return list(_asked_one_by_one(registry, schemas, tick)), _highest_ids(registry, schemas)
    settings = [{"kind": kind, "subject": None, **each} for kind in ("config", "mode") for each in listed[f"{kind}s"]]
    return settings, {each["context"]: each["id"] for each in listed["highestIds"]}


def top_settings(registry: RestClient) -> list[Setting]:
    """Configs and modes that hold for the registry as a whole."""
    return [each for each in all_settings(registry, (), lambda number: None)[0] if is_top(each)]


def is_top(setting: Setting) -> bool:
    """Whether this holds for the registry as a whole."""
    return setting["subject"] in (None, _GLOBAL)


def has_prefix(setting: Setting, prefix: str) -> bool:
    """Whether the name of its subject begins with the prefix; contexts have no name, so only an empty prefix fits."""
    return not prefix or (bool(setting["subject"]) and parse_subject(setting["subject"]).name.startswith(prefix))


def _asked_one_by_one(
    registry: RestClient, schemas: Iterable[dict[str, Any]], tick: Callable[[int], None]
) -> Iterator[Setting]:
    contexts = (f":{each}:" for each in registry.ask("GET", "contexts") if each != ".")
    aliases = (name for each in registry.schemas("", aliases=True) for name in each.get("aliases") or ())
    subjects = sorted({each["subject"] for each in schemas})
    for number, subject in enumerate(dict.fromkeys([None, _GLOBAL, *contexts, *aliases, *subjects])):
        tick(number)
        for kind in ("config", "mode"):
            try:
                found = registry.ask("GET", kind, *([] if subject is None else [subject]))
            except RefusedByRegistryError as error:
                if error.error_code not in _NOT_SET:
                    raise
                continue
            if subject not in (None, _GLOBAL) or found not in _DEFAULTS:
                yield {"kind": kind, "subject": subject, **found}


def _highest_ids(registry: RestClient, schemas: Iterable[dict[str, Any]]) -> dict[str, int]:
    known: dict[str, int] = {}
    for each in schemas:
        context = context_of(each["subject"])
        known[context] = max(known.get(context, 0), each["id"])
    for context, highest in known.items():
        found = registry.ask("GET", "schemas", "ids", highest, subject=f":{context}:", fetchMaxId=True)
        known[context] = max(highest, found.get("maxId") or 0)
    return known
