"""Finds any topic, group, subject, broker or page by a part of its name."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from ottla.console.cluster.access import Access
from ottla.model.errors import OttlaError

_FOUND_MAX: Final = 50
_SECONDS_MAX: Final = 3.0

PAGES: Final = {
    "Overview": "/",
    "Brokers": "/brokers",
    "Topics": "/topics",
    "Create topic": "/topics/~create",
    "Groups": "/groups",
    "Transactions": "/transactions",
    "Dead letters": "/dead-letters",
    "Queues": "/queues",
    "Schemas": "/schemas",
    "Pipelines": "/pipelines",
    "Users": "/security/users",
    "ACLs": "/security/acls",
    "Quotas": "/security/quotas",
    "Explain permissions": "/security/explain",
    "Jobs": "/jobs",
    "Audit": "/audit",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One thing and the kind that it is; `parts` is its address, part by part."""

    name: str
    kind: str
    parts: tuple[str, ...]


async def search(access: Access, text: str) -> list[Found]:
    """The best matches first: names that are the text, begin with it, have it at the begin of a word, or anywhere."""
    needle = text.strip().casefold()
    answers = await asyncio.gather(_topics_and_brokers(access), _groups(access), _subjects(access))
    candidates = [each for found in answers for each in found]
    candidates += [
        Found(name=name, kind="page", parts=tuple(address.strip("/").split("/"))) for name, address in PAGES.items()
    ]
    if not needle:
        return [each for each in candidates if each.kind == "page"]
    ranked = [(rank, each) for each in candidates if (rank := _rank(each.name.casefold(), needle)) is not None]
    ranked.sort(key=lambda pair: (pair[0], pair[1].name.startswith("_"), len(pair[1].name), pair[1].name))
    return [each for _, each in ranked[:_FOUND_MAX]]


def _rank(name: str, needle: str) -> int | None:
    if name == needle:
        return 0
    if name.startswith(needle):
        return 1
    at = name.find(needle)
    if at < 0:
        return None
    return 2 if not name[at - 1].isalnum() else 3


async def _topics_and_brokers(access: Access) -> Iterable[Found]:
    cluster = access.cluster
    try:
        async with asyncio.timeout(_SECONDS_MAX):
            view = await cluster.refresh()
    except (OttlaError, TimeoutError):
        view = cluster.view
    found = [Found(name=name, kind="topic", parts=("topics", name)) for name in view.topics]
    found += [
        Found(name=f"broker {each.id} {each.address}", kind="broker", parts=("brokers", str(each.id)))
        for each in view.brokers.values()
    ]
    return found


async def _groups(access: Access) -> Iterable[Found]:
    try:
        async with asyncio.timeout(_SECONDS_MAX):
            listed = await access.admin().list_groups()
    except (OttlaError, TimeoutError):
        return []
    return [Found(name=each.group_id, kind="group", parts=("groups", each.group_id)) for each in listed]


async def _subjects(access: Access) -> Iterable[Found]:
    registry = access.registry()
    if registry is None:
        return []
    try:
        async with asyncio.timeout(_SECONDS_MAX):
            names = await registry.subjects()
    except (OttlaError, TimeoutError):
        return []
    return [Found(name=name, kind="subject", parts=("schemas", name)) for name in names]
