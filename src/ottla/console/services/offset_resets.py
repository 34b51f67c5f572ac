"""Resets of a group's offsets: a form becomes a target, a preview and a command; the previewed offsets are then set.

What a target means is decided in `ottla.operations.groups`, for the command line and for this page alike.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ottla.console.cluster.access import Access
from ottla.console.errors import InvalidFormError
from ottla.model.errors import InvalidRequestError
from ottla.model.ids import TopicPartition
from ottla.operations.durations import BadDurationError, parse_duration
from ottla.operations.groups.offset_resets import (
    BadResetError,
    ShiftBy,
    Target,
    ToEarliest,
    ToGroup,
    ToLatest,
    ToOffset,
    ToTime,
    parse_datetime,
    parse_listed,
)
from ottla.operations.groups.reset import carry_out, plan_resets, type_of_idle_group

TARGETS: Final = {
    "earliest": "Earliest: the first record of each partition",
    "latest": "Latest: the end of each partition",
    "time": "Time: the first record at or after",
    "duration": "Duration: the first record of the last",
    "shift": "Shift by: a number of records, back if negative",
    "offset": "Offset: the same in every partition",
    "partitions": "Per partition: lines of topic,partition,offset",
    "group": "From another group: its offsets",
}
"""The choices of the form, with their labels."""
WITHOUT_VALUE: Final = frozenset({"earliest", "latest"})
_LISTED: Final = frozenset({"partitions", "group"})
"""Targets that name the partitions themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetWish:
    """What the form asks for."""

    kind: str
    target: Target | ToGroup
    choices: tuple[str, ...]
    """Topics, or partitions such as orders:0,2; empty for all that the group has offsets in."""
    words: tuple[str, ...]
    """The command's words after `ottla groups reset-offsets GROUP`."""
    stdin: str | None = None
    """What the command reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetRow:
    """One partition."""

    partition: TopicPartition
    current: int | None
    new: int
    note: str

    @property
    def difference(self) -> int | None:
        """Records that are skipped, or read again if negative; None without a current offset."""
        return None if self.current is None else self.new - self.current


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetPreview:
    """What a reset would do."""

    group_type: str | None
    """None if the group does not exist: the reset creates it."""
    rows: Sequence[ResetRow]
    at_ms: int

    @property
    def changed(self) -> int:
        """How many partitions get another offset."""
        return sum(each.current != each.new for each in self.rows)

    @property
    def again(self) -> int:
        """How many offsets are read again."""
        return sum(-each.difference for each in self.rows if each.difference is not None and each.difference < 0)

    @property
    def skipped(self) -> int:
        """How many offsets are skipped."""
        return sum(each.difference for each in self.rows if each.difference is not None and each.difference > 0)

    @property
    def lines(self) -> str:
        """The new offsets, as `parse_plan` reads them: exactly what was shown is carried out."""
        return "\n".join(f"{each.partition.topic},{each.partition.partition},{each.new}" for each in self.rows)


def parse_wish(fields: Mapping[str, str], group_id: str, now_ms: int) -> ResetWish:
    """Reads the form. Raises `InvalidFormError`."""
    kind, value = fields.get("to", ""), fields.get("value", "").strip()
    if kind not in TARGETS:
        raise InvalidFormError(f"{kind!r} is not a target; choose one of {', '.join(TARGETS)}")
    if kind not in WITHOUT_VALUE and not value:
        raise InvalidFormError(f"{TARGETS[kind].partition(':')[0]}: the value must not be empty")
    choices = tuple(fields.get("topics", "").split()) if kind not in _LISTED else ()
    try:
        target, words, stdin = _target(kind, value, group_id, now_ms)
    except (BadResetError, BadDurationError) as error:
        raise InvalidFormError(str(error)) from None
    where = [word for choice in choices for word in ("--topic", choice)] or ["--all-topics"]
    return ResetWish(
        kind=kind,
        target=target,
        choices=choices,
        words=(*(() if kind in _LISTED else where), *words),
        stdin=stdin,
    )


def _target(kind: str, value: str, group_id: str, now_ms: int) -> tuple[Target | ToGroup, tuple[str, ...], str | None]:
    """The target, the words of the command, and what it reads from stdin."""
    match kind:
        case "earliest":
            return ToEarliest(), ("--to-earliest",), None
        case "latest":
            return ToLatest(), ("--to-latest",), None
        case "time":
            return parse_datetime(value), ("--to-datetime", value), None
        case "duration":
            return ToTime(now_ms - parse_duration(value)), ("--by-duration", value), None
        case "shift":
            return ShiftBy(_whole_number(value)), ("--shift-by", str(_whole_number(value))), None
        case "offset":
            offset = _whole_number(value)
            if offset < 0:
                raise InvalidFormError(f"offset: {offset} is negative; shift by a negative number to go back")
            return ToOffset(offset), ("--to-offset", str(offset)), None
        case "group":
            return ToGroup(value), ("--from-group", value), None
        case _:
            return parse_listed(value.splitlines(), "the form", group_id), ("--from-file", "-"), value


def _whole_number(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        raise InvalidFormError(f"{text!r} is not a whole number") from None
    if abs(number) >= 2**63:
        raise InvalidFormError(f"{text} is too large for an offset")
    return number


async def preview_reset(access: Access, group_id: str, wish: ResetWish) -> ResetPreview:
    """What the reset would do. Raises `GroupInUseError` while the group has members."""
    cluster = access.cluster
    group_type = await type_of_idle_group(cluster, group_id)
    all_topics = not wish.choices and wish.kind not in _LISTED
    plan = await plan_resets(cluster, group_id, group_type, wish.target, wish.choices, all_topics=all_topics)
    rows = [ResetRow(partition=each.partition, current=each.current, new=each.new, note=each.note) for each in plan]
    return ResetPreview(group_type=group_type, rows=rows, at_ms=cluster.clock.now_ms())


async def reset_offsets(access: Access, group_id: str, lines: str) -> None:
    """Sets the offsets of a preview. Raises `GroupInUseError`, and `InvalidRequestError` with what was refused."""
    try:
        target = parse_listed(lines.splitlines(), "the form", group_id)
    except BadResetError as error:
        raise InvalidFormError(str(error)) from None
    offsets = {str(each): offset for each, offset in target.offsets.items()}
    details = {"partitions": len(offsets), "offsets": dict(list(offsets.items())[:100])}
    async with access.change("reset offsets", group_id, details):
        cluster = access.cluster
        group_type = await type_of_idle_group(cluster, group_id)
        plan = await plan_resets(cluster, group_id, group_type, target, (), all_topics=False)
        refused = await carry_out(cluster, group_id, group_type, plan)
        if refused:
            raise InvalidRequestError(
                f"{len(refused)} of {len(plan)} partitions were refused: "
                + "; ".join(str(error) for error in list(refused.values())[:5])
            )
