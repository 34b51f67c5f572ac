"""What instances of a registry tell each other in their group, and which of them leads. Pure.

The group has the protocol type `sr` and the protocol `v0`. Metadata and assignments are JSON as Confluent's registry
writes them, so that instances of both can share a group. `leader_election.py` does the requests.
"""

import logging
from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Struct

from ottla.model.errors import CorruptError

_LOGGER: Final = logging.getLogger(__name__)

PROTOCOL_TYPE: Final = "sr"
PROTOCOL: Final = "v0"
NO_ERROR: Final = 0
DUPLICATE_URLS: Final = 1
_VERSION: Final = 1


class Instance(Struct, frozen=True, kw_only=True, omit_defaults=False):
    """An instance as the others reach it."""

    version: int = _VERSION
    host: str
    port: int
    is_eligible: bool = msgspec.field(name="master_eligibility", default=True)
    scheme: str = "http"
    is_leader: bool = msgspec.field(name="leader", default=False)
    """Whether it leads now; it goes on leading then, so that an instance that joins does not interrupt writes."""
    topic_id: str | None = None
    """The id of the topic that it reads. Confluent's registry does not send it, and ignores it."""

    @property
    def url(self) -> str:
        """Where it serves HTTP."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


class Assignment(Struct, frozen=True, kw_only=True, omit_defaults=False):
    """The result of an election, the same for all members."""

    version: int = _VERSION
    error: int = NO_ERROR
    member_id: str | None = msgspec.field(name="master", default=None)
    leader: Instance | None = msgspec.field(name="master_identity", default=None)


_INSTANCES: Final = msgspec.json.Decoder(Instance)
_ASSIGNMENTS: Final = msgspec.json.Decoder(Assignment)


class ElectionProtocolError(CorruptError):
    """A member of the group sent bytes that are not of this protocol."""


def read_instance(data: bytes) -> Instance:
    """Raises `ElectionProtocolError`."""
    try:
        return _INSTANCES.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ElectionProtocolError(f"a member of the group sent unreadable metadata: {error}") from error


def read_assignment(data: bytes) -> Assignment:
    """Raises `ElectionProtocolError`."""
    try:
        return _ASSIGNMENTS.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ElectionProtocolError(f"the elector sent an unreadable assignment: {error}") from error


def elect(members: Mapping[str, Instance]) -> Assignment:
    """Which member leads, by member id: the one that leads already, else the eligible one with the smallest URL.

    There is no leader if instances read different topics: one of the topics was deleted or recreated, and ids could be
    given twice.
    """
    topics = {each.topic_id for each in members.values() if each.topic_id is not None}
    if len(topics) > 1:
        _LOGGER.error(
            "registry instances %s read different topics (ids %s), so none of them may lead; a topic was deleted or"
            " recreated: stop the instances that read the wrong one",
            sorted(each.url for each in members.values()),
            sorted(topics),
        )
        return Assignment()
    eligible = {member_id: each for member_id, each in members.items() if each.is_eligible}
    leading = {member_id: each for member_id, each in eligible.items() if each.is_leader}
    candidates = leading if len(leading) == 1 else eligible
    error = NO_ERROR
    if len({each.url for each in members.values()}) < len(members):
        _LOGGER.error(
            "several registry instances advertise the same URL %s; give each its own with --advertise",
            sorted(each.url for each in members.values()),
        )
        error = DUPLICATE_URLS
    if not candidates:
        return Assignment(error=error)
    member_id, leader = min(candidates.items(), key=lambda item: item[1].url)
    return Assignment(error=error, member_id=member_id, leader=leader)


def write(value: Instance | Assignment) -> bytes:
    """The JSON of the protocol, without absent values, as Confluent's registry writes it."""
    return msgspec.json.encode({key: each for key, each in msgspec.to_builtins(value).items() if each is not None})
