"""The samples of docs/pipelines.md, and the README's for Spark, run as they stand, but for addresses and folders."""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from ottla.registry.serde import AvroDeserializer, AvroSerializer, RegistryClient
from ottla.testing import ProcessBroker
from tests.documented import ADDRESS, ROOT, samples
from tests.processes import run
from tests.spark.pipeline_rig import (
    COMMAND_SECONDS,
    headers_of,
    loaded,
    records_of,
    rows_of,
    run_once,
    send_json,
    write_project,
)
from tests.spark.topics import Topics
from tests.unit.spark.pipelines.running.test_parquet_files import commit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DOCUMENT = "docs/pipelines.md"
ORDER = {"id": "1", "amount": 9.5, "at": "2024-05-01T12:00:10Z", "items": [{"sku": "tea", "quantity": 2}]}

PAYMENT = """{"type": "record", "name": "Payment", "fields": [
    {"name": "customer", "type": "string"}, {"name": "amount", "type": "double"}]}"""


@pytest.fixture
def fresh_ottla(tmp_path: Path) -> Iterator[Topics]:
    """Topics on a broker of the test's own: the documentation's names are always the same."""
    with ProcessBroker(tmp_path / "broker") as broker, Topics(broker.bootstrap) as topics:
        yield topics


def test_programs(spark: "SparkSession", fresh_ottla: Topics, registry: RegistryClient, tmp_path: Path) -> None:
    """One after the other in one program, as one reads them; the queries that they start are waited for."""
    for topic in ("orders", "orders-clean", "paid", "payments", "totals"):
        fresh_ottla.create(name=topic)
    send_json(fresh_ottla, "orders", ORDER)
    payment = {"customer": "ada", "amount": 9.5}
    fresh_ottla.fill("payments", [AvroSerializer(registry, PAYMENT).serialize("payments", payment)])
    names: dict[str, Any] = {"spark": spark}
    others = ("def step(", "committed_files", "pipelines as dp")
    found = [each for each in samples(DOCUMENT) if not any(word in each for word in others)]
    assert 8 == len(found)
    for sample in found:
        program = sample.replace(ADDRESS, fresh_ottla.bootstrap).replace("/data/checkpoints", str(tmp_path))
        program = program.replace("http://localhost:8081", registry.config.urls[0])
        names.pop("query", None)
        exec(compile(program, DOCUMENT, "exec"), names)
        if "query" in names:
            names["query"].processAllAvailable()
            names["query"].stop()
    # The session is shared with other tests, whose groups must not be followed.
    spark.streams.removeListener(names["follower"])
    names["follower"].close()
    assert ["1"] == [json.loads(record.value)["id"] for record in records_of(fresh_ottla, "orders-clean")]
    assert [b"1"] == [record.key for record in records_of(fresh_ottla, "paid")]
    (total,) = records_of(fresh_ottla, "totals")
    assert b"ada" == total.key
    assert payment == AvroDeserializer(registry).deserialize("totals", total.value)


def test_readme(spark: "SparkSession", fresh_ottla: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh_ottla.create(name="orders")
    fresh_ottla.create(name="shouted")
    fresh_ottla.fill("orders", [b"order 0"])
    monkeypatch.chdir(tmp_path)
    (sample,) = samples("README.md", "py")
    program = sample.replace(ADDRESS, fresh_ottla.bootstrap).replace("checkpoints/", f"{tmp_path}/")
    exec(compile(program, "README.md", "exec"), {})
    assert [b"ORDER 0"] == [record.value for record in records_of(fresh_ottla, "shouted")]


def test_steps(spark: "SparkSession", fresh_ottla: Topics, tmp_path: Path) -> None:
    steps = {each.split()[1].removeprefix("steps/"): each for each in samples(DOCUMENT) if each.startswith("# steps/")}
    assert {"visits.py", "priced.py"} == set(steps)
    clean, orders, visits, prices = (
        fresh_ottla.create(),
        fresh_ottla.create(),
        fresh_ottla.create(),
        fresh_ottla.create(),
    )
    settings = f"""
        name = "documented"
        [sources.clean]
        topic = "{clean}"
        schema = "customer STRING, at TIMESTAMP"
        watermark = "at 1 minute"
        [sources.orders]
        topic = "{orders}"
        schema = "id STRING, item STRING, count INT"
        [sinks.visits]
        from = "visits"
        topic = "{visits}"
        [sinks.prices]
        from = "priced"
        topic = "{prices}"
    """
    folder = write_project(tmp_path, settings, steps)
    send_json(fresh_ottla, clean, *({"customer": "ada", "at": f"2024-05-01T{hour}:00:00Z"} for hour in (10, 12)))
    send_json(fresh_ottla, orders, {"id": "1", "item": "tea", "count": 2})
    run_once(spark, fresh_ottla, folder)
    assert [("ada", 1)] == [(row["customer"], row["count"]) for row in rows_of(fresh_ottla, visits)]
    assert [{"id": "1", "price": 5.0}] == rows_of(fresh_ottla, prices)
    assert "documented" == loaded(fresh_ottla, folder).name


def test_committed_files(tmp_path: Path) -> None:
    (sample,) = [each for each in samples(DOCUMENT) if "committed_files" in each]
    archive = tmp_path / "shop" / "archive"
    archive.mkdir(parents=True)
    pq.write_table(pa.table({"id": [1, 2]}), archive / "part-00000-a.parquet")
    pq.write_table(pa.table({"id": [2]}), archive / "part-00000-b.parquet")
    commit(archive, "0", archive / "part-00000-a.parquet")
    names: dict[str, Any] = {}
    exec(compile(sample.replace("shop/archive", str(archive)), DOCUMENT, "exec"), names)
    assert [1, 2] == names["rows"]["id"].to_pylist()


def test_from_zero_to_a_running_pipeline(fresh_ottla: Topics, tmp_path: Path) -> None:
    """The commands of the tutorial, in a shell; the broker is there already."""
    blocks = samples(DOCUMENT, "", "From zero to a running pipeline")
    commands = "\n".join(blocks).replace("ottla serve &\n", "")
    assert 9 == len(re.findall(r"\bottla ", commands))
    function = f'ottla() {{ "{sys.executable}" -m ottla "$@"; }}\n'
    shell = ["bash", "-euo", "pipefail", "-c", function + commands]
    environment = {"PYTHONPATH": str(ROOT / "src"), "OTTLA_BOOTSTRAP": fresh_ottla.bootstrap}
    done = run(shell, environment=environment, folder=tmp_path, seconds=COMMAND_SECONDS)
    assert '"customer":"ada","orders":1,"amount":9.5' in done.stdout
    assert "failed expectation: the amount is positive" in done.stdout
    total = {"minute": "2024-05-01T12:00:00.000Z", "customer": "ada", "orders": 1, "amount": 9.5}
    assert [total] == rows_of(fresh_ottla, "order-totals")
    (letter,) = records_of(fresh_ottla, "orders-dead")
    assert "1" == headers_of(letter)["offset"]
    assert ["1", "3"] == sorted(ds.dataset(tmp_path / "shop" / "archive").to_table()["id"].to_pylist())
