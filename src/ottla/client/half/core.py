"""What both half message producers do: prepare, decide, and answer the broker's questions, on one event loop."""

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from ottla.client.arguments import shown
from ottla.client.consumer.async_consumer import AsyncConsumer
from ottla.client.half.options import (
    HALF_MESSAGE_PRODUCER,
    HalfMessageProducerConfig,
    HalfMessageProducerOptions,
    half_message_producer_config,
)
from ottla.client.half.values import HalfDecision, HalfMessage, HalfResult
from ottla.client.producer.async_producer import AsyncProducer
from ottla.client.serializers import KeyAndValueSerializers, deserialized
from ottla.client.values import ConsumerRecord, Header, RecordMetadata
from ottla.model.errors import MisuseError, OttlaError
from ottla.model.queue_names import (
    BROKER_HEADERS,
    HALF_CHECK_AFTER_MS,
    HALF_CHECKS,
    HALF_HOPS,
    HALF_ID,
    HALF_STATE,
    half_checks_topic,
    half_topic,
)

_LOGGER: Final = logging.getLogger(__name__)

_POLL_MS: Final = 60_000
_RETRY_SECONDS: Final = 1.0
_OURS: Final = frozenset({*BROKER_HEADERS, HALF_ID, HALF_STATE, HALF_CHECK_AFTER_MS, HALF_HOPS})

Decide = Callable[[HalfMessage], Awaitable[HalfDecision]]


def closed_error() -> MisuseError:
    """The error of every method after `close`."""
    return MisuseError("the half message producer is closed; create a new one")


