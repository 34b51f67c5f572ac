"""All server-side groups (KIP-848) of one partition of `__consumer_offsets`.

Pure. A heartbeat is the only request that members make: it creates or changes the member, moves the group's epoch if a
subscription or a topic changed, computes the target for that epoch, and brings the member a step nearer to it. Members
that are silent, or do not give up what they must, are removed by timers. Members that speak the classic protocol are
served by `mixed_group_state.py`; classic groups and offsets by `group_shard_state.py`; the two sides meet in
`consumer_offsets_shard_state.py`.
"""

from base64 import urlsafe_b64encode
from collections.abc import Callable, Hashable, Iterator
from dataclasses import replace
from enum import IntEnum
from typing import Final, NamedTuple

from ottla.coordination.groups.consumer.decision import Decision, Refusal, tombstones
from ottla.coordination.groups.consumer.group import ConsumerGroup, Member, Topics, as_assignment
from ottla.coordination.groups.consumer.heartbeat_checks import check_epoch, check_heartbeat, check_static
from ottla.coordination.groups.consumer.records import (
    CurrentRecord,
    EpochRecord,
    MemberRecord,
    MemberState,
    MemberValue,
    PartitionMetadataRecord,
    RegexRecord,
    RegexValue,
    decode,
    encode,
)
from ottla.coordination.groups.consumer.requests import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    ConsumerGroupConfig,
    ConsumerHeartbeat,
    ConsumerHeartbeatResponse,
)
from ottla.coordination.groups.consumer.topic_patterns import InvalidPatternError, TopicPattern
from ottla.coordination.runtime.deadlines import Deadlines
from ottla.coordination.runtime.effects import CoordinatorRecord, Effect, Respond
from ottla.env.ports import Random
from ottla.model.error_codes import ErrorCode

CONSUMER_TYPE: Final = "consumer"
_REGEXES_AT_ONCE: Final = 4
"""More patterns than this are resolved by several heartbeats, so that none takes long where there are many topics."""
_PATTERNS_KEPT_MAX: Final = 32
NOT_WRITTEN: Final = ConsumerHeartbeatResponse(error=ErrorCode.COORDINATOR_NOT_AVAILABLE)

MayDescribe = Callable[[str], bool]
"""Whether the one who sends a heartbeat may know of this topic."""

ClaimGroup = Callable[[str, int], Decision | None]
"""Takes the group of this id over from the classic side at that time: a decision that begins with its conversion, None
if there is no such group, or a `Refusal` if there is and it must stay what it is."""


class Timer(IntEnum):
    """What a member has to do in time."""

    SESSION = 0
    """To be heard of."""
    REBALANCE = 1
    """To give up what it must."""
    JOIN = 2
    """To join again, for a member that speaks the classic protocol and was told to."""
    SYNC = 3
    """To ask for its assignment, for such a member that has joined."""


class TimerKey(NamedTuple):
    """Whose timer, and which."""

    timer: Timer
    group_id: str
    member_id: str


