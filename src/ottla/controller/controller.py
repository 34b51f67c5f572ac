"""The controller's shell: decides on the newest image, commits, and decides again if another writer was faster.

Requests are handled one at a time. No decision is made on an image older than the last commit, so that rules that no
single key can guard, such as colliding names, hold too. The decisions themselves are in the `*_state.py` files.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Final, TypeVar

from ottla.controller.brokers_state import decide_unregister
from ottla.controller.configs_state import (
    decide_broker_configs,
    decide_client_metrics,
    decide_group_configs,
    decide_producer_ids,
    decide_start,
    decide_topic_configs,
)
from ottla.controller.decisions import (
    Committed,
    ControllerDecision,
    NewPartitions,
    NewTopic,
    PartitionOutcome,
    Reassignment,
    TopicDefaults,
    TopicOutcome,
    TopicReference,
)
from ottla.controller.elections_state import (
    IsSound,
    MayTake,
    RulesOf,
    any_registered,
    decide_elections,
    decide_leave,
    decide_losses,
    decide_withdraw,
    default_rules,
    never_sound,
)
from ottla.controller.features_state import FeatureUpdate, decide_features
from ottla.controller.partitions_state import decide_add_partitions, decide_elect, decide_finish, decide_reassign
from ottla.controller.replica_assignment import ValidateConfigs
from ottla.controller.security_state import (
    QuotaChanges,
    ScramChanges,
    decide_change_token,
    decide_client_quotas,
    decide_create_acls,
    decide_create_token,
    decide_find_acls,
    decide_remove_acls,
    decide_remove_expired_tokens,
    decide_scram_credentials,
)
from ottla.controller.topics_state import decide_create, decide_delete
from ottla.env.ports import Random
from ottla.metadata.changes import apply, changes_of, image_of
from ottla.metadata.image import ClusterImage, TopicImage
from ottla.metadata.records import CONTROLLER_KEY
from ottla.metadata.store import Check, ConflictError, Lease, MetadataStore, Operation
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import InvalidRequestError, NotControllerError
from ottla.model.ids import BrokerId, TopicPartition
from ottla.security.acls import AclBinding, AclFilter
from ottla.security.delegation_token import TokenInfo

T = TypeVar("T")

ELECTED_AT_ONCE_MAX: Final = 1000
"""This many partitions change in one commit; some stores cannot take more."""
DELETED_ACLS_MAX: Final = 10_000
"""Kafka's limit of one request."""
ATTEMPTS_MAX: Final = 10
"""Each failed attempt means that another writer succeeded; ten in a row mean that something is wrong."""


_BROKER_REFUSALS: Final = frozenset({ErrorCode.INVALID_REPLICATION_FACTOR, ErrorCode.INVALID_REPLICA_ASSIGNMENT})
"""Refusals that depend on which brokers are registered."""


class TooManyAclsError(InvalidRequestError):
    """A request would delete more ACLs than one may."""

    code = ErrorCode.POLICY_VIOLATION


