"""The admin client for programs without an event loop: `AsyncAdmin` in a thread of its own."""

from collections.abc import Callable, Coroutine
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, Unpack

from ottla.client.admin.async_admin import AsyncAdmin, admin_closed
from ottla.client.admin.options import AdminOptions
from ottla.client.loop_thread import LoopThread

P = ParamSpec("P")
T = TypeVar("T")


def _blocking(
    method: Callable[Concatenate[AsyncAdmin, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate["Admin", P], T]:
    """The blocking twin of a method of `AsyncAdmin`."""

    @wraps(method)
    def wait(self: "Admin", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._thread.call(method(self._admin, *args, **kwargs))

    return wait


class Admin:
    """Administers a cluster, from any thread. A context manager; `close` ends its thread.

    `AdminOptions` has its arguments. It connects at the first call. Retriable errors are retried for
    `request_timeout_ms`. A method that takes several items returns `Outcomes`, one for each item. If some items fail it
    raises, after all were tried: the item's error if there was one item, `PartlyFailedError` otherwise. With
    `raise_errors=False` it returns the errors in the `Outcomes` instead.

    Every method raises `AnswerError` if a broker refuses, `CannotConnectError` if no broker can be reached,
    `DeadlineError` if retrying took too long, `ArgumentError` for an argument of the wrong type, and `MisuseError`
    after `close`.
    """

    def __init__(self, **options: Unpack[AdminOptions]) -> None:
        self._admin = AsyncAdmin(**options)
        self.config = self._admin.config
        self._thread = LoopThread("ottla admin", admin_closed)
        self._is_closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes all connections and ends the thread. Calling it again does nothing."""
        if not self._is_closed:
            self._is_closed = True
            self._thread.call(self._admin.close())
        self._thread.close()

    describe_cluster = _blocking(AsyncAdmin.describe_cluster)
    describe_quorum = _blocking(AsyncAdmin.describe_quorum)
    unregister_broker = _blocking(AsyncAdmin.unregister_broker)
    describe_features = _blocking(AsyncAdmin.describe_features)
    update_features = _blocking(AsyncAdmin.update_features)
    describe_log_dirs = _blocking(AsyncAdmin.describe_log_dirs)
    alter_replica_log_dirs = _blocking(AsyncAdmin.alter_replica_log_dirs)

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

    list_groups = _blocking(AsyncAdmin.list_groups)
    describe_share_groups = _blocking(AsyncAdmin.describe_share_groups)
    list_share_group_offsets = _blocking(AsyncAdmin.list_share_group_offsets)
    alter_share_group_offsets = _blocking(AsyncAdmin.alter_share_group_offsets)
    delete_share_group_offsets = _blocking(AsyncAdmin.delete_share_group_offsets)
    delete_share_groups = _blocking(AsyncAdmin.delete_share_groups)
    describe_streams_groups = _blocking(AsyncAdmin.describe_streams_groups)

    list_transactions = _blocking(AsyncAdmin.list_transactions)
    describe_transactions = _blocking(AsyncAdmin.describe_transactions)
    describe_producers = _blocking(AsyncAdmin.describe_producers)
    find_hanging_transactions = _blocking(AsyncAdmin.find_hanging_transactions)
    abort_transaction = _blocking(AsyncAdmin.abort_transaction)

    create_acls = _blocking(AsyncAdmin.create_acls)
    describe_acls = _blocking(AsyncAdmin.describe_acls)
    delete_acls = _blocking(AsyncAdmin.delete_acls)

    describe_user_scram_credentials = _blocking(AsyncAdmin.describe_user_scram_credentials)
    alter_user_scram_credentials = _blocking(AsyncAdmin.alter_user_scram_credentials)

    describe_client_quotas = _blocking(AsyncAdmin.describe_client_quotas)
    alter_client_quotas = _blocking(AsyncAdmin.alter_client_quotas)

    create_delegation_token = _blocking(AsyncAdmin.create_delegation_token)
    renew_delegation_token = _blocking(AsyncAdmin.renew_delegation_token)
    expire_delegation_token = _blocking(AsyncAdmin.expire_delegation_token)
    describe_delegation_token = _blocking(AsyncAdmin.describe_delegation_token)
