"""Commits the progress of streaming queries to consumer groups: after each batch, its end offsets.

The source's option `groupId` names the group, and the batch's end offset has it too. Spark tells listeners of each
finished batch, also of the last one before a query ends, which the source itself is not told of. Commits run in a
thread of their own: an unreachable broker delays them, never the query. Decisions are in `group_following_state.py`.
"""

import atexit
import logging
import threading
import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from ottla.client.admin.blocking_admin import Admin
from ottla.client.admin.options import AdminConfig
from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition
from ottla.spark.option_names import chosen_for, client_options
from ottla.spark.progress import stream_progress
from ottla.spark.source.group_following_state import GroupFollowing, GroupKey

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

_EXIT_WAIT_S = 5.0
_IDLE_S = 60.0


class FollowGroups(StreamingQueryListener):
    """A listener for Spark's queries; `follow_groups` creates and registers one.

    `options` are the `kafka.` options of connections, such as kafka.security.protocol.
    """

    def __init__(self, options: Mapping[str, str] = MappingProxyType({})) -> None:
        self._options = chosen_for(AdminConfig, client_options(options))
        self._state = GroupFollowing()
        self._running: set[str] = set()
        self._changed = threading.Condition()
        self._is_closed = False
        self._thread: threading.Thread | None = None

    def onQueryStarted(self, event: Any) -> None:
        """Remembers that the query runs."""
        with self._changed:
            self._running.add(str(event.runId))

    def onQueryProgress(self, event: Any) -> None:
        """Schedules the commit of the batch's end offsets."""
        try:
            progress = stream_progress(event.progress)
        except ValueError as error:
            _log.warning("cannot read a progress event, its offsets are not committed: %s", error)
            return
        with self._changed:
            self._running.add(progress.run_id)
            if progress.groups:
                self._state.on_batch(progress.groups)
                self._begin()
                self._changed.notify_all()

    def onQueryIdle(self, event: Any) -> None:
        """Nothing to do."""

    def onQueryTerminated(self, event: Any) -> None:
        """The query ended; its last progress was reported before."""
        with self._changed:
            self._running.discard(str(event.runId))
            self._changed.notify_all()

    def settle(self, spark: "SparkSession", timeout_s: float = 30.0) -> bool:
        """Waits until the offsets of all ended queries are committed; False if that took too long.

        Spark's events come a little after `awaitTermination` returns, so a program that ends should call this before.
        """
        deadline = time.monotonic() + timeout_s
        active = {str(each.runId) for each in spark.streams.active}
        with self._changed:
            return self._changed.wait_for(
                lambda: self._is_closed or (self._running <= active and self._state.is_settled()),
                timeout=max(deadline - time.monotonic(), 0),
            )

    def close(self, timeout_s: float = _EXIT_WAIT_S) -> None:
        """Ends the thread once all is committed or the timeout is over."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or self._state.is_settled(), timeout=timeout_s)
            self._is_closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(timeout_s)

    def _begin(self) -> None:
        if self._thread is None and not self._is_closed:
            self._thread = threading.Thread(target=self._run, name="ottla group offsets", daemon=True)
            self._thread.start()
            atexit.register(self.close)

    def _run(self) -> None:
        admins: dict[str, Admin] = {}
        try:
            while True:
                with self._changed:
                    due = {} if self._is_closed else self._wait_due()
                if not due:
                    return
                for key, offsets in due.items():
                    self._commit(admins, key, offsets)
        finally:
            for admin in admins.values():
                admin.close()

    def _wait_due(self) -> Mapping[GroupKey, dict[TopicPartition, int]]:
        """Waits for something to commit; empty at the end."""
        while not self._is_closed:
            now = time.monotonic()
            due = self._state.due(now)
            if due:
                return due
            deadline = self._state.next_deadline()
            self._changed.wait(_IDLE_S if deadline is None else max(deadline - now, 0.001))
        return {}

    def _commit(self, admins: dict[str, Admin], key: GroupKey, offsets: dict[TopicPartition, int]) -> None:
        bootstrap, group = key
        has: dict[TopicPartition, int] = {}
        problem: Exception | None = None
        try:
            if bootstrap not in admins:
                admins[bootstrap] = Admin(
                    **{"client_id": "ottla-spark", **self._options, "bootstrap_servers": bootstrap}
                )
            found = admins[bootstrap].list_consumer_group_offsets(group, offsets)
            has = {each: kept.offset for each, kept in found.items()}
            ahead = {each: offset for each, offset in offsets.items() if has.get(each, -1) < offset}
            if ahead:
                outcomes = admins[bootstrap].alter_consumer_group_offsets(group, ahead, raise_errors=False)
                has.update({each: ahead[each] for each in outcomes})
                problem = next(iter(outcomes.errors.values()), None)
        except OttlaError as error:
            problem = error
        with self._changed:
            self._state.on_committed(key, has)
            pause = self._state.on_failed(key, time.monotonic()) if problem is not None else 0.0
            self._changed.notify_all()
        if problem is not None:
            _log.warning("commit for group %s failed, retrying in %.1f s: %s", group, pause, problem)


def follow_groups(spark: "SparkSession", options: Mapping[str, str] = MappingProxyType({})) -> FollowGroups:
    """Commits the progress of all queries of this session, present and future, to their groups. Call it once.

    `options` are the `kafka.` options of connections, such as kafka.security.protocol, if the brokers need them.
    """
    listener = FollowGroups(options)
    spark.streams.addListener(listener)
    return listener
