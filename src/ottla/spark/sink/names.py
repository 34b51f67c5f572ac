"""The names of a sink on the brokers: transactional ids of its fence and tasks, and the group with its decisions.

All begin with `ottla-spark-` and the id of the sink, so that ACLs can allow them by prefix, and
`ottla transactions list` and `ottla groups list` show them together.
"""

import re
from typing import Final

from ottla.client.options import OptionError

PREFIX: Final = "ottla-spark-"
TOKEN_BYTES: Final = 8
_SINK_ID: Final = re.compile(r"(?!.*[.](task|part)-)[A-Za-z0-9._-]{1,120}")
_TASK: Final = ".task-"
_PART: Final = ".part-"
"""Not allowed in the id of a sink, so that names of different sinks cannot collide."""


def checked_sink_id(sink_id: str) -> str:
    """The id, if it is valid; raises `OptionError`."""
    if not _SINK_ID.fullmatch(sink_id):
        raise OptionError(
            f"sinkId={sink_id!r} is not valid; use up to 120 letters, digits, dots, dashes and underscores,"
            f" but not {_TASK} or {_PART}"
        )
    return sink_id


def fence_id(sink_id: str) -> str:
    """The transactional id of the driver that decides for the sink; initializing it fences earlier drivers."""
    return PREFIX + sink_id


def task_id(sink_id: str, token: str) -> str:
    """A transactional id for tasks of the sink, unique by its token."""
    return f"{PREFIX}{sink_id}{_TASK}{token}"


def token_of(transactional_id: str) -> str:
    """The unique part of the transactional id of a task."""
    return transactional_id.rpartition(_TASK)[2]


def task_ids_pattern(sink_id: str) -> str:
    """A regular expression for the transactional ids of all tasks of the sink."""
    return f"{PREFIX}{sink_id}{_TASK}".replace(".", "[.]") + "[0-9a-f]+"


def group_id(sink_id: str, number: int) -> str:
    """The group whose committed offsets store the decision; further groups, from 1 on, if one is too small."""
    return fence_id(sink_id) if number == 0 else f"{fence_id(sink_id)}{_PART}{number}"
