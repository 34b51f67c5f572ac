"""One instance of a registry: the image that it answers from, and its part in the election.

| state | reads | writes |
|---|---|---|
| follower | from the image | forwarded to the leader |
| leader | from the image, which has committed records only | decided here (`leadership.py`) |
| no leader known | from the image | wait, then fail |
| topic lost | from the image, as it was | refused; the instance tells the group that it cannot lead |

An instance that is elected leads once it has fenced its predecessor and has read the whole topic after that. It reads
the topic again, although it has followed it: that finds a log that lost records, before an id could be given twice.
"""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from ottla.client.network.backoff import Backoff
from ottla.client.network.cluster import Cluster
from ottla.client.options import ClientConfig
from ottla.client.stop_task import stop_task
from ottla.model.errors import OttlaError, RetriableError
from ottla.records.record import Record as TopicRecord
from ottla.registry.schemas.languages import LANGUAGES
from ottla.registry.service.applied_offset import AppliedOffset
from ottla.registry.service.checking_thread import CheckingThread
from ottla.registry.service.election_protocol import Instance
from ottla.registry.service.image_access import ImageAccess
from ottla.registry.service.leader_election import Elected, ElectionOptions, LeaderElection
from ottla.registry.service.leadership import Leadership, WrittenCounts
from ottla.registry.service.schemas_topic import (
    SchemasTopic,
    SchemasTopicLostError,
    SchemasTopicMissingError,
    TopicChunk,
)
from ottla.registry.service.schemas_writer import SchemasWriter
from ottla.registry.state.errors import STORE_ERROR, operation_not_permitted, registry_error
from ottla.registry.state.options import RegistryOptions
from ottla.registry.state.qualified_subjects import ALL_CONTEXTS, DEFAULT_CONTEXT
from ottla.registry.state.record_formats import Record, RecordFormatError, SchemaKey, decode_record
from ottla.registry.state.registry_image import RegistryImage
from ottla.transport.addresses import parse_bootstrap

_LOGGER: Final = logging.getLogger(__name__)