class HalfMessageCore:
    """The half messages of one topic. `start` it, and `close` it once; both in the same event loop.

    A call of `send` takes the steps `begin`, `prepare`, the local transaction, `finish`, and always `end`.
    """

    def __init__(self, topic: str, check: Decide | None, options: HalfMessageProducerOptions) -> None:
        self.topic: Final = topic
        self.config: Final[HalfMessageProducerConfig] = half_message_producer_config(
            options, has_check=check is not None
        )
        self._check = check
        # Not by the producer, since decisions have neither a key nor a value.
        self._serializers = KeyAndValueSerializers(self.config.key_serializer, self.config.value_serializer)
        self._producer = AsyncProducer(**self.config.producer_options())
        # Decisions must not wait behind half messages that the broker refuses until others are decided. Interceptors
        # see half messages only: a decision is not a record of the program.
        self._deciding = AsyncProducer(**{**self.config.producer_options(), "interceptors": ()})
        self._consumer: AsyncConsumer | None = None
        self._answering: asyncio.Task[None] | None = None
        self._running = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._is_started = False
        self._is_closed = False

    async def start(self) -> None:
        """Begins to answer questions. Calling it again does nothing."""
        if self._is_closed:
            raise closed_error()
        if self._is_started:
            return
        self._is_started = True
        await asyncio.gather(self._producer.start(), self._deciding.start())
        if self._check is not None:
            self._answering = asyncio.get_running_loop().create_task(self._answer_questions(self._check))

    async def close(self) -> None:
        """Waits for running calls of `send` and `check`, and closes everything. Calling it again does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        await self._idle.wait()
        if self._answering is not None:
            if self._consumer is not None:
                self._consumer.wakeup()
            await self._answering
        await asyncio.gather(self._producer.close(), self._deciding.close())

    # The steps of `send`

    async def begin(self) -> None:
        """A call of `send` begins: `close` waits for its end."""
        if self._is_closed:
            raise closed_error()
        if not self._is_started:
            raise MisuseError(f"Async{HALF_MESSAGE_PRODUCER}: call start() or use `async with` before send()")
        self._running += 1
        self._idle.clear()

    async def end(self) -> None:
        """A call of `send` is over."""
        self._running -= 1
        if self._running == 0:
            self._idle.set()

    async def prepare(
        self,
        value: Any,
        key: Any,
        headers: Sequence[Header] | None,
        partition: int | None,
        timestamp_ms: int | None,
        id: str | None,
        check_after_ms: int | None,
    ) -> tuple[HalfMessage, RecordMetadata]:
        """Writes the half message."""
        message = HalfMessage(id or uuid.uuid4().hex, self.topic, key, value, tuple(headers or ()))
        ours: list[Header] = [(HALF_ID, message.id.encode()), (HALF_STATE, b"prepare")]
        if check_after_ms is not None:
            ours.append((HALF_CHECK_AFTER_MS, str(check_after_ms).encode()))
        made, made_key, added = await self._serializers.serialized(self.topic, value, key)
        prepared = await self._producer.send_and_wait(
            half_topic(self.topic),
            made,
            made_key,
            [*message.headers, *added, *ours],
            partition,
            timestamp_ms,
        )
        return message, prepared

    async def finish(self, message: HalfMessage, prepared: RecordMetadata, decision: HalfDecision) -> HalfResult:
        """Tells the broker the decision."""
        is_acknowledged = await self._decide(message, prepared.partition, decision, "execute")
        return HalfResult(message.id, decision, is_acknowledged, prepared)

    async def _decide(self, message: HalfMessage, partition: int, decision: HalfDecision, callback: str) -> bool:
        """Sends a decision; returns whether the broker has it."""
        if not isinstance(decision, HalfDecision):
            raise MisuseError(f"{callback} must return a HalfDecision, not {shown(decision)}")
        if decision is HalfDecision.UNKNOWN:
            return False
        headers: list[Header] = [(HALF_ID, message.id.encode()), (HALF_STATE, decision.value.encode())]
        try:
            await self._deciding.send_and_wait(half_topic(self.topic), None, None, headers, partition)
        except OttlaError as error:
            _LOGGER.warning(
                "half message %s of topic %s: the decision %s was not acknowledged, the broker will ask: %s",
                message.id, self.topic, decision.value, error,
            )  # fmt: skip
            return False
        return True

    # Questions

    async def _answer_questions(self, check: Decide) -> None:
        while not self._is_closed:
            try:
                async with AsyncConsumer(half_checks_topic(self.topic), **self.config.consumer_options()) as consumer:
                    self._consumer = consumer
                    while not self._is_closed:
                        polled = await consumer.poll(timeout_ms=_POLL_MS)
                        questions = [record for records in polled.values() for record in records]
                        if questions:
                            await asyncio.gather(*(self._answer(check, question) for question in questions))
                            # The broker asks again what was not answered.
                            await consumer.commit()
            except OttlaError as error:
                if not self._is_closed:
                    _LOGGER.warning("cannot read %s, retrying: %s", half_checks_topic(self.topic), error)
                    await asyncio.sleep(_RETRY_SECONDS)
            except Exception:
                _LOGGER.exception("unexpected error while reading %s, retrying", half_checks_topic(self.topic))
                await asyncio.sleep(_RETRY_SECONDS)
            finally:
                self._consumer = None

    async def _answer(self, check: Decide, question: ConsumerRecord) -> None:
        values = dict(question.headers)
        id, checks = values.get(HALF_ID), values.get(HALF_CHECKS)
        if not id or not checks:
            _LOGGER.warning(
                "%s-%d, offset %d: not a check by the broker; skipped",
                question.topic, question.partition, question.offset,
            )  # fmt: skip
            return
        try:
            headers = tuple(header for header in question.headers if header[0] not in _OURS)
            message = HalfMessage(
                id.decode(),
                self.topic,
                await deserialized(self.config.key_deserializer, self.topic, headers, question.key, is_key=True),
                await deserialized(self.config.value_deserializer, self.topic, headers, question.value, is_key=False),
                headers,
                int(checks),
            )
            await self._decide(message, question.partition, await check(message), "check")
        except Exception:
            _LOGGER.exception(
                "half message %s of topic %s: check failed; the broker will ask again", id.decode(errors="replace"),
                self.topic,
            )  # fmt: skip
