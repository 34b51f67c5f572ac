"""All consumer groups (KIP-848) of one partition of `__consumer_offsets`.

Pure. A heartbeat is the only request of their members: it creates or changes the member, bumps the group epoch if a
subscription or a topic changed, computes the target for that epoch, and brings the member a step nearer to it. Members
that are silent, or do not give up the partitions they must, are removed by deadlines. Members that speak the classic
protocol are served by `classic_members_state.py`.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from enum import IntEnum
from typing import Final, NamedTuple, Protocol

from ottla.coordination.groups.consumer.group import ConsumerGroup, GroupState, Member, as_assignment
from ottla.coordination.groups.consumer.group_change import GroupChange, Refusal, tombstones
from ottla.coordination.groups.consumer.heartbeat_checks import check_epoch, check_heartbeat, check_static
from ottla.coordination.groups.consumer.records import (
    RECORD_TYPES,
    CurrentRecord,
    EpochRecord,
    GroupRecord,
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
    MODERN_COMMIT_VERSION,
    STATIC_LEAVE_EPOCH,
    ConsumerGroupConfig,
    ConsumerHeartbeat,
    ConsumerHeartbeatResponse,
    OwnConfigOf,
)
from ottla.coordination.groups.consumer.topic_patterns import TopicPattern
from ottla.coordination.groups.consumer.views import commit_verdict, fetch_refusal
from ottla.coordination.groups.group_kind import AnyCommit, CommitVerdict, ExpiringGroup, Subscribes, Topics
from ottla.coordination.groups.requests import ListedGroup, OffsetFetchRequest, TransactionalCommitRequest
from ottla.coordination.runtime.deadlines import Deadlines
from ottla.coordination.runtime.effects import CoordinatorRecord, Effect, Respond
from ottla.env.ports import Random
from ottla.model.base64_ids import id_text, new_id
from ottla.model.error_codes import ErrorCode
from ottla.model.re2_patterns import InvalidPatternError
from ottla.protocol.consumer_protocol import CONSUMER_PROTOCOL_TYPE

CONSUMER_TYPE: Final = "consumer"
_REGEXES_AT_ONCE: Final = 4
"""More patterns than this are resolved by several heartbeats, so that none takes long where there are many topics."""
_PATTERNS_KEPT_MAX: Final = 32
NOT_WRITTEN: Final = ConsumerHeartbeatResponse(error=ErrorCode.COORDINATOR_NOT_AVAILABLE)

MayDescribe = Callable[[str], bool]
"""Whether the client that sends a heartbeat may describe this topic."""


class PlainJoin(NamedTuple):
    """A heartbeat that is a plain join, with the token of its response."""

    request: ConsumerHeartbeat
    token: Hashable
    may_describe: MayDescribe = lambda topic: True


class _Heard(NamedTuple):
    """A heartbeat whose member is known and recorded, before its target is."""

    request: ConsumerHeartbeat
    before: Member
    has_changed: bool
    """Whether the member's subscription changed."""
    needs_epoch: bool

    def and_then(self, later: "_Heard") -> "_Heard":
        """Both heartbeats of the same member, which are settled at once."""
        return _Heard(
            later.request, self.before, self.has_changed or later.has_changed, self.needs_epoch or later.needs_epoch
        )


class MemberDeadline(IntEnum):
    """What a member must do in time."""

    SESSION = 0
    """Send a heartbeat."""
    REBALANCE = 1
    """Give up the partitions that it must."""
    JOIN = 2
    """Join again, for a member that uses the classic protocol and was asked to."""
    SYNC = 3
    """Ask for its assignment, for such a member that has joined."""

    # Every heartbeat looks for deadlines; that of an Enum is computed from the name, by the interpreter.
    __hash__ = int.__hash__


class MemberDeadlineKey(NamedTuple):
    """A deadline of one member."""

    deadline: MemberDeadline
    group_id: str
    member_id: str


