"""Single faults that are done to an arena: each strikes, lasts for a while, and is healed.

Who is struck is the leader of `plain-0`, unless a fault says otherwise. What must hold meanwhile is `checker.py`'s.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Final

from tests.chaos.arena import CLIENTS, SESSION_SECONDS, Arena, place_of

LONGER_THAN_A_SESSION: Final = SESSION_SECONDS + 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """`strike` breaks the arena on entering, and heals it on leaving."""

    name: str
    strike: Callable[[Arena], AbstractContextManager[None]]
    lasts: float = LONGER_THAN_A_SESSION
    counts_from_healing: bool = False
    """Whether the clients themselves are cut off, so that nothing can be written before it is over."""
    cuts_clients: bool = False
    """Whether a request of a client may arrive late, after the client has given it up and gone on."""
    needs_zookeeper: bool = False
    """Where the store is a file no network leads to it: who is cut off there keeps its place, alone."""


@contextmanager
def _killed(arena: Arena) -> Iterator[None]:
    leader = arena.leader()
    leader.kill()
    yield
    leader.start()


@contextmanager
def _killed_and_back_at_once(arena: Arena) -> Iterator[None]:
    leader = arena.leader()
    leader.kill()
    leader.start()
    yield


@contextmanager
def _follower_killed(arena: Arena) -> Iterator[None]:
    follower = arena.cluster.followers_of("plain")[0]
    follower.kill()
    yield
    follower.start()


def coordinator_killed(name: str, topic: str) -> Fault:
    """The leader of the first partition of a coordinator's topic is killed; the topic must exist."""

    @contextmanager
    def strike(arena: Arena) -> Iterator[None]:
        leader = arena.leader(topic)
        leader.kill()
        yield
        leader.start()

    return Fault(name=f"{name} coordinator killed", strike=strike)


@contextmanager
def _paused(arena: Arena) -> Iterator[None]:
    leader = arena.leader()
    leader.pause()
    yield
    leader.resume()


@contextmanager
def _stopped_cleanly(arena: Arena) -> Iterator[None]:
    leader = arena.leader()
    leader.stop()
    yield
    leader.start()


@contextmanager
def _leader_alone(arena: Arena) -> Iterator[None]:
    """Seen by nobody: neither brokers, nor the store, nor clients."""
    leader = place_of(arena.leader())
    arena.network.part([leader], [name for name in arena.network.places if name != leader])
    yield
    arena.network.heal()


@contextmanager
def _two_brokers_parted(arena: Arena) -> Iterator[None]:
    leader = arena.leader()
    arena.network.part([place_of(leader)], [place_of(arena.others(leader)[0])])
    yield
    arena.network.heal()


@contextmanager
def _leader_unheard_by_a_follower(arena: Arena) -> Iterator[None]:
    leader = arena.leader()
    arena.network.cut([place_of(leader)], [place_of(arena.others(leader)[0])])
    yield
    arena.network.heal()


@contextmanager
def _leader_deaf_to_a_follower(arena: Arena) -> Iterator[None]:
    leader = arena.leader()
    arena.network.cut([place_of(arena.others(leader)[0])], [place_of(leader)])
    yield
    arena.network.heal()


@contextmanager
def _leader_parted_from_brokers(arena: Arena) -> Iterator[None]:
    leader = arena.leader()
    arena.network.part([place_of(leader)], [place_of(each) for each in arena.others(leader)])
    yield
    arena.network.heal()


@contextmanager
def _leader_parted_from_zookeeper(arena: Arena) -> Iterator[None]:
    arena.network.part([place_of(arena.leader())], arena.servers())
    yield
    arena.network.heal()


@contextmanager
def _leader_unheard_by_zookeeper(arena: Arena) -> Iterator[None]:
    arena.network.cut([place_of(arena.leader())], arena.servers())
    yield
    arena.network.heal()


@contextmanager
def _clients_parted_from_leader(arena: Arena) -> Iterator[None]:
    arena.network.part([CLIENTS], [place_of(arena.leader())])
    yield
    arena.network.heal()


@contextmanager
def _clients_deaf_to_leader(arena: Arena) -> Iterator[None]:
    arena.network.cut([place_of(arena.leader())], [CLIENTS])
    yield
    arena.network.heal()


@contextmanager
def _zookeeper_leader_killed(arena: Arena) -> Iterator[None]:
    if arena.zookeeper is None:
        raise ValueError("there is no ZooKeeper in this arena")
    leader = arena.zookeeper.leader()
    arena.zookeeper.kill(leader)
    yield
    arena.zookeeper.start([leader])


@contextmanager
def _zookeeper_leader_paused(arena: Arena) -> Iterator[None]:
    if arena.zookeeper is None:
        raise ValueError("there is no ZooKeeper in this arena")
    leader = arena.zookeeper.leader()
    arena.zookeeper.pause(leader)
    yield
    arena.zookeeper.resume(leader)


@contextmanager
def _rolling_restart(arena: Arena) -> Iterator[None]:
    arena.cluster.restart()
    yield


TRANSACTION_COORDINATOR_KILLED: Final = coordinator_killed("transaction", "__transaction_state")
FAULTS: Final = (
    Fault(name="leader killed", strike=_killed),
    Fault(name="leader killed, back at once", strike=_killed_and_back_at_once),
    Fault(name="follower killed", strike=_follower_killed),
    TRANSACTION_COORDINATOR_KILLED,
    Fault(name="leader paused beyond its session", strike=_paused),
    Fault(name="leader stopped cleanly", strike=_stopped_cleanly),
    Fault(name="leader cut off from everything", strike=_leader_alone, cuts_clients=True, needs_zookeeper=True),
    Fault(name="leader and a follower parted", strike=_two_brokers_parted),
    Fault(name="a follower does not hear the leader", strike=_leader_unheard_by_a_follower),
    Fault(name="the leader does not hear a follower", strike=_leader_deaf_to_a_follower),
    Fault(name="leader parted from all brokers", strike=_leader_parted_from_brokers, counts_from_healing=True),
    Fault(name="leader parted from ZooKeeper", strike=_leader_parted_from_zookeeper, needs_zookeeper=True),
    Fault(name="ZooKeeper does not hear the leader", strike=_leader_unheard_by_zookeeper, needs_zookeeper=True),
    Fault(
        name="clients parted from the leader",
        strike=_clients_parted_from_leader,
        counts_from_healing=True,
        cuts_clients=True,
    ),
    Fault(
        name="clients do not hear the leader",
        strike=_clients_deaf_to_leader,
        counts_from_healing=True,
        cuts_clients=True,
    ),
    Fault(name="ZooKeeper's leader killed", strike=_zookeeper_leader_killed, needs_zookeeper=True),
    Fault(name="ZooKeeper's leader paused", strike=_zookeeper_leader_paused, needs_zookeeper=True),
    Fault(name="rolling restart", strike=_rolling_restart, lasts=0.0),
)
