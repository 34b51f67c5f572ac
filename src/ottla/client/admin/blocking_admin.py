"""The admin client for programs without an event loop: `AsyncAdmin` in a thread of its own, method by method."""

from collections.abc import Callable, Coroutine
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, Unpack

from ottla.client.admin.async_admin import AsyncAdmin
from ottla.client.admin.options import AdminConfig, AdminOptions
from ottla.client.loop_thread import LoopThread
from ottla.client.options import configured

P = ParamSpec("P")
T = TypeVar("T")


def _blocking(
    method: Callable[Concatenate[AsyncAdmin, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate["Admin", P], T]:
    """The same method, waited for; what it promises is in the asyncio class."""

    @wraps(method)
    def wait(self: "Admin", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._thread.call(method(self._admin, *args, **kwargs))

    return wait


class Admin:
    """Administers a cluster, from any thread. A context manager; `close` ends its thread.

    `AdminOptions` has its arguments. Nothing connects before the first question; what may be tried again is, for
    `request_timeout_ms`. Methods that take several wishes answer `Outcomes`; if some fail they raise, unless told
    `raise_errors=False`: the others are done all the same.
    """

    def __init__(self, **options: Unpack[AdminOptions]) -> None:
        self.config = configured(AdminConfig, "Admin", options)
        self._admin = AsyncAdmin(**options)
        self._thread = LoopThread("ottla admin")
        self._is_closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes every connection and ends the thread. Closing twice is harmless."""
        if not self._is_closed:
            self._is_closed = True
            self._thread.call(self._admin.close())
        self._thread.close()

    describe_cluster = _blocking(AsyncAdmin.describe_cluster)
    describe_log_dirs = _blocking(AsyncAdmin.describe_log_dirs)

    create_topics = _blocking(AsyncAdmin.create_topics)
    wait_for_topics = _blocking(AsyncAdmin.wait_for_topics)
    delete_topics = _blocking(AsyncAdmin.delete_topics)
    create_partitions = _blocking(AsyncAdmin.create_partitions)
    list_topics = _blocking(AsyncAdmin.list_topics)
    describe_topics = _blocking(AsyncAdmin.describe_topics)

    describe_configs = _blocking(AsyncAdmin.describe_configs)
    alter_configs = _blocking(AsyncAdmin.alter_configs)
    list_config_resources = _blocking(AsyncAdmin.list_config_resources)

    delete_records = _blocking(AsyncAdmin.delete_records)
    list_offsets = _blocking(AsyncAdmin.list_offsets)

    elect_leaders = _blocking(AsyncAdmin.elect_leaders)
    alter_partition_reassignments = _blocking(AsyncAdmin.alter_partition_reassignments)
    list_partition_reassignments = _blocking(AsyncAdmin.list_partition_reassignments)

    list_consumer_groups = _blocking(AsyncAdmin.list_consumer_groups)
    describe_consumer_groups = _blocking(AsyncAdmin.describe_consumer_groups)
    delete_consumer_groups = _blocking(AsyncAdmin.delete_consumer_groups)
    remove_consumer_group_members = _blocking(AsyncAdmin.remove_consumer_group_members)
    list_consumer_group_offsets = _blocking(AsyncAdmin.list_consumer_group_offsets)
    alter_consumer_group_offsets = _blocking(AsyncAdmin.alter_consumer_group_offsets)
    delete_consumer_group_offsets = _blocking(AsyncAdmin.delete_consumer_group_offsets)

    list_transactions = _blocking(AsyncAdmin.list_transactions)
    describe_transactions = _blocking(AsyncAdmin.describe_transactions)
    describe_producers = _blocking(AsyncAdmin.describe_producers)
    find_hanging_transactions = _blocking(AsyncAdmin.find_hanging_transactions)
    abort_transaction = _blocking(AsyncAdmin.abort_transaction)
