"""Registry processes that are killed and paused while clients register schemas: no id twice, nothing lost."""

import json
import threading
from pathlib import Path
from typing import Any

import httpx

from ottla.testing import ProcessBroker
from tests.cluster.registry_process import RegistryProcess, registries

OPTIONS = ("--session-timeout-ms", "6000")


def schema(name: str) -> dict[str, Any]:
    return {"schema": json.dumps({"type": "fixed", "name": name, "size": 1})}


class Registering:
    """Clients that register new schemas through all instances, and remember what was acknowledged."""

    def __init__(self, running: list[RegistryProcess], clients: int = 4) -> None:
        self.acknowledged: dict[str, int] = {}
        self.errors: list[str] = []
        self._urls = [each.url for each in running]
        self._stop = threading.Event()
        self._progress = threading.Condition()
        self._threads = [threading.Thread(target=self._register, args=(number,)) for number in range(clients)]
        for thread in self._threads:
            thread.start()

    def _register(self, client: int) -> None:
        number = 0
        with httpx.Client(timeout=10, trust_env=False) as http:
            while not self._stop.is_set():
                name = f"S{client}x{number}"
                url = self._urls[(client + number) % len(self._urls)]
                number += 1
                try:
                    response = http.post(f"{url}/subjects/{name}/versions", json=schema(name))
                except httpx.HTTPError:
                    continue
                with self._progress:
                    if response.status_code == 200:
                        self.acknowledged[name] = response.json()["id"]
                    else:
                        self.errors.append(response.text)
                    self._progress.notify_all()

    def until_acknowledged(self, count: int) -> None:
        """Waits for this many more acknowledgements."""
        with self._progress:
            wanted = len(self.acknowledged) + count
            assert self._progress.wait_for(lambda: len(self.acknowledged) >= wanted, 90), self.errors[-3:]

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(120)


def check_ids(registry: RegistryProcess, acknowledged: dict[str, int]) -> None:
    """Every acknowledged schema has its id, and no id stands for two schemas."""
    listed = registry.ask("GET", "/schemas?limit=100000&subjectPrefix=:*:").json()
    texts: dict[int, set[str]] = {}
    for each in listed:
        texts.setdefault(each["id"], set()).add(each["schema"])
    assert [] == [found for found in texts.values() if len(found) > 1]
    ids = {each["subject"]: each["id"] for each in listed}
    assert acknowledged == {name: ids.get(name) for name in acknowledged}


def leader_of(running: list[RegistryProcess]) -> RegistryProcess:
    """The instance that leads."""
    for _ in range(600):
        for each in running:
            if each.leads:
                return each
        threading.Event().wait(0.05)
    raise AssertionError("no instance leads")


def test_the_leader_is_killed_while_ids_are_given(tmp_path: Path) -> None:
    with ProcessBroker(tmp_path / "broker") as broker, registries(broker.bootstrap, tmp_path, 3, *OPTIONS) as running:
        leader_of(running)
        clients = Registering(running)
        try:
            for _ in range(2):
                clients.until_acknowledged(20)
                leader = leader_of([each for each in running if each.process.poll() is None])
                leader.kill()
            clients.until_acknowledged(20)
        finally:
            clients.stop()
        (last,) = (each for each in running if each.process.poll() is None)
        check_ids(last, clients.acknowledged)
        with RegistryProcess(broker.bootstrap, tmp_path / "again", *OPTIONS) as again:
            check_ids(again, clients.acknowledged)
            again.stop()


def test_a_paused_leader_wakes_up_and_is_fenced(tmp_path: Path) -> None:
    with ProcessBroker(tmp_path / "broker") as broker, registries(broker.bootstrap, tmp_path, 2, *OPTIONS) as running:
        leader = leader_of(running)
        (other,) = (each for each in running if each is not leader)
        clients = Registering(running, clients=3)
        try:
            clients.until_acknowledged(10)
            leader.pause()
            other.until("leader", 1)
            clients.until_acknowledged(1)
            leader.resume()
            clients.until_acknowledged(20)
        finally:
            leader.resume()
            clients.stop()
        leader.until("applied_offset", other.metric("applied_offset"))
        for each in running:
            check_ids(each, clients.acknowledged)


def test_a_write_that_was_forwarded_to_a_paused_leader_is_answered_by_the_next(tmp_path: Path) -> None:
    with ProcessBroker(tmp_path / "broker") as broker, registries(broker.bootstrap, tmp_path, 2, *OPTIONS) as running:
        leader = leader_of(running)
        (other,) = (each for each in running if each is not leader)
        leader.pause()
        answer = other.ask("POST", "/subjects/a/versions", schema("A"), timeout=90)
        assert (200, 1) == (answer.status_code, answer.json().get("id")), answer.text
        leader.resume()
        leader.until("applied_offset", other.metric("applied_offset"))
        check_ids(leader, {"a": 1})


def test_the_brokers_restart(tmp_path: Path) -> None:
    with ProcessBroker(tmp_path / "broker") as broker, registries(broker.bootstrap, tmp_path, 1, *OPTIONS) as running:
        (only,) = running
        assert 1 == only.ask("POST", "/subjects/a/versions", schema("A")).json()["id"]
        broker.kill()
        # Reads need no broker.
        assert ["a"] == only.ask("GET", "/subjects").json()
        broker.restart()
        answer = only.ask("POST", "/subjects/b/versions", schema("B"))
        assert (200, 2) == (answer.status_code, answer.json().get("id")), answer.text
