"""What a sink is called on the brokers: its fence, its tasks' transactional ids, the group that keeps its decisions.

All begin with `ottla-spark-` and the sink's id, so that access rules can allow them by prefix and people can find them
with `ottla transactions list` and `ottla groups list`.
"""

import re
from typing import Final

from ottla.client.options import OptionError

PREFIX: Final = "ottla-spark-"
TOKEN_BYTES: Final = 8
_SINK_ID: Final = re.compile(r"(?!.*[.](task|part)-)[A-Za-z0-9._-]{1,120}")
_TASK: Final = ".task-"
_PART: Final = ".part-"
"""Not allowed in a sink's id, so that nothing of one sink is taken for another's."""


def checked_sink_id(sink_id: str) -> str:
    """The id, if a sink can be called so; raises `OptionError`."""
    if not _SINK_ID.fullmatch(sink_id):
        raise OptionError(
            f"sinkId={sink_id!r} is no name for a sink; use up to 120 letters, digits, dots, dashes and underscores,"
            f" but not {_TASK} or {_PART}"
        )
    return sink_id


def fence_id(sink_id: str) -> str:
    """The transactional id of whoever decides for the sink; taking it stops all who did before."""
    return PREFIX + sink_id


def task_id(sink_id: str, token: str) -> str:
    """A transactional id for the sink's tasks, made different by its token."""
    return f"{PREFIX}{sink_id}{_TASK}{token}"


def token_of(transactional_id: str) -> str:
    """What makes a task's transactional id different."""
    return transactional_id.rpartition(_TASK)[2]


def task_ids_pattern(sink_id: str) -> str:
    """A regular expression for the transactional ids of all of the sink's tasks."""
    return f"{PREFIX}{sink_id}{_TASK}".replace(".", "[.]") + "[0-9a-f]+"


def group_id(sink_id: str, number: int) -> str:
    """The group whose committed offsets are the sink's decision; further ones, from 1 on, if one is too small."""
    return fence_id(sink_id) if number == 0 else f"{fence_id(sink_id)}{_PART}{number}"
