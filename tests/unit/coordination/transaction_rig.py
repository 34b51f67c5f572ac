"""A transaction shard with a log, as the runtime would give it one: append, replay, commit, and only then answer."""

from collections.abc import Hashable
from typing import Any

from ottla.coordination.runtime.effects import CoordinatorRecord, Respond, Write
from ottla.coordination.transactions.requests import (
    NeedProducerId,
    SendMarkers,
    TransactionEffect,
    TransactionSettings,
)
from ottla.coordination.transactions.shard_state import TransactionShard
from ottla.model.error_codes import ErrorCode
from ottla.model.ids import ProducerId, TopicPartition

FIRST_PRODUCER_ID = 1000


class TransactionRig:
    """`answers` has what clients were told, by token; `markers` what was sent to partitions and not yet reported.
    `now_ms` is the clock. With `auto_commit` off, records stay uncommitted until `commit`."""

    def __init__(self, settings: TransactionSettings | None = None) -> None:
        self.settings = settings or TransactionSettings()
        self.now_ms = 1_000_000
        self.log: list[CoordinatorRecord] = []
        self.committed = 0
        self.auto_commit = True
        self.appends_fail = False
        self.producer_ids_fail = False
        self.next_producer_id = FIRST_PRODUCER_ID
        self.coordinator_epoch = 0
        self.answers: dict[Hashable, Any] = {}
        self.markers: list[SendMarkers] = []
        self.waiting: list[tuple[int, Respond | SendMarkers]] = []
        self.shard = self._new_shard()

    def _new_shard(self) -> TransactionShard:
        return TransactionShard(coordinator_epoch=self.coordinator_epoch, settings=self.settings)

    def run(self, effects: list[TransactionEffect]) -> None:
        """Carries effects out in order."""
        for effect in effects:
            match effect:
                case Respond():
                    self._give(effect)
                case Write():
                    if self.appends_fail and effect.records:
                        for response in effect.on_failure:
                            self._give(response)
                        break
                    for record in effect.records:
                        self.log.append(record)
                        self.shard.replay(record)
                    self.waiting += [(len(self.log), response) for response in effect.responses]
                case SendMarkers():
                    self.waiting.append((len(self.log), effect))
                case NeedProducerId():
                    self._allocate(effect)
        self.shard.check()
        # Even when nothing more is committed: what waits for nothing must show that it does.
        self.commit(None if self.auto_commit else self.committed)

    def _allocate(self, need: NeedProducerId) -> None:
        if self.producer_ids_fail:
            for response in need.on_failure:
                self._give(response)
            return
        self.next_producer_id += 1
        self.run(self.shard.on_producer_id(need, ProducerId(self.next_producer_id - 1), self.now_ms))

    def _give(self, response: Respond) -> None:
        assert response.token not in self.answers, f"answered twice: {response}"
        self.answers[response.token] = response.response

    def commit(self, end: int | None = None) -> None:
        """Everything up to there is committed: what waited for it leaves."""
        self.committed = max(self.committed, len(self.log) if end is None else end)
        leaving = [effect for at, effect in self.waiting if at <= self.committed]
        self.waiting = [(at, effect) for at, effect in self.waiting if at > self.committed]
        for effect in leaving:
            if isinstance(effect, Respond):
                self._give(effect)
            else:
                self.markers.append(effect)

    def written(self, sent: SendMarkers, errors: dict[TopicPartition, ErrorCode] | None = None) -> None:
        """Reports markers; by default all were written."""
        if sent in self.markers:
            self.markers.remove(sent)
        outcome = dict.fromkeys(sent.partitions, ErrorCode.NONE) if errors is None else errors
        self.run(self.shard.on_markers_written(sent, outcome, self.now_ms))

    def tick(self, after_ms: int = 0) -> None:
        """Lets time pass, and timers act."""
        self.now_ms += after_ms
        self.run(self.shard.on_tick(self.now_ms))

    def fail_over(self, survives: int | None = None) -> None:
        """Another coordinator takes over what is committed, and perhaps more of the log."""
        self.log = self.log[: max(self.committed, survives if survives is not None else self.committed)]
        self.committed = len(self.log)
        self.waiting = []
        self.markers = []
        self.coordinator_epoch += 1
        self.shard = self._new_shard()
        for record in self.log:
            self.shard.replay(record)
        self.run(self.shard.on_loaded(self.now_ms))