_BACKOFF: Final = Backoff(first_ms=200, most_ms=5_000)
_STOP_SECONDS: Final = 5.0
_RECORDS_IN_TURN: Final = 200
"""After this many records other requests have their turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryConfig:
    """How an instance is set up."""

    bootstrap: str
    """Some brokers of the cluster, as `host:port,host:port`."""
    advertised: Instance
    """Where other instances reach this one."""
    topic: str = "_schemas"
    replication_factor: int = 3
    election: ElectionOptions = field(default_factory=ElectionOptions)
    options: RegistryOptions = field(default_factory=RegistryOptions)
    read_only: bool = False
    """Neither writes, nor leads, nor creates the topic."""
    transactional: bool = True
    """Whether leaders fence each other. Without, only one instance may run."""
    client_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """The security options of connections to the cluster, as every client has them."""


class Registry:
    """Starts with `start`, which reads the topic to its end, and runs until `stop`."""

    def __init__(self, config: RegistryConfig) -> None:
        self.config = config
        self.image = RegistryImage(LANGUAGES, config.options)
        """All committed records up to `applied`."""
        self.revision = 0
        """Grows whenever the image may have changed."""
        self.problem: str | None = None
        """Why nothing can be written: the topic is lost."""
        self.refused_records = 0
        self.written = WrittenCounts()
        self.access = ImageAccess()
        self.checking = CheckingThread()
        self.leadership: Leadership | None = None
        self._applied = AppliedOffset()
        self._cluster = self.new_cluster("registry")
        self._election_cluster = self.new_cluster("registry-election")
        """Of its own: a request to join waits for the other members, and others would wait behind it."""
        self._election = LeaderElection(
            self._election_cluster, config.election, me=self._describe, on_elected=self._on_elected
        )
        self._topic: SchemasTopic | None = None
        self._elected: Elected | None = None
        self._changed = asyncio.Event()
        """The leader changed, or something that a waiting request should look at."""
        self._following: asyncio.Task[None] | None = None
        self._electing: asyncio.Task[None] | None = None
        self._leading: asyncio.Task[None] | None = None
        self._is_stopping = False

    def new_cluster(self, client_id: str) -> Cluster:
        """A connection to the cluster that holds the topic, with the registry's own user."""
        security = ClientConfig(**self.config.client_options).security
        return Cluster(parse_bootstrap(self.config.bootstrap), client_id=client_id, security=security)

    # Life

    async def start(self) -> None:
        """Opens the topic and reads it to its end. Raises `SchemasTopicError`, and errors of the client."""
        config = self.config
        topic = self._topic = await SchemasTopic.open(
            self._cluster,
            config.topic,
            replication_factor=config.replication_factor,
            may_create=not config.read_only,
        )
        start, end = await topic.bounds()
        self._applied.advance(start)
        if start < end:
            async for chunk in topic.read(start, end):
                await self._apply(chunk)
        self._applied.advance(end)
        _LOGGER.info("read topic %s up to offset %d", topic.name, end)
        try:
            await topic.check_intact()
        except SchemasTopicLostError as error:
            # What is left can be read.
            self._lose(str(error))
        self._following = asyncio.create_task(self._follow(topic))
        if not config.read_only:
            self._electing = asyncio.create_task(self._election.run())

    async def stop(self) -> None:
        """Gives up leadership, leaves the group and closes all connections."""
        self._is_stopping = True
        await stop_task(self._electing)
        leading = self._leading
        with suppress(TimeoutError):
            async with asyncio.timeout(_STOP_SECONDS):
                await stop_task(leading)
        await self._election.leave()
        await stop_task(self._following)
        self.access.close()
        self.checking.close()
        await self._election_cluster.close()
        await self._cluster.close()

    # What requests need

    @property
    def applied(self) -> int:
        """Everything below this offset of the topic is in the image."""
        return self._applied.offset

    @property
    def cluster_id(self) -> str:
        """The id of the Kafka cluster."""
        return self._cluster.view.cluster_id or ""

    @property
    def leader(self) -> Instance | None:
        """The elected instance, if it is known."""
        return None if self._elected is None else self._elected.leader

    def check_writable(self) -> None:
        """Raises `RegistryError` if this instance can neither write nor forward."""
        if self.config.read_only:
            raise operation_not_permitted("this registry is read-only; send changes to another instance")
        if self.problem is not None:
            raise registry_error(STORE_ERROR, f"the registry cannot write: {self.problem}")

    async def wait_leader(self, *, may_forward: bool) -> Leadership | Instance:
        """Waits until this instance leads, or knows the leader. Raises `RegistryError` if nothing can be written."""
        while True:
            self.check_writable()
            if self.leadership is not None and not self.leadership.ended.done():
                return self.leadership
            elected = self._elected
            if elected is not None and not elected.is_this_instance and may_forward:
                return elected.leader
            await self.wait_change()

    async def wait_change(self) -> None:
        """Returns when another instance leads, or this one begins or ceases to."""
        self._changed.clear()
        await self._changed.wait()

    async def wait_replaced(self, leader: Instance) -> None:
        """Returns when another instance than this one is elected."""
        while self.leader is None or self.leader.url == leader.url:
            await self.wait_change()

    async def wait_applied(self, offset: int) -> None:
        """Returns when the image has everything below this offset."""
        await self._applied.wait(offset)

    async def committed_end(self) -> int:
        """The end of the topic at this moment."""
        assert self._topic is not None
        return (await self._topic.bounds())[1]

    # Following the topic

    async def _follow(self, topic: SchemasTopic) -> None:
        tries = 0
        while True:
            try:
                async for chunk in topic.read(self._applied.offset):
                    await self._apply(chunk)
                    tries = 0
            except SchemasTopicMissingError as error:
                self._lose(str(error))
                await self._wait_return(topic)
            except SchemasTopicLostError as error:
                self._lose(str(error))
                return
            except OttlaError as error:
                tries += 1
                _LOGGER.warning(
                    "reading topic %s at offset %d failed, retrying: %s", topic.name, self._applied.offset, error
                )
                await self._pause(tries)
            except Exception as error:
                _LOGGER.exception("applying records of topic %s failed", topic.name)
                self._lose(f"a record of topic {topic.name} cannot be applied: {error!r}")
                return

    async def _wait_return(self, topic: SchemasTopic) -> None:
        """Waits until the topic that was read before exists: a broker that restarted did not know it for a while."""
        tries = 0
        while True:
            tries += 1
            await self._pause(tries)
            with suppress(OttlaError):
                _, end = await topic.bounds()
                if end >= self._applied.offset:
                    break
        _LOGGER.warning("topic %s exists again; the registry resumes", topic.name)
        self.problem = None
        self._election.rejoin()
        self._changed.set()

    async def _pause(self, tries: int) -> None:
        await self._cluster.clock.sleep(_BACKOFF.wait_ms(tries, self._cluster.random) / 1000)

    async def _apply(self, chunk: TopicChunk) -> None:
        async with self.access.change():
            for number, record in enumerate(chunk.records):
                if _apply(self.image, record):
                    self.refused_records += 1
                if number % _RECORDS_IN_TURN == _RECORDS_IN_TURN - 1:
                    await asyncio.sleep(0)
            self.revision += 1
        if self.leadership is not None:
            self.leadership.on_read(chunk.records)
        self._applied.advance(chunk.next_offset)

    def _lose(self, problem: str) -> None:
        """The topic is lost: nothing is written until an operator has looked at it."""
        _LOGGER.error("the registry refuses all writes: %s", problem)
        self.problem = problem
        if self._leading is not None:
            self._leading.cancel()
        self._election.rejoin()
        self._changed.set()

    # Leading

    def _describe(self) -> Instance:
        """This instance, for the other members of the group."""
        advertised = self.config.advertised
        assert self._topic is not None
        return Instance(
            host=advertised.host,
            port=advertised.port,
            scheme=advertised.scheme,
            is_eligible=self.problem is None,
            is_leader=self.leadership is not None,
            topic_id=None if self._topic.id is None else str(self._topic.id),
        )

    def _on_elected(self, elected: Elected | None) -> None:
        before, self._elected = self.leader, elected
        if (before and before.url) != (self.leader and self.leader.url):
            _LOGGER.info("leader of the registry: %s", "unknown" if self.leader is None else self.leader.url)
        self._changed.set()
        if not self._should_lead and self._leading is not None:
            self._leading.cancel()
        self._lead_if_elected()

    @property
    def _should_lead(self) -> bool:
        return self._elected is not None and self._elected.is_this_instance and self.problem is None

    def _lead_if_elected(self, ended: "asyncio.Task[None] | None" = None) -> None:
        """Starts to lead, unless an earlier leadership is still ending: then it is called again."""
        if ended is not None:
            self._leading = None
            if not ended.cancelled() and (error := ended.exception()) is not None:
                _LOGGER.error("leading the registry failed", exc_info=error)
                self._election.rejoin()
                return
        if self._should_lead and self._leading is None and not self._is_stopping:
            self._leading = asyncio.create_task(self._lead())
            self._leading.add_done_callback(self._lead_if_elected)

    async def _lead(self) -> None:
        """Leads until something fails, then asks for a new election: another instance may have been elected."""
        tries = 0
        while True:
            try:
                leadership = await self._begin()
                break
            except SchemasTopicLostError as error:
                self._lose(str(error))
                return
            except OttlaError as error:
                tries += 1
                level = logging.WARNING if isinstance(error, RetriableError) else logging.ERROR
                _LOGGER.log(level, "this registry was elected leader, but cannot lead yet, retrying: %s", error)
                await self._pause(tries)
        try:
            self.leadership = leadership
            self._changed.set()
            _LOGGER.info(
                "this registry is the leader from offset %d of topic %s on", self._applied.offset, self.config.topic
            )
            await asyncio.shield(leadership.ended)
            self._elected = None
            self._election.rejoin()
        finally:
            self.leadership = None
            self._changed.set()
            await leadership.close()

    async def _begin(self) -> Leadership:
        """Fences the previous leader, then reads the topic from its start to its end."""
        config, topic = self.config, self._topic
        assert topic is not None
        writer = SchemasWriter(
            config.bootstrap,
            config.topic,
            transactional_id=config.election.group_id if config.transactional else None,
            client_id="registry-leader",
            client_options=config.client_options,
        )
        try:
            await writer.open()
            image, end, restored = await self._read_again(topic)
            if restored:
                end = await writer.write([record.encode() for record in restored])
                await self._applied.wait(end)
                for record in restored:
                    image.apply(record, self._cluster.clock.now_ms())
            return Leadership(
                writer,
                image,
                end,
                batch_bytes_max=topic.batch_bytes_max,
                wait_applied=self._applied.wait,
                now_ms=self._cluster.clock.now_ms,
                counts=self.written,
            )
        except BaseException:
            await writer.close()
            raise

    async def _read_again(self, topic: SchemasTopic) -> tuple[RegistryImage, int, list[Record]]:
        """A new image of the whole topic, its end, and records to write so that compaction loses nothing of it.

        Raises `SchemasTopicLostError` if the topic has less than what was read before.
        """
        await topic.check_intact()
        while True:
            start, end = await topic.bounds()
            image = RegistryImage(LANGUAGES, self.config.options, self.image.schemas)
            contradicted: dict[SchemaKey, None] = {}
            unreadable: dict[SchemaKey, None] = {}
            if start < end:
                async for chunk in topic.read(start, end):
                    for number, record in enumerate(chunk.records):
                        _apply_noting(image, record, contradicted, unreadable)
                        if number % _RECORDS_IN_TURN == _RECORDS_IN_TURN - 1:
                            await asyncio.sleep(0)
            await self._applied.wait(end)
            if self._applied.offset > end:
                # A registry that does not use transactions wrote meanwhile.
                continue
            for key in unreadable:
                # The record that the followed image took is compacted already: only this instance still has it.
                kept = self.image.record_of(key)
                if kept.value is not None and image.version(key.subject, key.version, deleted=True) is None:
                    image.apply(kept, self._cluster.clock.now_ms())
                    contradicted[key] = None
            lost = _lost_from(self.image, image)
            if lost is not None:
                raise SchemasTopicLostError(
                    f"topic {topic.name} has lost {lost}, which this registry has read before: its log was truncated"
                    " or replaced"
                )
            return image, end, [*map(image.record_of, contradicted), *image.unrecorded_highest_ids()]


