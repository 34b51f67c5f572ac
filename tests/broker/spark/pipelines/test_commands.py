"""`ottla pipeline` as far as it needs no Spark: making, checking, looking, forgetting."""

import json
from pathlib import Path

import pytest

from ottla import Admin, Producer, TopicPartition
from ottla.__main__ import main
from ottla.spark.pipelines.declaration.loading import load_project
from ottla.spark.pipelines.declaration.project import Project
from ottla.spark.pipelines.running.project_status import ProjectStatus
from ottla.spark.pipelines.running.run_files import run_lock
from ottla.testing import InProcessBroker
from tests.unit.cli.command_line import CommandLine

NOBODY = "127.0.0.1:1"


@pytest.fixture
def shop(tmp_path: Path, ottla: CommandLine) -> Path:
    made = ottla.ok("pipeline", "init", str(tmp_path / "shop"))
    assert [str(tmp_path / "shop" / name) for name in ("pipeline.toml", "steps/clean.sql", "steps/totals.sql")] == (
        made.out.splitlines()
    )
    return tmp_path / "shop"


def checkpoint(shop: Path, query: str, offset: int, batch: int = 3) -> Path:
    """A checkpoint as Spark leaves it."""
    folder = shop / ".ottla" / "shop" / query
    for name in ("offsets", "commits"):
        (folder / name).mkdir(parents=True)
    (folder / "metadata").write_text('{"id":"7"}')
    (folder / "offsets" / str(batch)).write_text(f'v1\n{{"batchWatermarkMs":0}}\n{{"orders":{{"0":{offset}}}}}')
    (folder / "commits" / str(batch)).write_text("v1\n{}")
    return folder


def test_init_prints_json(tmp_path: Path, ottla: CommandLine) -> None:
    made = ottla.ok("pipeline", "init", str(tmp_path / "shop"), "--name", "shop-2", "--json").json
    names = ("pipeline.toml", "steps/clean.sql", "steps/totals.sql")
    assert {"name": "shop-2", "files": [str(tmp_path / "shop" / name) for name in names]} == made


@pytest.mark.parametrize(
    ("options", "environment", "expected"),
    [
        ((), {}, "localhost:9092"),
        ((), {"OTTLA_PROFILE": "prod"}, "127.0.0.1:2"),
        ((), {"OTTLA_PROFILE": "prod", "OTTLA_BOOTSTRAP": "127.0.0.1:3"}, "127.0.0.1:3"),
        (("--profile", "prod"), {"OTTLA_BOOTSTRAP": "127.0.0.1:3"}, "127.0.0.1:2"),
        (("--profile", "prod", "--bootstrap", "127.0.0.1:4"), {}, "127.0.0.1:4"),
    ],
)
def test_options_go_before_the_environment_and_that_before_the_project(
    shop: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...],
    environment: dict[str, str],
    expected: str,
) -> None:
    (tmp_path / "config.toml").write_text('current = "other"\n[profiles.prod]\nbootstrap = "127.0.0.1:2"\n')
    monkeypatch.setenv("OTTLA_CONFIG", str(tmp_path / "config.toml"))
    for name in ("OTTLA_BOOTSTRAP", "OTTLA_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    seen: list[str] = []

    def read_status(project: Project) -> ProjectStatus:
        seen.append(project.settings.bootstrap)
        return ProjectStatus(process=None, queries=[], remark=None)

    monkeypatch.setattr("ottla.spark.pipelines.running.project_status.read_status", read_status)
    assert 0 == exit_status(["pipeline", "status", str(shop), *options])
    assert [expected] == seen


def exit_status(arguments: list[str]) -> int:
    try:
        return main(arguments)
    except SystemExit as ended:
        return int(ended.code or 0)


def test_init_changes_nothing_that_is_there(shop: Path, ottla: CommandLine) -> None:
    again = ottla("pipeline", "init", str(shop))
    assert (2, f"ottla: {shop / 'pipeline.toml'} exists already; nothing was written\n") == (again.status, again.err)


def test_validate(shop: Path, ottla: CommandLine) -> None:
    lines = ottla.ok("pipeline", "validate", str(shop)).out.splitlines()
    assert ("clean reads orders", "shop: valid") == (lines[1], lines[-1])
    document = ottla.ok("pipeline", "validate", str(shop), "--json").json
    assert {"orders": [], "clean": ["orders"], "totals": ["clean"]} == document["views"]
    assert (True, {"totals": "totals", "archive": "clean"}) == (document["valid"], document["sinks"])


def test_validate_tells_all_problems_at_once(shop: Path, ottla: CommandLine) -> None:
    (shop / "steps" / "totals.sql").write_text("SELECT 1 FROM claen")
    (shop / "steps" / "more.sql").write_text("DROP TABLE x")
    wrong = ottla("pipeline", "validate", str(shop))
    assert 2 == wrong.status
    assert [
        "ottla: steps/more.sql:1: a step must be one SELECT; this file begins with DROP",
        "steps/totals.sql:1: unknown view claen; did you mean clean?",
    ] == wrong.err.splitlines()
    document = ottla("pipeline", "validate", str(shop), "--json")
    assert (2, False, 2) == (document.status, document.json["valid"], len(document.json["problems"]))
    assert {
        "file": "steps/totals.sql",
        "line": 1,
        "message": "unknown view claen; did you mean clean?",
    } == document.json["problems"][1]


def test_views_that_nothing_writes_are_told(shop: Path, ottla: CommandLine) -> None:
    (shop / "steps" / "spare.sql").write_text("SELECT 1 FROM totals")
    assert "no sink uses spare; it will not run\n" == ottla.ok("pipeline", "validate", str(shop)).err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ("validate", "nowhere"),
            "no pipeline.toml in nowhere; create a project with `ottla pipeline init nowhere`",
        ),
        (("validate", "SHOP", "--set", "triger=1s"), "--set: unknown key triger; did you mean trigger?"),
        (("validate", "SHOP", "--set", "trigger"), "'trigger' is not key=value"),
        (("reset", "SHOP", "--sink", "total"), "shop has no sink total; did you mean totals?"),
    ],
)
def test_wrong_usage(shop: Path, ottla: CommandLine, arguments: tuple[str, ...], words: str) -> None:
    done = ottla("pipeline", *(str(shop) if each == "SHOP" else each for each in arguments))
    assert (2, "") == (done.status, done.out)
    assert words in done.err


