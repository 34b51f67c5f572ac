"""An export and import between two registries on a real broker: nothing that was set is lost, and no id comes twice."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.cli.registry import settings
from ottla.cli.registry.copying import export_to, import_from
from ottla.cli.registry.rest_client import RefusedByRegistryError, RestClient
from ottla.registry.service.leader_election import ElectionOptions
from tests.broker.registry.service.registry_thread import RegistryThread


@pytest.fixture
def registries(bootstrap: str, request: pytest.FixtureRequest) -> Iterator[tuple[RestClient, RestClient]]:
    """Two empty ones."""
    running = []
    for number in (1, 2):
        name = f"{request.node.name}-{number}"
        election = ElectionOptions(group_id=f"registry-{name}", session_timeout_ms=12_000, heartbeat_interval_ms=500)
        running.append(RegistryThread(bootstrap, topic=f"_schemas-{name}", election=election))
    try:
        with RestClient(running[0].url) as source, RestClient(running[1].url) as target:
            yield source, target
    finally:
        for each in running:
            each.stop()


def register(registry: RestClient, subject: str, name: str, *references: str) -> int:
    fields = [{"name": f"f{number}", "type": each} for number, each in enumerate(references)]
    body: dict[str, Any] = {"schema": str({"type": "record", "name": name, "fields": fields}).replace("'", '"')}
    body["references"] = [{"name": each, "subject": each.lower(), "version": 1} for each in references]
    found: int = registry.ask("POST", "subjects", subject, "versions", body=body)["id"]
    return found


def copy(source: RestClient, target: RestClient, file: Path, *, prefix: str = "", force: bool = False) -> int:
    export_to(source, str(file), prefix)
    return import_from(target, str(file), force=force)


def listed(registry: RestClient) -> Any:
    return registry.ask("GET", "ottla", "settings")


def configure(registry: RestClient, kind: str, subject: str, **body: Any) -> None:
    registry.ask("PUT", kind, *([subject] if subject else []), body=body, force=True)


def test_settings_without_versions_are_copied(registries: tuple[RestClient, RestClient], tmp_path: Path) -> None:
    source, target = registries
    register(source, "orders", "Order")
    register(source, ":.staging:orders", "Order")
    configure(source, "config", "alias", alias="orders")
    configure(source, "config", ":.staging:", compatibility="FULL")
    configure(source, "config", ":.__GLOBAL:", compatibility="FORWARD")
    configure(source, "config", "", compatibility="NONE")
    configure(source, "config", "later", normalize=True)
    configure(source, "mode", ":.staging:", mode="READONLY")
    configure(source, "mode", "", mode="READONLY")
    assert 2 == copy(source, target, tmp_path / "all")
    assert sorted(map(str, listed(source)["configs"])) == sorted(map(str, listed(target)["configs"]))
    assert sorted(map(str, listed(source)["modes"])) == sorted(map(str, listed(target)["modes"]))
    assert 1 == target.ask("GET", "subjects", "alias", "versions", "latest")["version"]


def test_read_only_subjects_are_copied_with_their_deletions_and_configs(
    registries: tuple[RestClient, RestClient], tmp_path: Path
) -> None:
    source, target = registries
    register(source, "a", "A")
    register(source, "b", "B", "A")
    register(source, "c", "C", "B")
    for subject in ("c", "b", "a"):
        source.ask("DELETE", "subjects", subject)
        configure(source, "config", subject, compatibility="FULL")
        configure(source, "mode", subject, mode="READONLY")
    assert 3 == copy(source, target, tmp_path / "all")
    assert [] == target.ask("GET", "subjects")
    assert ["a", "b", "c"] == target.ask("GET", "subjects", deleted=True)
    for subject in ("a", "b", "c"):
        assert {"mode": "READONLY"} == target.ask("GET", "mode", subject)
        assert "FULL" == target.ask("GET", "config", subject)["compatibilityLevel"]


def test_ids_of_permanently_deleted_schemas_are_not_given_again(
    registries: tuple[RestClient, RestClient], tmp_path: Path
) -> None:
    source, target = registries
    for prefix in ("", ":.staging:"):
        for number in (1, 2, 3):
            assert number == register(source, f"{prefix}s{number}", f"R{number}")
        for permanent in (False, True):
            source.ask("DELETE", "subjects", f"{prefix}s3", permanent=permanent)
    copy(source, target, tmp_path / "all")
    assert [":.staging:s1", ":.staging:s2", "s1", "s2"] == target.ask(
        "GET", "subjects", subjectPrefix=":*:", deleted=True
    )
    assert [] == listed(target)["modes"]
    for registry in (source, target):
        assert [4, 4] == [register(registry, f"{prefix}new", "New") for prefix in ("", ":.staging:")]


def test_what_the_target_has_as_a_whole_is_kept(
    registries: tuple[RestClient, RestClient], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = registries
    register(source, "orders", "Order")
    configure(source, "config", "orders-later", compatibility="NONE")
    configure(source, "config", "other", compatibility="NONE")
    configure(target, "config", "", compatibility="FULL")
    copy(source, target, tmp_path / "unset", prefix="ord")
    assert "FULL" == target.ask("GET", "config")["compatibilityLevel"]
    assert {None, "orders-later"} == {each.get("subject") for each in listed(target)["configs"]}
    configure(source, "config", "", compatibility="NONE")
    copy(source, target, tmp_path / "prefix", prefix="none")
    assert "FULL" == target.ask("GET", "config")["compatibilityLevel"]
    target.ask("DELETE", "subjects", "orders")
    copy(source, target, tmp_path / "all")
    assert "FULL" == target.ask("GET", "config")["compatibilityLevel"]
    assert "kept the global config" in capsys.readouterr().err
    copy(source, target, tmp_path / "all", force=True)
    assert "NONE" == target.ask("GET", "config")["compatibilityLevel"]


def test_a_registry_that_does_not_list_its_settings_is_asked_for_each(
    registries: tuple[RestClient, RestClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, _ = registries
    register(source, "orders", "Order")
    register(source, ":.staging:orders", "Order")
    assert 2 == register(source, "gone", "Gone")
    for permanent in (False, True):
        source.ask("DELETE", "subjects", "gone", permanent=permanent)
    configure(source, "config", "alias", alias="orders")
    configure(source, "config", ":.staging:", compatibility="FULL")
    configure(source, "mode", "orders", mode="READONLY")
    ask = source.ask

    def ask_confluent(method: str, *path: str | int, **options: Any) -> Any:
        if path[0] == "ottla":
            raise RefusedByRegistryError(404, 404, "HTTP 404 Not Found")
        return ask(method, *path, **options)

    monkeypatch.setattr(source, "ask", ask_confluent)
    found, highest = settings.all_settings(source, list(source.schemas("", deleted=True)), lambda number: None)
    assert {("config", "alias"), ("config", ":.staging:"), ("mode", "orders")} == {
        (each["kind"], each["subject"]) for each in found
    }
    assert {".": 2, ".staging": 1} == highest
