"""`ottla pipeline` as far as it needs no Spark: making, checking, looking, forgetting."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla import Admin, Producer, TopicPartition
from ottla.spark.pipelines.loading import load_project
from ottla.spark.pipelines.run_files import the_only_run
from ottla.testing import InProcessBroker
from tests.unit.cli.command_line import CommandLine

NOBODY = "127.0.0.1:1"


@pytest.fixture
def ottla(capfd: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(NOBODY, capfd)


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


def test_init_changes_nothing_that_is_there(shop: Path, ottla: CommandLine) -> None:
    again = ottla("pipeline", "init", str(shop))
    assert (2, f"ottla: {shop / 'pipeline.toml'} exists already; nothing was written\n") == (again.status, again.err)


def test_validate(shop: Path, ottla: CommandLine) -> None:
    assert "clean from orders" in ottla.ok("pipeline", "validate", str(shop)).out.splitlines()
    document = ottla.ok("pipeline", "validate", str(shop), "--json").json
    assert {"orders": [], "clean": ["orders"], "totals": ["clean"]} == document["views"]
    assert (True, {"totals": "totals", "archive": "clean"}) == (document["valid"], document["sinks"])


def test_validate_tells_all_problems_at_once(shop: Path, ottla: CommandLine) -> None:
    (shop / "steps" / "totals.sql").write_text("SELECT 1 FROM claen")
    (shop / "steps" / "more.sql").write_text("DROP TABLE x")
    wrong = ottla("pipeline", "validate", str(shop))
    assert 2 == wrong.status
    assert [
        "ottla: steps/more.sql:1: a step is one SELECT; this begins with DROP",
        "steps/totals.sql:1: it reads a view claen that does not exist; did you mean clean?",
    ] == wrong.err.splitlines()
    document = ottla("pipeline", "validate", str(shop), "--json")
    assert (2, False, 2) == (document.status, document.json["valid"], len(document.json["problems"]))


def test_views_that_nothing_writes_are_told(shop: Path, ottla: CommandLine) -> None:
    (shop / "steps" / "spare.sql").write_text("SELECT 1 FROM totals")
    assert "nothing writes spare: never run\n" == ottla.ok("pipeline", "validate", str(shop)).err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ("validate", "nowhere"),
            "there is no pipeline.toml in nowhere; `ottla pipeline init nowhere` makes a project",
        ),
        (("validate", "SHOP", "--set", "triger=1s"), "--set: the file has no key triger; did you mean trigger?"),
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
    assert done.err.startswith("the cluster was not asked: ")
    document = ottla.ok("pipeline", "status", str(shop), "--json").json
    assert (False, ["totals", "archive"]) == (document["running"], [each["name"] for each in document["queries"]])


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[InProcessBroker]:
    with InProcessBroker(tmp_path / "broker") as running:
        yield running


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
        with the_only_run(load_project(shop)):
            refused = ottla("pipeline", "reset", str(shop), "--yes")
            assert (2, True) == (refused.status, totals.exists())
            assert "shop is being run by process " in refused.err

        assert "totals: forgotten\n" == ottla.ok("pipeline", "reset", str(shop), "--sink", "totals", "--yes").out
        assert (False, True) == (totals.exists(), archive.exists())
        assert {} == admin.list_consumer_group_offsets("shop.totals")
        done = ottla.ok("pipeline", "reset", str(shop), "--yes", "--json")
        assert ({"reset": ["archive", "dead_letters-clean"]}, False) == (json.loads(done.out), letters.exists())
        assert "there was nothing to forget\n" == ottla.ok("pipeline", "reset", str(shop), "--yes").out
