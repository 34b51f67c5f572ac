"""Paths below `/contexts/{context}`: the same routes, with subjects of that context. Pure.

`/contexts/.a/subjects/orders/versions` is `/subjects/:.a:orders/versions`.
"""

from ottla.registry.service.http_messages import Query
from ottla.registry.state.qualified_subjects import normalize_context

_WITH_PREFIX = ("schemas", "subjects")


def without_context(method: str, segments: list[str], query: Query) -> tuple[list[str], Query]:
    """The path and query without the context in front. Raises `RegistryError` (400) for a context that is not valid."""
    if len(segments) < 2 or segments[0] != "contexts":
        return segments, query
    prefix = normalize_context(segments[1])
    rest = segments[2:]
    if not rest:
        return ["contexts", prefix or segments[1]], query
    moved = list(rest)
    for place, segment in enumerate(rest[:-1]):
        names_subject = segment == "subjects" or (place == 0 and segment in ("config", "mode"))
        if names_subject and not _has_context(rest[place + 1]):
            moved[place + 1] = prefix + rest[place + 1]
            break
    if len(rest) == 1 and rest[0] in ("config", "mode") and prefix:
        moved.append(prefix)
    if rest[:2] == ["schemas", "ids"]:
        subject = query.text("subject")
        if not _has_context(subject):
            query = query.replacing("subject", prefix + subject)
    elif len(rest) == 1 and rest[0] in _WITH_PREFIX:
        prefixes = query.all("subjectPrefix") or [""]
        query = query.replacing("subjectPrefix", *(each if _has_context(each) else prefix + each for each in prefixes))
    elif rest[0] == "associations" and method in ("POST", "PUT"):
        query = query.replacing("context", prefix)
    return moved, query


def _has_context(subject: str) -> bool:
    return subject.startswith((":.", ":*:"))