class ConsumerGroups:
    """The groups, by id. `replay` is the only way into them; what is not written is timers, and what was looked at."""

    def __init__(
        self, config: ConsumerGroupConfig, random: Random, claim_group: ClaimGroup = lambda group_id, now_ms: None
    ) -> None:
        self.config = config
        self._random = random
        self._claim_group = claim_group
        self.groups: dict[str, ConsumerGroup] = {}
        self.topics: Topics = {}
        self._topics_version = 0
        self._seen_version: dict[str, int] = {}
        """The version of the topics that a group was last compared with; without one, it has to be."""
        self._resolved_version: dict[str, dict[str, int]] = {}
        """The version of the topics that each pattern of a group was last resolved with, if that was done here."""
        self._patterns: dict[str, TopicPattern] = {}
        self._deadlines: Deadlines[TimerKey] = Deadlines()
        self._unrevoked_epoch: dict[TimerKey, int] = {}
        """The epoch that a member must leave before its rebalance deadline."""

    def heartbeat(
        self,
        request: ConsumerHeartbeat,
        now_ms: int,
        token: Hashable,
        may_describe: MayDescribe = lambda topic: True,
    ) -> list[Effect]:
        """Joins, lives on, or leaves. `may_describe` bounds what a pattern can stand for."""
        try:
            check_heartbeat(request)
            if request.member_epoch in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH):
                decision, response = self._leave(request, now_ms)
            else:
                decision, response = self._live(request, now_ms, may_describe)
        except Refusal as refusal:
            return [Respond(token, ConsumerHeartbeatResponse(error=refusal.code, error_message=str(refusal)))]
        return decision.effects(Respond(token, response), on_failure=(Respond(token, NOT_WRITTEN),))

    # Living

    def _live(
        self, request: ConsumerHeartbeat, now_ms: int, may_describe: MayDescribe
    ) -> tuple[Decision, ConsumerHeartbeatResponse]:
        is_joining = request.member_epoch == JOIN_EPOCH
        decision = self._decide_on(request.group_id, now_ms, is_joining=is_joining)
        members = decision.group.members
        if len(members) >= self.config.max_size and request.member_id not in members:
            raise Refusal(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"Group {request.group_id} has its maximum of {self.config.max_size} members.",
            )
        member_id = request.member_id or self._new_member_id()
        before = self._member(decision, request, member_id, is_joining=is_joining)
        changed = self._subscribe(decision, before, request, now_ms, may_describe)
        decision.update_target(self.topics, now_ms, self.config.assignment_interval_ms)
        after = decision.reconcile(member_id, self.topics, request.owned_partitions, subscription_changed=changed)
        self._start_timers(request.group_id, after, now_ms, has_moved=after.current != before.current)
        has_news = is_joining or request.is_full or after.assigned != before.assigned
        return decision, ConsumerHeartbeatResponse(
            member_id=member_id,
            member_epoch=after.member_epoch,
            heartbeat_interval_ms=self.config.heartbeat_interval_ms,
            assignment=as_assignment(after.assigned) if has_news else None,
        )

    def _decide_on(self, group_id: str, now_ms: int, *, is_joining: bool) -> Decision:
        group = self.groups.get(group_id)
        if group is not None:
            return Decision(group)
        if not is_joining:
            raise Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {group_id} not found.")
        return self._claim_group(group_id, now_ms) or Decision(ConsumerGroup(group_id))

    def _new_member_id(self) -> str:
        return urlsafe_b64encode(self._random.randbytes(16)).decode().rstrip("=")

    def _member(self, decision: Decision, request: ConsumerHeartbeat, member_id: str, *, is_joining: bool) -> Member:
        """The member that speaks, which may be new, or take the place of a static one that left."""
        group = decision.group
        if request.instance_id is None:
            member = group.members.get(member_id)
            if member is None:
                if is_joining:
                    return Member(member_id=member_id)
                raise Refusal(
                    ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group.group_id}."
                )
        else:
            member = group.static_member(request.instance_id)
            if is_joining:
                if member is None:
                    return group.members.get(member_id) or Member(member_id=member_id)
                if member.classic is None and member.member_epoch != STATIC_LEAVE_EPOCH:
                    raise Refusal(
                        ErrorCode.UNRELEASED_INSTANCE_ID,
                        f"Static member {member_id} with instance id {request.instance_id} cannot join: the instance "
                        f"id belongs to member {member.member_id}, which has not left.",
                    )
                return decision.replace_static(member, member_id)
            member = check_static(member, member_id, request.instance_id)
        check_epoch(member, request)
        return member

    def _subscribe(
        self,
        decision: Decision,
        before: Member,
        request: ConsumerHeartbeat,
        now_ms: int,
        may_describe: MayDescribe,
    ) -> bool:
        """Takes down what the member says of itself, and moves the group's epoch if that, or a topic, changed.

        Answers whether this member's subscription changed.
        """
        said = _merged(before.said, request)
        if said != before.said or before.member_id not in decision.group.members:
            decision.write(MemberRecord(request.group_id, before.member_id, said))
        regex_changed = (said.topic_regex or "") != (before.said.topic_regex or "")
        has_new_topics = self._update_regexes(decision, before.said.topic_regex, said.topic_regex, now_ms, may_describe)
        changed = regex_changed or said.topic_names != before.said.topic_names
        is_unseen = self._seen_version.get(request.group_id) != self._topics_version
        if changed or has_new_topics or (is_unseen and decision.has_new_metadata(self.topics)):
            decision.bump_epoch(self.topics)
        else:
            # Not before a heartbeat finds it so: a new epoch may fail to be written.
            self._seen_version[request.group_id] = self._topics_version
        return changed

    def _update_regexes(
        self, decision: Decision, old: str | None, new: str | None, now_ms: int, may_describe: MayDescribe
    ) -> bool:
        """Forgets a pattern that nobody has any more, resolves a new one, and all of them when that is due."""
        group_id = decision.group.group_id
        if old != new and old and old in decision.group.regexes and not decision.group.subscribers_of_regex(old):
            decision.write(RegexRecord(group_id, old, None))
        regexes = {}
        if new and new not in decision.group.regexes:
            try:
                regexes[new] = self._pattern(new)
            except InvalidPatternError as invalid:
                raise Refusal(invalid.code, str(invalid)) from None
        for regex in self._outdated_regexes(decision.group, now_ms):
            try:
                regexes[regex] = self._pattern(regex)
            except InvalidPatternError:
                # Another broker took it; what it stood for then is all that is known.
                continue
        has_new_topics = False
        for regex, pattern in regexes.items():
            topics = tuple(sorted(name for name in self.topics if pattern.matches(name) and may_describe(name)))
            known = decision.group.regexes.get(regex)
            has_new_topics = has_new_topics or topics != (() if known is None else known.topics)
            value = RegexValue(topics=topics, version=self._topics_version, timestamp_ms=now_ms)
            decision.write(RegexRecord(group_id, regex, value))
        return has_new_topics

    def unmatched(self, request: ConsumerHeartbeat, now_ms: int) -> Iterator[tuple[TopicPattern, list[str]]]:
        """The work that a heartbeat's patterns would make, in slices: names to match beforehand, so that it is quick.

        Nothing depends on whether that is done: a heartbeat matches what has no verdict yet.
        """
        group = self.groups.get(request.group_id)
        texts = [] if group is None else self._outdated_regexes(group, now_ms)
        if request.topic_regex and (group is None or request.topic_regex not in group.regexes):
            texts.append(request.topic_regex)
        for text in texts:
            try:
                pattern = self._pattern(text)
            except InvalidPatternError:
                continue  # The heartbeat says so.
            for names in pattern.unmatched(self.topics):
                yield pattern, names

    def _pattern(self, text: str) -> TopicPattern:
        """The compiled pattern with its verdicts; those that were used last are kept."""
        pattern = self._patterns.pop(text, None) or TopicPattern(text)
        self._patterns[text] = pattern
        if len(self._patterns) > _PATTERNS_KEPT_MAX:
            del self._patterns[next(iter(self._patterns))]
        return pattern

    def _outdated_regexes(self, group: ConsumerGroup, now_ms: int) -> list[str]:
        """The patterns to resolve again: the topics have changed, or rights may have. The longest due come first."""
        due = []
        versions = self._resolved_version.get(group.group_id, {})
        for regex, resolved in group.regexes.items():
            age_ms = now_ms - resolved.timestamp_ms
            is_old = age_ms < 0 or age_ms >= self.config.regex_refresh_max_interval_ms
            is_outdated = versions.get(regex) != self._topics_version
            if is_old or (is_outdated and age_ms >= self.config.regex_refresh_min_interval_ms):
                due.append((resolved.timestamp_ms, regex))
        return [regex for _, regex in sorted(due)[:_REGEXES_AT_ONCE]]

    # Leaving

    def _leave(self, request: ConsumerHeartbeat, now_ms: int) -> tuple[Decision, ConsumerHeartbeatResponse]:
        decision = self._decide_on(request.group_id, now_ms, is_joining=False)
        group = decision.group
        if request.instance_id is None:
            member = group.members.get(request.member_id)
            if member is None:
                raise Refusal(
                    ErrorCode.UNKNOWN_MEMBER_ID, f"Member {request.member_id} is not a member of {request.group_id}."
                )
        else:
            member = check_static(group.static_member(request.instance_id), request.member_id, request.instance_id)
        response = ConsumerHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)
        if request.member_epoch == STATIC_LEAVE_EPOCH:
            # Whoever comes back has had these from the start, whatever its former self had since when.
            kept = {topic_id: dict.fromkeys(epochs, 0) for topic_id, epochs in member.assigned.items()}
            left = replace(member, member_epoch=STATIC_LEAVE_EPOCH, assigned=kept, revoking={})
            decision.write(CurrentRecord(group.group_id, member.member_id, left.current))
            return decision, response
        self.remove_members(decision, [member.member_id], now_ms)
        return decision, response

    def remove_members(self, decision: Decision, member_ids: list[str], now_ms: int) -> None:
        """They have left, or are thrown out."""
        decision.remove_members(member_ids, self.topics)

    # Time

    def _start_timers(self, group_id: str, member: Member, now_ms: int, *, has_moved: bool) -> None:
        self.start_session(group_id, member, now_ms)
        key = TimerKey(Timer.REBALANCE, group_id, member.member_id)
        if member.state is not MemberState.UNREVOKED or member.classic is not None:
            self._deadlines.clear(key)
            self._unrevoked_epoch.pop(key, None)
        elif has_moved or key not in self._deadlines:
            self._deadlines.set(key, now_ms + max(member.said.rebalance_timeout_ms, 0))
            self._unrevoked_epoch[key] = member.member_epoch

    def start_session(self, group_id: str, member: Member, now_ms: int) -> None:
        """The member was heard of."""
        timeout_ms = self.config.session_timeout_ms if member.classic is None else member.classic.session_timeout_ms
        self._deadlines.set(TimerKey(Timer.SESSION, group_id, member.member_id), now_ms + timeout_ms)

    def next_deadline(self) -> int | None:
        """When `on_tick` is next to be called."""
        return self._deadlines.next()

    def on_clock_set(self, by_ms: int) -> None:
        """The time that events are told has leapt by so much; nobody's patience is shorter or longer for that."""
        self._deadlines.shift(by_ms)

    def on_tick(self, now_ms: int) -> list[Effect]:
        """Removes the members whose time is up, those of a group at once."""
        late: dict[str, dict[str, None]] = {}
        while (key := self._deadlines.pop(now_ms)) is not None:
            group = self.groups.get(key.group_id)
            member = None if group is None else group.members.get(key.member_id)
            unrevoked_epoch = self._unrevoked_epoch.pop(key, None)
            if member is None or (key.timer is Timer.REBALANCE and member.member_epoch != unrevoked_epoch):
                continue
            late.setdefault(key.group_id, {})[key.member_id] = None
            # If the record cannot be written the member is still there, and so must be its timer.
            self.start_session(key.group_id, member, now_ms)
        effects: list[Effect] = []
        for group_id, member_ids in late.items():
            decision = Decision(self.groups[group_id])
            self.remove_members(decision, list(member_ids), now_ms)
            effects += decision.effects()
        return effects

    # Life cycle

    def replay(self, record: CoordinatorRecord) -> bool:
        """Applies a record; false if it is of a kind that another machine keeps."""
        decoded = decode(record)
        match decoded:
            case None:
                return False
            case EpochRecord(group_id, None):
                if self.groups.pop(group_id, None) is not None:
                    self.on_deleted(group_id)
                self._seen_version.pop(group_id, None)
                self._resolved_version.pop(group_id, None)
                return True
            case RegexRecord(group_id, regex, resolved):
                versions = self._resolved_version.setdefault(group_id, {})
                versions.pop(regex, None)
                if resolved is not None:
                    versions[regex] = resolved.version
            case MemberRecord(group_id, member_id, None):
                for timer in Timer:
                    key = TimerKey(timer, group_id, member_id)
                    self._deadlines.clear(key)
                    self._unrevoked_epoch.pop(key, None)
        is_tombstone = decoded == PartitionMetadataRecord(decoded.group_id, False) or (
            not isinstance(decoded, PartitionMetadataRecord) and decoded.value is None
        )
        group = self.groups.get(decoded.group_id)
        if group is None and not is_tombstone:
            group = self.groups[decoded.group_id] = ConsumerGroup(decoded.group_id)
            self.on_created(decoded.group_id)
        if group is not None:
            group.apply(decoded)
        return True

    def on_created(self, group_id: str) -> None:
        """A group came into being, by a record."""

    def on_deleted(self, group_id: str) -> None:
        """A group ceased to be, by a record."""

    def on_loaded(self, now_ms: int) -> list[Effect]:
        """The whole partition was replayed: everybody has as much time as at first."""
        # Versions count the changes of the topics that one machine saw; those in the log were another's.
        self._resolved_version.clear()
        for group_id, group in self.groups.items():
            for member in group.members.values():
                self._start_timers(group_id, member, now_ms, has_moved=True)
        return []

    def on_metadata(self, topics: Topics, now_ms: int) -> list[Effect]:
        """The topics are these now; the same mapping is the same topics. Groups find out what that means to them with
        their next heartbeat."""
        if topics is not self.topics:
            self._topics_version += 1
        self.topics = topics
        return []

    def deletion_records(self, group_id: str) -> tuple[CoordinatorRecord, ...]:
        """What deletes the group; its offsets are not in it."""
        group = self.groups.get(group_id)
        return () if group is None else tuple(encode(record) for record in tombstones(group))

    def check(self) -> None:
        """Raises when what must always hold does not."""
        for group in self.groups.values():
            group.check()


def _merged(said: MemberValue, request: ConsumerHeartbeat) -> MemberValue:
    """What the member has said so far, with what it says now; it is now no member of the classic kind, if it was."""
    names = said.topic_names if request.topic_names is None else tuple(sorted(set(request.topic_names)))
    is_silent = request.rebalance_timeout_ms == -1
    return MemberValue(
        instance_id=said.instance_id if request.instance_id is None else request.instance_id,
        rack_id=said.rack_id if request.rack_id is None else request.rack_id,
        client_id=request.client_id,
        client_host=request.client_host,
        topic_names=names,
        topic_regex=said.topic_regex if request.topic_regex is None else request.topic_regex,
        rebalance_timeout_ms=said.rebalance_timeout_ms if is_silent else request.rebalance_timeout_ms,
        server_assignor=said.server_assignor if request.server_assignor is None else request.server_assignor,
    )
