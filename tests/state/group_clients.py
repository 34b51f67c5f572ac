"""Clients of a group that a server assigns: what they do, what happens to them, and what must hold in every group."""

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ottla.model.error_codes import ErrorCode

FENCED = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND)


def snapshot(groups: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """All that the machine knows of each group."""
    return {group_id: {name: getattr(group, name) for name in group.__slots__} for group_id, group in groups.items()}


class GroupClientsMachine(RuleBasedStateMachine):
    """One group, `g`, and its clients by member id. The driver of the coordinator is there from the first rule on."""

    driver: Any
    clients: dict[str, Any]

    def __init__(self) -> None:
        super().__init__()
        self.clients = {}
        self.names = 0
        self.last_epochs = (0, 0)

    def heartbeat(self, client: Any, *, is_lost: bool = False) -> None:
        """A client's heartbeat, whose response may be lost."""
        raise NotImplementedError

    def replayed(self) -> dict[str, Any]:
        """The groups as the log alone has them."""
        raise NotImplementedError

    def pick(self, data: st.DataObject) -> Any:
        """Any client."""
        return self.clients[data.draw(st.sampled_from(list(self.clients)))]

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), is_lost=st.booleans(), says_all=st.booleans())
    def beat(self, data: st.DataObject, is_lost: bool, says_all: bool) -> None:
        client = self.pick(data)
        client.says_all = client.says_all or says_all
        self.heartbeat(client, is_lost=is_lost)

    @precondition(lambda self: self.clients)
    @rule(lost=st.lists(st.integers(0, 5), max_size=2))
    def all_beat(self, lost: list[int]) -> None:
        for index, client in enumerate(list(self.clients.values())):
            self.heartbeat(client, is_lost=index in lost)

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def vanish(self, data: st.DataObject) -> None:
        del self.clients[self.pick(data).member_id]

    @rule(is_compacted=st.booleans())
    def fail_over(self, is_compacted: bool) -> None:
        before = snapshot(self.driver.shard.groups)
        if is_compacted:
            last = {record.key: index for index, record in enumerate(self.driver.log)}
            self.driver.log = [self.driver.log[index] for index in sorted(last.values())]
        self.driver.reload()
        assert before == snapshot(self.driver.shard.groups)

    @invariant()
    def replayed_is_live(self) -> None:
        if hasattr(self, "driver"):
            assert snapshot(self.replayed()) == snapshot(self.driver.shard.groups)

    @invariant()
    def epochs_never_go_back(self) -> None:
        group = self.driver.shard.groups.get("g") if hasattr(self, "driver") else None
        if group is not None:
            epochs = (group.epoch, group.target_epoch)
            assert self.last_epochs[0] <= epochs[0]
            assert self.last_epochs[1] <= epochs[1]
            self.last_epochs = epochs