class Controller:
    """Changes the cluster's metadata. Every method returns when its change is durable, with the revision from which on
    images show it; none of them waits for an image.

    `image_source` returns the newest image that is available; it may be behind the store. `defaults` and
    `validate_configs` are for new topics; `rules_of` returns a topic's configs about elections. With a `lease` on the
    controller's key all commits are fenced by it, and NotControllerError is raised once it is lost. Without a lease any
    number of controllers may use one store, and compare-and-set keeps them consistent. All methods raise StorageError
    when the store fails, and ConflictError after too many conflicts.
    """

    def __init__(
        self,
        store: MetadataStore,
        image_source: Callable[[], ClusterImage],
        random: Random,
        *,
        defaults: Callable[[], TopicDefaults] = TopicDefaults,
        validate_configs: ValidateConfigs = lambda _: None,
        rules_of: RulesOf = default_rules,
        lease: Lease | None = None,
    ) -> None:
        self._store = store
        self._image_source = image_source
        self._random = random
        self._defaults = defaults
        self._validate_configs = validate_configs
        self._rules_of = rules_of
        self._lease = lease
        self._turn = asyncio.Lock()
        self._own = ClusterImage()
        self._last: tuple[int, Sequence[Operation]] | None = None
        self._is_unsure = False

    async def create_topics(
        self, requests: Sequence[NewTopic], *, validate_only: bool = False
    ) -> Committed[TopicOutcome]:
        """Creates the topics that are valid, in one commit. With `validate_only` nothing is created."""
        return await self._decide(
            partial(
                decide_create,
                requests=requests,
                defaults=self._defaults(),
                validate_configs=self._validate_configs,
                random=self._random,
                validate_only=validate_only,
            ),
            is_doubtful=_lacks_brokers,
        )

    async def delete_topics(self, references: Sequence[TopicReference]) -> Committed[TopicOutcome]:
        """Deletes the topics that exist. Brokers delete the logs when they see the change."""
        return await self._decide(partial(decide_delete, references=references))

    async def create_partitions(
        self, requests: Sequence[NewPartitions], *, validate_only: bool = False
    ) -> Committed[TopicOutcome]:
        """Adds partitions to topics; an outcome's `partition_count` is the new total."""
        return await self._decide(
            partial(decide_add_partitions, requests=requests, random=self._random, validate_only=validate_only),
            is_doubtful=_lacks_brokers,
        )

    async def set_topic_configs(
        self, name: str, configs: Mapping[str, str], *, expected: int | None = None, validate_only: bool = False
    ) -> int:
        """Replaces a topic's own configs and creates the companions that they ask for; returns the revision.

        The configs must be valid. Raises UnknownTopicError, and InvalidConfigError if a companion cannot be created.
        With `expected`, the `revision_of` their key in the image that the new map was computed from, raises
        ConflictError if they have changed since. With `validate_only` nothing is changed.
        """
        decided = await self._decide(
            partial(
                decide_topic_configs,
                name=name,
                configs=configs,
                expected=expected,
                random=self._random,
                validate_only=validate_only,
            )
        )
        return decided.revision

    async def set_broker_configs(self, broker: str, configs: Mapping[str, str], *, expected: int | None = None) -> int:
        """Replaces the dynamic configs of a broker, by its id as text, or of all with "". Otherwise as for a topic."""
        decided = await self._decide(partial(decide_broker_configs, broker=broker, configs=configs, expected=expected))
        return decided.revision

    async def set_group_configs(self, group_id: str, configs: Mapping[str, str], *, expected: int | None = None) -> int:
        """Replaces the configs of a group. Otherwise as for a topic."""
        decided = await self._decide(
            partial(decide_group_configs, group_id=group_id, configs=configs, expected=expected)
        )
        return decided.revision

    async def set_client_metrics(self, name: str, configs: Mapping[str, str], *, expected: int | None = None) -> int:
        """Replaces the configs of a client metrics subscription. Otherwise as for a topic."""
        decided = await self._decide(partial(decide_client_metrics, name=name, configs=configs, expected=expected))
        return decided.revision

    async def elect(self, topics: Sequence[TopicImage]) -> int:
        """Elects leaders and sets ISRs of these topics according to the registered brokers.

        Returns how many partitions changed.
        """
        names = [topic.name for topic in topics]
        count = 0
        while True:
            decided = await self._decide(
                partial(_decide_elections_of, names=names, rules_of=self._rules_of, limit=ELECTED_AT_ONCE_MAX)
            )
            count += len(decided.outcomes)
            if len(decided.outcomes) < ELECTED_AT_ONCE_MAX:
                return count

    async def leave(self, broker: BrokerId, may_take: MayTake = any_registered) -> Committed[PartitionOutcome]:
        """Moves the leaderships of a broker that is about to stop, and removes it from the ISRs; `may_take` says to
        which brokers."""
        outcomes: list[PartitionOutcome] = []
        while True:
            decided = await self._decide(
                partial(
                    decide_leave,
                    broker=broker,
                    limit=ELECTED_AT_ONCE_MAX,
                    rules_of=self._rules_of,
                    may_take=may_take,
                )
            )
            outcomes += decided.outcomes
            if len(decided.outcomes) < ELECTED_AT_ONCE_MAX:
                return Committed(revision=decided.revision, outcomes=tuple(outcomes))

    async def withdraw(
        self,
        broker: BrokerId,
        partitions: Sequence[TopicPartition],
        may_take: MayTake = any_registered,
        is_sound: IsSound = never_sound,
    ) -> Committed[PartitionOutcome]:
        """Removes a broker from the ISRs of partitions whose log is damaged or cannot be written; it may create those
        with an outcome again, once it has seen the revision. It stays eligible for those whose log `is_sound`."""
        return await self._decide(
            partial(
                decide_withdraw,
                broker=broker,
                partitions=partitions,
                rules_of=self._rules_of,
                may_take=may_take,
                is_sound=is_sound,
            )
        )

    async def note_losses(
        self, broker: BrokerId, lost: Sequence[TopicPartition], found: Sequence[TopicPartition] = ()
    ) -> int:
        """Records which logs a broker has lost, and which it has found again; returns the revision."""
        revision = 0
        for start in range(0, max(len(lost), len(found)), ELECTED_AT_ONCE_MAX):
            some = slice(start, start + ELECTED_AT_ONCE_MAX)
            decide = partial(decide_losses, broker=broker, lost=lost[some], found=found[some], rules_of=self._rules_of)
            revision = (await self._decide(decide)).revision
        return revision

    async def note_start(self, broker: BrokerId, count: int) -> None:
        """Records how often a broker has started."""
        await self._decide(partial(decide_start, broker=broker, count=count))

    async def elect_leaders(
        self, partitions: Iterable[TopicPartition] | None, *, unclean: bool = False
    ) -> Committed[PartitionOutcome]:
        """Elects preferred replicas, or with `unclean` any live one if there is no leader. None means all partitions;
        then only those that changed have an outcome."""
        asked = None if partitions is None else tuple(partitions)
        return await self._decide(partial(decide_elect, partitions=asked, rules_of=self._rules_of, unclean=unclean))

    async def alter_reassignments(self, requests: Sequence[Reassignment]) -> Committed[PartitionOutcome]:
        """Starts to move partitions to other brokers, or cancels moves."""
        return await self._decide(
            partial(decide_reassign, requests=requests, rules_of=self._rules_of), is_doubtful=_lacks_brokers
        )

    async def finish_reassignments(self) -> Committed[PartitionOutcome]:
        """Completes the moves whose new replicas are in sync; to be called when an ISR has grown."""
        return await self._decide(partial(decide_finish, rules_of=self._rules_of))

    async def allocate_producer_ids(self) -> range:
        """Allocates a block of producer ids."""
        return (await self._decide(decide_producer_ids)).outcomes[0]

    async def update_features(self, updates: Sequence[FeatureUpdate], *, validate_only: bool = False) -> int:
        """Sets the levels of features; returns the revision. Raises InvalidUpdateVersionError if one is refused."""
        return (await self._decide(partial(decide_features, updates=updates, validate_only=validate_only))).revision

    async def unregister_broker(self, broker: BrokerId) -> int:
        """Forgets a broker that will not come back; returns the revision.

        Raises BrokerNotRegisteredError, and InvalidRequestError while it is registered or has replicas.
        """
        return (await self._decide(partial(decide_unregister, broker=broker))).revision

    # Security

    async def create_acls(self, bindings: Sequence[AclBinding]) -> int:
        """Adds ACLs, which must be valid; returns the revision. Those that exist already stay."""
        revision = 0
        for some in _batched(bindings, ELECTED_AT_ONCE_MAX):
            revision = (await self._decide(partial(decide_create_acls, bindings=some))).revision
        return revision

    async def delete_acls(self, filters: Sequence[AclFilter]) -> Committed[tuple[AclBinding, ...]]:
        """Removes all ACLs that a filter selects; an outcome for each filter has those that it selects.

        Raises TooManyAclsError, and removes none, if there are more than `DELETED_ACLS_MAX`.
        """
        found = await self._decide(partial(decide_find_acls, filters=filters), is_doubtful=lambda decision: True)
        doomed = list(dict.fromkeys(each for selected in found.outcomes for each in selected))
        if len(doomed) > DELETED_ACLS_MAX:
            raise TooManyAclsError(
                f"the filters select {len(doomed)} ACLs; one request may delete {DELETED_ACLS_MAX}: narrow the filters"
            )
        revision = found.revision
        for some in _batched(doomed, ELECTED_AT_ONCE_MAX):
            revision = (await self._decide(partial(decide_remove_acls, bindings=some))).revision
        return Committed(revision=revision, outcomes=found.outcomes)

    async def alter_scram_credentials(self, changes: ScramChanges) -> Committed[tuple[str, bool]]:
        """Sets and deletes SCRAM credentials; an outcome has a user, and False if there was nothing to delete."""
        revision, outcomes = 0, list[tuple[str, bool]]()
        for some in _batched(changes.items(), ELECTED_AT_ONCE_MAX):
            decided = await self._decide(
                partial(decide_scram_credentials, changes=dict(some)),
                is_doubtful=lambda decision: not all(exists for _, exists in decision.outcomes),
            )
            revision, outcomes = decided.revision, [*outcomes, *decided.outcomes]
        return Committed(revision=revision, outcomes=tuple(outcomes))

    async def alter_client_quotas(self, changes: QuotaChanges) -> int:
        """Sets and removes client quotas, which must be valid; returns the revision."""
        revision = 0
        for some in _batched(changes.items(), ELECTED_AT_ONCE_MAX):
            revision = (await self._decide(partial(decide_client_quotas, changes=dict(some)))).revision
        return revision

    async def create_token(self, token: TokenInfo) -> Committed[TokenInfo]:
        """Adds a delegation token with a new id."""
        return await self._decide(partial(decide_create_token, token=token))

    async def change_token(
        self, token_id: str, change: Callable[[TokenInfo], TokenInfo | None]
    ) -> Committed[TokenInfo | None]:
        """Replaces a delegation token by what `change` makes of it; None removes it. `change` may be called again.

        Raises TokenNotFoundError, and what `change` raises.
        """
        return await self._decide(partial(decide_change_token, token_id=token_id, change=change))

    async def remove_expired_tokens(self, now_ms: int) -> int:
        """Removes delegation tokens that have expired; returns how many."""
        decide = partial(decide_remove_expired_tokens, now_ms=now_ms, limit=ELECTED_AT_ONCE_MAX)
        return len((await self._decide(decide)).outcomes)

    async def _decide(
        self,
        decide: Callable[[ClusterImage], ControllerDecision[T]],
        *,
        is_doubtful: Callable[[ControllerDecision[T]], bool] = lambda decision: False,
    ) -> Committed[T]:
        """Decides and commits. A decision that `is_doubtful` is repeated if the store is ahead of the image."""
        async with self._turn:
            image = await self._newest_image()
            is_newest = False
            for _ in range(ATTEMPTS_MAX):
                fences = self._fences(image)
                decision = decide(image)
                if not is_newest and is_doubtful(decision):
                    newest = image_of(*await self._store.snapshot())
                    is_newest = True
                    if newest.revision > image.revision:
                        image = self._own = newest
                        continue
                if not decision.operations:
                    return Committed(revision=image.revision, outcomes=decision.outcomes)
                try:
                    revision = await self._commit(image, [*fences, *decision.operations])
                except ConflictError:
                    image = self._own = image_of(*await self._store.snapshot())
                    is_newest = True
                    continue
                return Committed(revision=revision, outcomes=decision.outcomes)
            raise ConflictError(f"the metadata changed {ATTEMPTS_MAX} times during this request; retry later")

    async def _newest_image(self) -> ClusterImage:
        """The image of the source, unless this controller knows a newer one."""
        if self._is_unsure:
            self._own = image_of(*await self._store.snapshot())
            self._is_unsure = False
        image = self._image_source()
        if self._last is not None:
            # Usually the source has seen the last commit by now, so that it need not be applied here too.
            revision, operations = self._last
            if image.revision < revision:
                self._own = apply(self._own, changes_of(revision, operations))
            self._last = None
        return image if image.revision >= self._own.revision else self._own

    def _fences(self, image: ClusterImage) -> list[Operation]:
        if self._lease is None:
            return []
        # An image from before the lease cannot show it.
        is_known = image.revision >= self._lease.revision
        if self._lease.is_lost or (is_known and image.revision_of(CONTROLLER_KEY) != self._lease.revision):
            raise NotControllerError("this broker is no longer the controller; refresh the metadata")
        return [Check(CONTROLLER_KEY, self._lease.revision)]

    async def _commit(self, image: ClusterImage, operations: Sequence[Operation]) -> int:
        # Until it is known whether the commit was made, no image can be trusted to show it.
        self._is_unsure = True
        try:
            revision = await self._store.commit(operations)
        except ConflictError:
            self._is_unsure = False
            raise
        if revision == image.revision + 1:
            self._own = image
            self._last = revision, operations
            self._is_unsure = False
        return revision


def _batched(items: Iterable[T], count: int) -> Iterator[tuple[T, ...]]:
    """The items in order, as many at a time."""
    rest = iter(items)
    while some := tuple(islice(rest, count)):
        yield some


def _lacks_brokers(decision: "ControllerDecision[TopicOutcome] | ControllerDecision[PartitionOutcome]") -> bool:
    """Whether an item was refused because a broker is not registered, in an image that may be behind the store."""
    return any(outcome.error in _BROKER_REFUSALS for outcome in decision.outcomes)


def _decide_elections_of(
    image: ClusterImage, names: Sequence[str], rules_of: RulesOf, limit: int
) -> ControllerDecision[PartitionOutcome]:
    topics = [image.topics[name] for name in names if name in image.topics]
    return decide_elections(image, topics, rules_of=rules_of, limit=limit)
