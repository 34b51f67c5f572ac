"""The controller's shell: decides on the newest image, commits, and decides again where somebody else was faster.

Questions are taken one at a time. No decision is made on an image older than the last commit, so rules that no single
key can guard, such as names that collide, hold too. The decisions themselves are in the `*_state.py` files.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, TypeVar

from ottla.controller.assignments import ValidateConfigs
from ottla.controller.configs_state import (
    decide_broker_configs,
    decide_producer_ids,
    decide_start,
    decide_topic_configs,
)
from ottla.controller.decisions import (
    Committed,
    Decision,
    NewPartitions,
    NewTopic,
    PartitionOutcome,
    Reassignment,
    TopicDefaults,
    TopicOutcome,
    TopicReference,
)
from ottla.controller.elections_state import (
    MayTake,
    RulesOf,
    anybody,
    decide_elections,
    decide_leave,
    decide_losses,
    decide_withdraw,
    default_rules,
)
from ottla.controller.partitions_state import decide_add_partitions, decide_elect, decide_finish, decide_reassign
from ottla.controller.topics_state import decide_create, decide_delete
from ottla.env.ports import Random
from ottla.metadata.changes import apply, changes_of, image_of
from ottla.metadata.image import ClusterImage, TopicImage
from ottla.metadata.records import CONTROLLER_KEY
from ottla.metadata.store import Check, ConflictError, Lease, MetadataStore, Operation
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import NotControllerError
from ottla.model.ids import BrokerId, TopicPartition

T = TypeVar("T")

ELECTED_AT_ONCE_MAX: Final = 1000
"""So many partitions change in one commit; more would be too much for some stores."""
ATTEMPTS_MAX: Final = 10
"""Each lost attempt means that another one succeeded; ten in a row means that something is wrong."""


_BROKER_REFUSALS: Final = frozenset({ErrorCode.INVALID_REPLICATION_FACTOR, ErrorCode.INVALID_REPLICA_ASSIGNMENT})
"""Refusals that depend on which brokers are registered."""


class Controller:
    """Changes the cluster's metadata. Every method answers when its change is durable, with the revision from which on
    images show it; none of them waits for anybody's image.

    `image_source` gives the newest image at hand; it may be behind the store. `defaults` and `validate_configs` are for
    new topics; `rules_of` says what a topic's configs mean for its leaders. With a `lease` on the controller's key all
    commits are fenced by it, and NotControllerError is raised once it is lost; without one, any number of controllers
    may act on one store, and compare-and-set keeps them right. All methods raise StorageError
    when the store fails, and ConflictError when they lost too many races.
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
        """Creates those of the topics that can be; all of them in one commit. With `validate_only` none."""
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
        """Deletes those of the topics that exist. Their logs go when the brokers see it."""
        return await self._decide(partial(decide_delete, references=references))

    async def create_partitions(
        self, requests: Sequence[NewPartitions], *, validate_only: bool = False
    ) -> Committed[TopicOutcome]:
        """Adds partitions to topics; an outcome's `partition_count` is the new total."""
        return await self._decide(
            partial(decide_add_partitions, requests=requests, random=self._random, validate_only=validate_only),
            is_doubtful=_lacks_brokers,
        )

    async def set_topic_configs(self, name: str, configs: Mapping[str, str], *, expected: int | None = None) -> int:
        """Replaces a topic's own configs, unchecked, and answers the revision. Raises UnknownTopicError.

        With `expected`, the `revision_of` their key in the image that the new map was computed from, raises
        ConflictError if they have changed since.
        """
        decided = await self._decide(partial(decide_topic_configs, name=name, configs=configs, expected=expected))
        return decided.revision

    async def set_broker_configs(self, broker: str, configs: Mapping[str, str], *, expected: int | None = None) -> int:
        """Replaces the dynamic configs of a broker, by its id as text, or of all with "". Otherwise as for a topic."""
        decided = await self._decide(partial(decide_broker_configs, broker=broker, configs=configs, expected=expected))
        return decided.revision

    async def elect(self, topics: Sequence[TopicImage]) -> int:
        """Gives the partitions of these topics the leaders and ISRs that the brokers now alive ask for.

        Answers how many had to change.
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

    async def leave(self, broker: BrokerId, may_take: MayTake = anybody) -> Committed[PartitionOutcome]:
        """Moves away what a broker leads, before it stops, and takes it out of the ISRs; `may_take` says to whom."""
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
        self, broker: BrokerId, partitions: Sequence[TopicPartition], may_take: MayTake = anybody
    ) -> Committed[PartitionOutcome]:
        """Takes a broker out of the ISRs of partitions whose log it cannot answer for; those with an outcome it may
        begin anew, once it has seen the revision."""
        return await self._decide(
            partial(decide_withdraw, broker=broker, partitions=partitions, rules_of=self._rules_of, may_take=may_take)
        )

    async def note_losses(
        self, broker: BrokerId, lost: Sequence[TopicPartition], found: Sequence[TopicPartition] = ()
    ) -> int:
        """Notes which logs a broker has lost, and which of those it has found again; answers the revision."""
        revision = 0
        for start in range(0, max(len(lost), len(found)), ELECTED_AT_ONCE_MAX):
            some = slice(start, start + ELECTED_AT_ONCE_MAX)
            decide = partial(decide_losses, broker=broker, lost=lost[some], found=found[some], rules_of=self._rules_of)
            revision = (await self._decide(decide)).revision
        return revision

    async def note_start(self, broker: BrokerId, count: int) -> None:
        """Notes how often a broker has started."""
        await self._decide(partial(decide_start, broker=broker, count=count))

    async def elect_leaders(
        self, partitions: Iterable[TopicPartition] | None, *, unclean: bool = False
    ) -> Committed[PartitionOutcome]:
        """Lets preferred replicas lead, or with `unclean` any live one where none leads. None means all partitions, and
        then only those that needed it have an outcome."""
        asked = None if partitions is None else tuple(partitions)
        return await self._decide(partial(decide_elect, partitions=asked, rules_of=self._rules_of, unclean=unclean))

    async def alter_reassignments(self, requests: Sequence[Reassignment]) -> Committed[PartitionOutcome]:
        """Begins to move partitions to other brokers, or takes moves back."""
        return await self._decide(
            partial(decide_reassign, requests=requests, rules_of=self._rules_of), is_doubtful=_lacks_brokers
        )

    async def finish_reassignments(self) -> Committed[PartitionOutcome]:
        """Ends the moves whose new replicas are in sync; to be called when an ISR has grown."""
        return await self._decide(partial(decide_finish, rules_of=self._rules_of))

    async def allocate_producer_ids(self) -> range:
        """A block of producer ids that nobody else was or will be given."""
        return (await self._decide(decide_producer_ids)).outcomes[0]

    async def _decide(
        self,
        decide: Callable[[ClusterImage], Decision[T]],
        *,
        is_doubtful: Callable[[Decision[T]], bool] = lambda decision: False,
    ) -> Committed[T]:
        """Decides and commits. A decision that `is_doubtful` is made again if the store is ahead of the image."""
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
            raise ConflictError(
                f"the metadata changed {ATTEMPTS_MAX} times while this was decided: try again, and see who writes so "
                "much"
            )

    async def _newest_image(self) -> ClusterImage:
        """The source's, unless this controller knows of something newer."""
        if self._is_unsure:
            self._own = image_of(*await self._store.snapshot())
            self._is_unsure = False
        image = self._image_source()
        if self._last is not None:
            # Mostly the source has seen the last commit by now, and it need not be applied here too.
            revision, operations = self._last
            if image.revision < revision:
                self._own = apply(self._own, changes_of(revision, operations))
            self._last = None
        return image if image.revision >= self._own.revision else self._own

    def _fences(self, image: ClusterImage) -> list[Operation]:
        if self._lease is None:
            return []
        # An image from before the lease cannot know of it.
        is_known = image.revision >= self._lease.revision
        if self._lease.is_lost or (is_known and image.revision_of(CONTROLLER_KEY) != self._lease.revision):
            raise NotControllerError("this broker is no longer the controller: ask the metadata who is")
        return [Check(CONTROLLER_KEY, self._lease.revision)]

    async def _commit(self, image: ClusterImage, operations: Sequence[Operation]) -> int:
        # Until it is known whether the commit was made, no image at hand can be trusted to show it.
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


def _lacks_brokers(decision: "Decision[TopicOutcome] | Decision[PartitionOutcome]") -> bool:
    """Whether something was refused because a broker is not registered, in an image that may be behind the store."""
    return any(outcome.error in _BROKER_REFUSALS for outcome in decision.outcomes)


def _decide_elections_of(
    image: ClusterImage, names: Sequence[str], rules_of: RulesOf, limit: int
) -> Decision[PartitionOutcome]:
    topics = [image.topics[name] for name in names if name in image.topics]
    return decide_elections(image, topics, rules_of=rules_of, limit=limit)
