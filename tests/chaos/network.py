"""A small network of its own: places with an address each, and ways between them that can be cut, also one way only.

A place is a network namespace, tied to one bridge. A cut is silent, as a broken switch is: the sender is given a
hardware address for the other's place that nobody has. That needs nothing of the kernel but bridges and namespaces.
Addresses are of the block that is set aside for trying out networks; nothing leads out of it.
"""

import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from tests.processes import run

SUBNETS: Final = 250
NOBODY: Final = "02:00:00:00:00:01"
"""A hardware address that no place has."""


class NetworkUnavailableError(Exception):
    """There can be no such network here; the message says why, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One namespace with one address."""

    name: str
    namespace: str
    address: str

    @property
    def launcher(self) -> tuple[str, ...]:
        """What a command begins with to run here; the process is the command's own."""
        return ("ip", "netns", "exec", self.namespace)


class Network:
    """Made by `network`. Places see each other, and this process sees all of them, until they are cut."""

    def __init__(self, bridge: str, subnet: str) -> None:
        self.places: Final[dict[str, Place]] = {}
        self._bridge = bridge
        self._subnet = subnet
        self._cuts: set[tuple[str, str]] = set()

    def add(self, name: str) -> Place:
        """A new place."""
        number = len(self.places) + 1
        place = Place(name=name, namespace=f"{self._bridge}-{name}", address=f"{self._subnet}.{number}")
        _ip("netns", "add", place.namespace)
        self.places[name] = place
        cable = self._cable(number)
        _ip("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", place.namespace)
        _ip("link", "set", cable, "master", self._bridge, "up")
        _ip("-n", place.namespace, "addr", "add", f"{place.address}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            _ip("-n", place.namespace, "link", "set", device, "up")
        return place

    def _cable(self, number: int) -> str:
        return f"{self._bridge}v{number}"

    def cut(self, senders: Iterable[str], receivers: Iterable[str]) -> None:
        """Nothing that senders send arrives at receivers, until `heal`; what these send arrives."""
        there = list(receivers)
        for sender in senders:
            for receiver in there:
                if sender != receiver and (sender, receiver) not in self._cuts:
                    self._cuts.add((sender, receiver))
                    self._neighbour(sender, receiver, "replace", "lladdr", NOBODY, "nud", "permanent")

    def part(self, some: Iterable[str], others: Iterable[str]) -> None:
        """Cuts both ways."""
        here, there = list(some), list(others)
        self.cut(here, there)
        self.cut(there, here)

    def heal(self) -> None:
        """Undoes every cut."""
        while self._cuts:
            sender, receiver = self._cuts.pop()
            self._neighbour(sender, receiver, "del")

    def remove(self) -> None:
        """Takes everything away; processes that still run in a place see nobody any more."""
        for number, place in enumerate(self.places.values(), 1):
            # By itself the kernel takes a cable away some time after its namespace, and its name is taken until then.
            _ip("link", "del", self._cable(number), check=False)
            _ip("netns", "del", place.namespace, check=False)
        _ip("link", "del", self._bridge, check=False)

    def _neighbour(self, sender: str, receiver: str, verb: str, *what: str) -> None:
        here, there = self.places[sender], self.places[receiver]
        _ip("-n", here.namespace, "neigh", verb, there.address, "dev", "eth0", *what)


@contextmanager
def network(names: Iterable[str] = ()) -> Iterator[Network]:
    """A network with these places, gone afterwards. Raises `NetworkUnavailableError`."""
    made = _make()
    try:
        for name in names:
            made.add(name)
        yield made
    finally:
        made.remove()


def _make() -> Network:
    if os.geteuid() != 0:
        raise NetworkUnavailableError("network namespaces are root's to make; run these tests as root")
    if shutil.which("ip") is None:
        raise NetworkUnavailableError("the command ip is missing; install Debian's package iproute2")
    # Runs side by side take different subnets: a bridge's name can be taken once.
    for number in range(os.getpid() % SUBNETS, os.getpid() % SUBNETS + SUBNETS):
        at = number % SUBNETS + 1
        bridge = f"ottla{at}"
        done = _run("link", "add", bridge, "type", "bridge")
        if done.returncode == 0:
            made = Network(bridge, f"198.18.{at}")
            try:
                _ip("addr", "add", f"198.18.{at}.254/24", "dev", bridge)
                _ip("link", "set", bridge, "up")
            except BaseException:
                made.remove()
                raise
            return made
        if "File exists" not in done.stderr:
            break
    raise NetworkUnavailableError(f"a bridge cannot be made here: {done.stderr.strip()}")


def _ip(*words: str, check: bool = True) -> None:
    done = _run(*words)
    if check and done.returncode != 0:
        raise NetworkUnavailableError(f"ip {' '.join(words)}: {done.stderr.strip()}")


def _run(*words: str) -> "subprocess.CompletedProcess[str]":
    return run(["ip", *words], status=None)
