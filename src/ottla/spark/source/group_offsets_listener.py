"""Consumer groups that follow streaming queries: after each batch, its end offsets become the group's.

The source's option `groupId` names the group; the batch's end offset carries it to here. Spark tells listeners of a
batch when it is finished and logged, also of the last one before a query ends, which the source itself never hears of.
Commits happen on a thread of their own: a broker that is away delays them, never the query. Decisions are in
`group_following_state.py`.
"""

import atexit
import logging
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from ottla.client.admin.blocking_admin import Admin
from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition
from ottla.spark.progress import stream_progress
from ottla.spark.source.group_following_state import GroupFollowing, GroupKey

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

_EXIT_WAIT_S = 5.0
_IDLE_S = 60.0


class FollowGroups(StreamingQueryListener):
    """A listener for Spark's queries; `follow_groups` makes and registers one."""

    def __init__(self) -> None:
        self._state = GroupFollowing()
        self._running: set[str] = set()
        self._changed = threading.Condition()
        self._is_closed = False
        self._thread: threading.Thread | None = None

    def onQueryStarted(self, event: Any) -> None:
        """Remembers that the query has an end to wait for."""
        with self._changed:
            self._running.add(str(event.runId))

    def onQueryProgress(self, event: Any) -> None:
        """Has the batch's ends committed, some time later."""
        try:
            progress = stream_progress(event.progress)
        except ValueError as error:
            _log.warning("a progress event was not understood, so no group follows it: %s", error)
            return
        with self._changed:
            self._running.add(progress.run_id)
            if progress.groups:
                self._state.on_batch(progress.groups)
                self._begin()
                self._changed.notify_all()

    def onQueryIdle(self, event: Any) -> None:
        """Nothing has changed."""

    def onQueryTerminated(self, event: Any) -> None:
        """The query's last progress has been heard of."""
        with self._changed:
            self._running.discard(str(event.runId))
            self._changed.notify_all()

    def settle(self, spark: "SparkSession", timeout_s: float = 30.0) -> bool:
        """Waits until the groups have the offsets of all queries that have ended; False if that took too long.

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
        """Ends the thread, after what is due has been committed or the time is over."""
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
        """What to commit, as soon as there is something; nothing at the end."""
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
                admins[bootstrap] = Admin(bootstrap_servers=bootstrap, client_id="ottla-spark")
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
            _log.warning("the offsets of group %s were not committed, next try in %.1f s: %s", group, pause, problem)


def follow_groups(spark: "SparkSession") -> FollowGroups:
    """Makes the groups of all queries of this session, present and future, follow them. Call it once for a session."""
    listener = FollowGroups()
    spark.streams.addListener(listener)
    return listener