def test_run_without_spark_says_how_to_install_it(
    shop: Path, ottla: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.cli.pipeline.command.find_spec", lambda name: None)
    done = ottla("pipeline", "run", str(shop))
    assert (2, "ottla: running pipelines needs PySpark; install it with: pip install 'ottla[spark]'\n") == (
        done.status,
        done.err,
    )


def test_status_of_what_never_ran_without_a_broker(shop: Path, ottla: CommandLine) -> None:
    done = ottla.ok("pipeline", "status", str(shop))
    assert "shop is not running" == done.out.splitlines()[0]
    assert done.err.startswith("cannot read offsets from the cluster: cannot reach")
    document = ottla.ok("pipeline", "status", str(shop), "--json").json
    assert (False, ["totals", "archive"]) == (document["running"], [each["name"] for each in document["queries"]])


def test_status_and_reset(shop: Path, capfd: pytest.CaptureFixture[str], broker: InProcessBroker) -> None:
    broker.create_topic("orders")
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        for number in range(10):
            producer.send("orders", b"%d" % number)
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.alter_consumer_group_offsets("shop.totals", {TopicPartition("orders", 0): 4})
        totals, archive = checkpoint(shop, "totals", 7), checkpoint(shop, "archive", 9)
        letters = checkpoint(shop, "dead_letters-clean", 9)
        ottla = CommandLine(broker.bootstrap, capfd)
        document = ottla.ok("pipeline", "status", str(shop), "--json").json
        assert ["totals", "archive", "dead_letters-clean"] == [each["name"] for each in document["queries"]]
        first = document["queries"][0]
        assert (3, 3, "shop.totals") == (first["batch"], first["lag"], first["group"])
        assert [{"topic": "orders", "partition": 0, "read": 7, "committed": 4, "end": 10, "lag": 3}] == first[
            "partitions"
        ]
        assert ["orders", "7", "4", "3"] == ottla.ok("pipeline", "status", str(shop)).out.splitlines()[2].split()[-4:]

        refused = ottla("pipeline", "reset", str(shop), "--sink", "totals")
        assert (2, True) == (refused.status, totals.exists())
        assert "not a terminal; pass --yes to confirm" in refused.err
        with run_lock(load_project(shop)):
            refused = ottla("pipeline", "reset", str(shop), "--yes")
            assert (2, True) == (refused.status, totals.exists())
            assert "shop is already running (process " in refused.err

        assert "totals: reset\n" == ottla.ok("pipeline", "reset", str(shop), "--sink", "totals", "--yes").out
        assert (False, True) == (totals.exists(), archive.exists())
        assert {} == admin.list_consumer_group_offsets("shop.totals")
        done = ottla.ok("pipeline", "reset", str(shop), "--yes", "--json")
        assert ({"reset": ["archive", "dead_letters-clean"]}, False) == (json.loads(done.out), letters.exists())
        assert "nothing to reset\n" == ottla.ok("pipeline", "reset", str(shop), "--yes").out