class Migration(Protocol):
    """How groups change between the classic and the consumer protocol."""

    def claim(self, consumers: "ConsumerGroups", group_id: str, now_ms: int, /) -> GroupChange | None:
        """A change that begins with the conversion of a classic group; None if there is no such group.

        Raises `Refusal` if the group must stay classic.
        """

    def downgrade(
        self, consumers: "ConsumerGroups", change: GroupChange, member_ids: list[str], now_ms: int, /
    ) -> bool:
        """Converts the group to a classic one when these members leave, if it should be one then."""

    def on_created(self, group_id: str, /) -> None:
        """A record created a consumer group."""

    def on_deleted(self, group_id: str, /) -> None:
        """A record deleted a consumer group."""


class ConsumerGroups:
    """The groups, by id. `replay` is the only way into them. Not written are deadlines, and which version of the topics
    a group has seen."""

    type = CONSUMER_TYPE
    record_types = RECORD_TYPES

    def __init__(
        self,
        config: ConsumerGroupConfig,
        random: Random,
        migration: Migration | None = None,
        own_config_of: OwnConfigOf = lambda group_id: None,
    ) -> None:
        self.config = config
        """Of groups that have no configs of their own."""
        self._own_config_of = own_config_of
        self._random = random
        self._migration = migration
        self.groups: dict[str, ConsumerGroup] = {}
        self.topics: Topics = {}
        self._topics_version = 0
        self._seen_version: dict[str, int] = {}
        """The version of the topics that a group was last compared with; without one it has to be compared."""
        self._resolved_version: dict[str, dict[str, int]] = {}
        """The version of the topics that each pattern of a group was last resolved with on this broker."""
        self._patterns: dict[str, TopicPattern] = {}
        self.deadlines: Deadlines[MemberDeadlineKey] = Deadlines()
        self.next_deadline: Final = self.deadlines.next
        """When `on_tick` must be called next."""
        self.queued_deadlines: Final = self.deadlines.queued
        self._unrevoked_epoch: dict[MemberDeadlineKey, int] = {}
        """The epoch that a member must leave before its rebalance deadline."""

    def heartbeat(
        self,
        request: ConsumerHeartbeat,
        now_ms: int,
        token: Hashable,
        may_describe: MayDescribe = lambda topic: True,
    ) -> list[Effect]:
        """ConsumerGroupHeartbeat. A pattern only matches topics that the client `may_describe`."""
        try:
            check_heartbeat(request)
            if request.member_epoch in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH):
                change, response = self._leave(request, now_ms)
            else:
                change, response = self._live(request, now_ms, may_describe)
        except Refusal as refusal:
            return [_refused(token, refusal)]
        return change.effects(Respond(token, response), on_failure=(Respond(token, NOT_WRITTEN),))

    def join_all(self, joins: "Sequence[PlainJoin]", now_ms: int) -> list[Effect]:
        """Heartbeats that are plain joins of one group, decided together: one epoch, one target and one write.

        So members that start together get their partitions at once. One after the other, the first of them would get
        all partitions, and would have to give up most of them to the others.
        """
        change: GroupChange | None = None
        effects: list[Effect] = []
        heard: dict[str, _Heard] = {}
        member_ids: list[tuple[Hashable, str]] = []
        for request, token, may_describe in joins:
            try:
                check_heartbeat(request)
                if change is None:
                    change = self._decide_on(request.group_id, now_ms, is_joining=True)
                each = self._hear(change, request, now_ms, may_describe)
            except Refusal as refusal:
                effects.append(_refused(token, refusal))
                continue
            member_id = each.before.member_id
            earlier = heard.get(member_id)
            # A member that joins twice moves once, and both answers say where to.
            heard[member_id] = each if earlier is None else earlier.and_then(each)
            member_ids.append((token, member_id))
        if change is None or not heard:
            return effects
        self._update_epoch(change, is_due=any(each.needs_epoch for each in heard.values()))
        change.update_target(self.topics, now_ms, self._config_of(change.group.group_id).assignment_interval_ms)
        settled = {member_id: self._settle(change, each, now_ms) for member_id, each in heard.items()}
        responses = [Respond(token, settled[member_id]) for token, member_id in member_ids]
        failures = tuple(Respond(token, NOT_WRITTEN) for token, _ in member_ids)
        return effects + change.effects(*responses, on_failure=failures)

    # Living

    def _live(
        self, request: ConsumerHeartbeat, now_ms: int, may_describe: MayDescribe
    ) -> tuple[GroupChange, ConsumerHeartbeatResponse]:
        change = self._decide_on(request.group_id, now_ms, is_joining=request.member_epoch == JOIN_EPOCH)
        heard = self._hear(change, request, now_ms, may_describe)
        self._update_epoch(change, is_due=heard.needs_epoch)
        change.update_target(self.topics, now_ms, self._config_of(change.group.group_id).assignment_interval_ms)
        return change, self._settle(change, heard, now_ms)

    def _hear(
        self, change: GroupChange, request: ConsumerHeartbeat, now_ms: int, may_describe: MayDescribe
    ) -> "_Heard":
        """Checks who sends the heartbeat, and records what the member says of itself."""
        is_joining = request.member_epoch == JOIN_EPOCH
        members = change.group.members
        if len(members) >= self.config.max_size and request.member_id not in members:
            raise Refusal(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"Group {request.group_id} has its maximum of {self.config.max_size} members.",
            )
        member_id = request.member_id or self._new_member_id()
        before = self._member(change, request, member_id, is_joining=is_joining)
        has_changed, has_new_topics = self._subscribe(change, before, request, now_ms, may_describe)
        return _Heard(request, before, has_changed, has_changed or has_new_topics)

    def _settle(self, change: GroupChange, heard: "_Heard", now_ms: int) -> ConsumerHeartbeatResponse:
        """Brings the member a step nearer to its target; returns its response."""
        request, before = heard.request, heard.before
        after = change.reconcile(
            before.member_id, self.topics, request.owned_partitions, subscription_changed=heard.has_changed
        )
        has_moved = after.has_moved_from(before)
        self.start_timers(request.group_id, after, now_ms, has_moved=has_moved)
        is_told = request.member_epoch == JOIN_EPOCH or request.is_full
        has_news = is_told or (has_moved and after.assigned != before.assigned)
        return ConsumerHeartbeatResponse(
            member_id=before.member_id,
            member_epoch=after.member_epoch,
            heartbeat_interval_ms=self._config_of(request.group_id).heartbeat_interval_ms,
            assignment=as_assignment(after.assigned) if has_news else None,
        )

    def _decide_on(self, group_id: str, now_ms: int, *, is_joining: bool) -> GroupChange:
        group = self.groups.get(group_id)
        if group is not None:
            return GroupChange(group)
        if not is_joining:
            raise Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {group_id} not found.")
        claimed = None if self._migration is None else self._migration.claim(self, group_id, now_ms)
        return claimed or GroupChange(ConsumerGroup(group_id))

    def _config_of(self, group_id: str) -> ConsumerGroupConfig:
        return self._own_config_of(group_id) or self.config

    def _new_member_id(self) -> str:
        return id_text(new_id(self._random.randbytes))

    def _member(self, change: GroupChange, request: ConsumerHeartbeat, member_id: str, *, is_joining: bool) -> Member:
        """The member that sends the heartbeat: known, new, or one that replaces a static member that left."""
        group = change.group
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
                return change.replace_static(member, member_id)
            member = check_static(member, member_id, request.instance_id)
        check_epoch(member, request)
        return member

    def _subscribe(
        self,
        change: GroupChange,
        before: Member,
        request: ConsumerHeartbeat,
        now_ms: int,
        may_describe: MayDescribe,
    ) -> tuple[bool, bool]:
        """Records what the member says of itself.

        Returns whether its subscription changed, and whether a pattern of the group matches other topics than before.
        """
        said = _merged(before.said, request)
        if (said is not before.said and said != before.said) or before.member_id not in change.group.members:
            change.write(MemberRecord(request.group_id, before.member_id, said))
        regex_changed = (said.topic_regex or "") != (before.said.topic_regex or "")
        has_new_topics = self._update_regexes(change, before.said.topic_regex, said.topic_regex, now_ms, may_describe)
        return regex_changed or said.topic_names != before.said.topic_names, has_new_topics

    def _update_epoch(self, change: GroupChange, *, is_due: bool) -> None:
        """Bumps the group epoch if that is due, or if a subscribed topic changed."""
        group_id = change.group.group_id
        is_unseen = self._seen_version.get(group_id) != self._topics_version
        if is_due or (is_unseen and change.has_new_metadata(self.topics)):
            change.bump_epoch(self.topics)
        else:
            # Only now: the record of a new epoch may fail to be written.
            self._seen_version[group_id] = self._topics_version

    def _update_regexes(
        self, change: GroupChange, old: str | None, new: str | None, now_ms: int, may_describe: MayDescribe
    ) -> bool:
        """Drops a pattern without subscribers, resolves those that are new or due; returns whether topics changed."""
        if not new and not change.group.regexes:
            return False
        group_id = change.group.group_id
        if old != new and old and old in change.group.regexes and not change.group.subscribers_of_regex(old):
            change.write(RegexRecord(group_id, old, None))
        regexes = {}
        if new and new not in change.group.regexes:
            try:
                regexes[new] = self._pattern(new)
            except InvalidPatternError as invalid:
                raise Refusal(invalid.code, str(invalid)) from None
        for regex in self._outdated_regexes(change.group, now_ms):
            try:
                pattern = self._pattern(regex)
            except InvalidPatternError:
                # Another broker accepted it; the topics that it resolved are kept.
                continue
            # Which patterns are due may have changed since `patterns_of`: those are matched for the next heartbeat.
            if pattern.is_nearly_matched(self.topics):
                regexes[regex] = pattern
        has_new_topics = False
        for regex, pattern in regexes.items():
            topics = tuple(
                sorted(
                    name
                    for name, topic in self.topics.items()
                    if not topic.is_parking and pattern.matches(name) and may_describe(name)
                )
            )
            known = change.group.regexes.get(regex)
            has_new_topics = has_new_topics or topics != (() if known is None else known.topics)
            value = RegexValue(topics=topics, version=self._topics_version, timestamp_ms=now_ms)
            change.write(RegexRecord(group_id, regex, value))
        return has_new_topics

    def has_patterns(self, request: ConsumerHeartbeat) -> bool:
        """Whether a heartbeat may have to match patterns: its own, or those of its group."""
        group = self.groups.get(request.group_id)
        return bool(request.topic_regex) or (group is not None and bool(group.regexes))

    def patterns_of(self, request: ConsumerHeartbeat, now_ms: int) -> list[TopicPattern]:
        """The patterns whose topics a heartbeat needs: the handler matches them, and calls `keep` with them before."""
        group = self.groups.get(request.group_id)
        texts = [] if group is None else self._outdated_regexes(group, now_ms)
        if request.topic_regex:
            texts.append(request.topic_regex)
        patterns = []
        for text in texts:
            try:
                patterns.append(self._pattern(text))
            except InvalidPatternError:
                continue  # The heartbeat says so.
        return patterns

    def keep(self, patterns: Iterable[TopicPattern]) -> None:
        """Puts patterns into the cache, which others may have filled since `patterns_of`."""
        for pattern in patterns:
            self._keep(pattern)

    def _pattern(self, text: str) -> TopicPattern:
        """The compiled pattern with its matches, from a cache of those used last."""
        return self._keep(self._patterns.get(text) or TopicPattern(text))

    def _keep(self, pattern: TopicPattern) -> TopicPattern:
        text = pattern.pattern.text
        self._patterns.pop(text, None)
        self._patterns[text] = pattern
        if len(self._patterns) > _PATTERNS_KEPT_MAX:
            del self._patterns[next(iter(self._patterns))]
        return pattern

    def _outdated_regexes(self, group: ConsumerGroup, now_ms: int) -> list[str]:
        """The patterns to resolve again, the longest due first: topics or permissions may have changed."""
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

    def _leave(self, request: ConsumerHeartbeat, now_ms: int) -> tuple[GroupChange, ConsumerHeartbeatResponse]:
        change = self._decide_on(request.group_id, now_ms, is_joining=False)
        group = change.group
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
            # The member that comes back counts as owner of these from its first epoch on.
            kept = {topic_id: dict.fromkeys(epochs, 0) for topic_id, epochs in member.assigned.items()}
            left = replace(member, member_epoch=STATIC_LEAVE_EPOCH, assigned=kept, revoking={})
            change.write(CurrentRecord(group.group_id, member.member_id, left.current))
            return change, response
        self.remove_members(change, [member.member_id], now_ms)
        return change, response

    def remove_members(self, change: GroupChange, member_ids: list[str], now_ms: int) -> None:
        """Members have left, or are removed; the group may become a classic one."""
        if self._migration is None or not self._migration.downgrade(self, change, member_ids, now_ms):
            change.remove_members(member_ids, self.topics)

    # Time

    def start_timers(self, group_id: str, member: Member, now_ms: int, *, has_moved: bool) -> None:
        self.start_session(group_id, member, now_ms)
        key = MemberDeadlineKey(MemberDeadline.REBALANCE, group_id, member.member_id)
        if member.state is not MemberState.UNREVOKED or member.classic is not None:
            self.deadlines.clear(key)
            self._unrevoked_epoch.pop(key, None)
        elif has_moved or key not in self.deadlines:
            self.deadlines.set(key, now_ms + max(member.said.rebalance_timeout_ms, 0))
            self._unrevoked_epoch[key] = member.member_epoch

    def start_session(self, group_id: str, member: Member, now_ms: int) -> None:
        """Restarts the session of a member."""
        timeout_ms = (
            self._config_of(group_id).session_timeout_ms
            if member.classic is None
            else member.classic.session_timeout_ms
        )
        self.deadlines.set(MemberDeadlineKey(MemberDeadline.SESSION, group_id, member.member_id), now_ms + timeout_ms)

    def on_clock_set(self, by_ms: int) -> None:
        """The clock was moved by this much; all deadlines move with it."""
        self.deadlines.shift(by_ms)

    def on_tick(self, now_ms: int) -> list[Effect]:
        """Removes the members whose deadline has passed, those of one group in one write."""
        late: dict[str, dict[str, None]] = {}
        while (key := self.deadlines.pop(now_ms)) is not None:
            group = self.groups.get(key.group_id)
            member = None if group is None else group.members.get(key.member_id)
            unrevoked_epoch = self._unrevoked_epoch.pop(key, None)
            if member is None or (key.deadline is MemberDeadline.REBALANCE and member.member_epoch != unrevoked_epoch):
                continue
            late.setdefault(key.group_id, {})[key.member_id] = None
            # If the write fails the member stays, and needs a deadline again.
            self.start_session(key.group_id, member, now_ms)
        effects: list[Effect] = []
        for group_id, member_ids in late.items():
            change = GroupChange(self.groups[group_id])
            self.remove_members(change, list(member_ids), now_ms)
            effects += change.effects()
        return effects

    # Life cycle

    def replay(self, record: CoordinatorRecord) -> bool:
        """Applies a record; false if it belongs to another kind."""
        decoded = decode(record)
        match decoded:
            case None:
                return False
            case EpochRecord(group_id, None):
                if self.groups.pop(group_id, None) is not None and self._migration is not None:
                    self._migration.on_deleted(group_id)
                self._seen_version.pop(group_id, None)
                self._resolved_version.pop(group_id, None)
                return True
            case RegexRecord(group_id, regex, resolved):
                versions = self._resolved_version.setdefault(group_id, {})
                versions.pop(regex, None)
                if resolved is not None:
                    versions[regex] = resolved.version
            case MemberRecord(group_id, member_id, None):
                for deadline in MemberDeadline:
                    key = MemberDeadlineKey(deadline, group_id, member_id)
                    self.deadlines.clear(key)
                    self._unrevoked_epoch.pop(key, None)
        group = self.groups.get(decoded.group_id)
        if group is None and not _is_tombstone(decoded):
            group = self.groups[decoded.group_id] = ConsumerGroup(decoded.group_id)
            if self._migration is not None:
                self._migration.on_created(decoded.group_id)
        if group is not None:
            group.apply(decoded)
        return True

    def on_loaded(self, now_ms: int) -> list[Effect]:
        """The whole partition was replayed: all sessions start."""
        # Versions count the changes of the topics that one shard saw; those in the log were another's.
        self._resolved_version.clear()
        for group_id, group in self.groups.items():
            for member in group.members.values():
                self.start_timers(group_id, member, now_ms, has_moved=True)
        return []

    def on_unloaded(self) -> list[Effect]:
        """No request waits in these groups."""
        return []

    def on_metadata(self, topics: Topics) -> None:
        """The cluster's topics have changed; the same mapping is the same topics. Groups notice with the next
        heartbeat of a member."""
        if topics is not self.topics:
            self._topics_version += 1
        self.topics = topics

    def has_new_metadata(self, group: ConsumerGroup) -> bool:
        """Whether the subscribed topics have changed since the group epoch was last bumped."""
        if self._seen_version.get(group.group_id) == self._topics_version:
            return False
        if GroupChange(group).has_new_metadata(self.topics):
            return True
        self._seen_version[group.group_id] = self._topics_version
        return False

    # Offsets

    def commit_verdict(self, request: AnyCommit, *, is_transactional: bool) -> CommitVerdict:
        """Whether a member may commit; one that is behind may commit some partitions only."""
        is_modern = isinstance(request, TransactionalCommitRequest) or request.knows_group_not_found
        return commit_verdict(
            self.groups[request.group_id],
            member_id=request.member_id,
            instance_id=request.instance_id,
            member_epoch=request.generation,
            is_transactional=is_transactional,
            api_version=MODERN_COMMIT_VERSION - (not is_modern),
        )

    def on_commit(self, group_id: str, member_id: str, now_ms: int) -> None:
        """Only a heartbeat restarts a session."""

    def fetch_refusal(self, request: OffsetFetchRequest) -> ErrorCode:
        """Why a member may not fetch offsets; NONE if it may."""
        group = self.groups[request.group_id]
        return fetch_refusal(group, member_id=request.member_id, member_epoch=request.member_epoch)

    def offset_delete_refusal(self, group_id: str) -> ErrorCode:
        """Offsets of unsubscribed topics can always be deleted."""
        return ErrorCode.NONE

    def subscription_of(self, group_id: str) -> Subscribes:
        """Which topics a group consumes."""
        return frozenset(self.groups[group_id].subscribed_topics()).__contains__

    def expiring_groups(self) -> Iterator[ExpiringGroup]:
        """The groups whose offsets may expire: all."""
        for group_id, group in self.groups.items():
            yield ExpiringGroup(group_id, self.subscription_of(group_id), None, group.state is GroupState.EMPTY)

    # Groups

    def delete_refusal(self, group_id: str) -> ErrorCode:
        """Only a group without members can be deleted."""
        return ErrorCode.NON_EMPTY_GROUP if self.groups[group_id].members else ErrorCode.NONE

    def listed(self) -> list[ListedGroup]:
        """All groups, for ListGroups."""
        return [
            ListedGroup(group_id, CONSUMER_PROTOCOL_TYPE, group.state.value, CONSUMER_TYPE)
            for group_id, group in self.groups.items()
        ]

    def deletion_records(self, group_id: str) -> tuple[CoordinatorRecord, ...]:
        """The tombstones that delete a group, without those of its offsets."""
        group = self.groups.get(group_id)
        return () if group is None else tuple(encode(record) for record in tombstones(group))

    def check(self) -> None:
        """Raises when an invariant does not hold."""
        for group in self.groups.values():
            group.check()


def _is_tombstone(record: GroupRecord) -> bool:
    return not record.exists if isinstance(record, PartitionMetadataRecord) else record.value is None


def _refused(token: Hashable, refusal: Refusal) -> Respond:
    return Respond(token, ConsumerHeartbeatResponse(error=refusal.code, error_message=str(refusal)))


def _merged(said: MemberValue, request: ConsumerHeartbeat) -> MemberValue:
    """What the member has said so far, updated by what it says now; it now speaks the consumer protocol."""
    is_silent = request.rebalance_timeout_ms == -1
    if (
        is_silent
        and request.topic_names is None
        and request.topic_regex is None
        and request.server_assignor is None
        and request.rack_id is None
        and request.instance_id in (None, said.instance_id)
        and request.client_id == said.client_id
        and request.client_host == said.client_host
        and said.classic is None
    ):
        return said  # As nearly always.
    names = said.topic_names if request.topic_names is None else tuple(sorted(set(request.topic_names)))
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