def _apply(image: RegistryImage, record: TopicRecord) -> bool:
    """Applies a record of the topic; returns whether the image refused it. A record that is unreadable is logged and
    skipped."""
    try:
        decoded = decode_record(record.key, record.value)
    except RecordFormatError as error:
        _LOGGER.warning("skipped the record at offset %d of the topic: %s", record.offset, error)
        return False
    refusal = image.apply(decoded, record.timestamp)
    if refusal is None:
        return False
    _LOGGER.error("refused the record at offset %d of the topic: %s", record.offset, refusal)
    return True


def _apply_noting(
    image: RegistryImage,
    record: TopicRecord,
    contradicted: dict[SchemaKey, None],
    unreadable: dict[SchemaKey, None],
) -> None:
    """As `_apply`, for a leader: notes the versions whose last record the image did not take.

    Compaction would keep that record, and remove the one before it that the image did take. Versions of which only a
    record in an unknown format is left are `unreadable`.
    """
    try:
        decoded = decode_record(record.key, record.value)
    except RecordFormatError as error:
        key = error.key
        if isinstance(key, SchemaKey):
            # If there was no version before, the record may be in the format of a newer registry: it is left alone.
            is_known = image.version(key.subject, key.version, deleted=True) is not None
            (contradicted if is_known else unreadable)[key] = None
        return
    if isinstance(decoded.key, SchemaKey):
        contradicted.pop(decoded.key, None)
        unreadable.pop(decoded.key, None)
    if image.apply(decoded, record.timestamp) is not None and isinstance(decoded.key, SchemaKey):
        contradicted[decoded.key] = None


def _lost_from(before: RegistryImage, after: RegistryImage) -> str | None:
    """Something that an image has and a newer one lacks, in words."""
    for subject in before.subjects_with_prefix(ALL_CONTEXTS):
        versions = {each.version: each.id for each in after.versions(subject)}
        for each in before.versions(subject):
            if versions.get(each.version) != each.id:
                return f"version {each.version} of subject {subject!r}"
    for context in (DEFAULT_CONTEXT, *before.contexts):
        if before.highest_id(context) > after.highest_id(context):
            return f"id {before.highest_id(context)} of context {context!r}"
    return None
