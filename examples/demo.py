"""`make demo`: a broker, a stream of orders, and a pipeline on Spark that is killed in the middle and counts each once.

The pipeline is the project in `examples/orders`: orders are cleaned, enriched by a compacted topic, summed up by minute
into a topic, and kept in Parquet; wrong ones go to the dead letters. Orders are in Avro, with a schema registry, and
their schema evolves while the pipeline runs. It runs as anybody would run it, by `ottla pipeline run`, in a process of
its own, which gets SIGKILL half-way and is started again. At the end everything is counted. Exit status 1 if an order
is missing or counted twice.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Final

from examples.demo_screen import Screen
from examples.order_proof import WINDOWS_TOPIC, Line, prove
from examples.order_stream import CUSTOMERS_TOPIC, EVOLVE_AT, ORDERS_TOPIC, OrderBytes, OrderWriter, write_customers
from ottla.registry.serde import RegistryClient
from ottla.testing import ProcessBroker

PROJECT: Final = Path(__file__).parent / "orders"
PARTITIONS: Final = 2
DEAD_TOPIC: Final = "orders-dead"
KILL_AT: Final = 0.45
"""The share of orders that are written when the pipeline is killed."""
PAUSE_AT: Final = 0.6
"""The maximum share before the kill, however slowly Spark starts: some orders must be left."""
STALL_SECONDS: Final = 180.0
"""How long nothing may change before the demo gives up: a machine may be slow as long as it makes progress."""
POLL_SECONDS: Final = 0.2
LOOK_SECONDS: Final = 2.0


class PipelineProcess:
    """`ottla pipeline run` as a process, and its progress."""

    def __init__(self, project: Path, bootstrap: str, registry: str, master: str) -> None:
        settings = [f"registry={registry}", "spark.driver.memory=1g", "spark.sql.shuffle.partitions=2"]
        arguments = ["run", str(project), "--bootstrap", bootstrap, "--master", master, "--json"]
        arguments += [part for each in settings for part in ("--set", each)]
        self._errors = (project / "run.log").open("ab")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "ottla", "pipeline", *arguments],
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,
        )
        self.is_ready = False
        self.queries: dict[str, dict[str, Any]] = {}
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """Sends SIGKILL to the driver, its JVM and the Python processes of its tasks at once."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._ended()

    def stop(self) -> int:
        """Sends SIGTERM and waits for a clean stop; returns the exit status."""
        if self.is_running:
            self._process.terminate()
        try:
            self._process.wait(120)
        except subprocess.TimeoutExpired:
            self.kill()
        return self._ended()

    def _ended(self) -> int:
        status = self._process.wait()
        self._reader.join(10)
        self._errors.close()
        return status

    def _read(self) -> None:
        if self._process.stdout is None:
            return
        for line in self._process.stdout:
            event = json.loads(line)
            self.is_ready = self.is_ready or event["event"] == "ready"
            if event["event"] == "progress":
                self.queries[event["name"]] = event


class Demo:
    """The demo, from an empty broker to the check of the results."""

    def __init__(self, folder: Path, count: int, seconds: float, master: str, screen: Screen) -> None:
        self._folder = folder
        self._project = folder / "orders"
        self._count, self._seconds, self._master = count, seconds, master
        self._screen = screen
        self._look_due = 0.0
        self._results: list[int] = []
        """What the last check found."""
        self._registry = ""

    def run(self) -> list[Line]:
        """Runs the demo and returns the checked claims. Raises `RuntimeError` if the pipeline fails."""
        shutil.copytree(PROJECT, self._project, ignore=shutil.ignore_patterns(".ottla", "archive"))
        with ProcessBroker(self._folder / "broker", registry=True) as broker:
            self._registry = broker.wait_registry()
            self._screen.say(f"started a broker at {broker.bootstrap}, and a schema registry at {self._registry}")
            broker.create_topic(CUSTOMERS_TOPIC, partitions=PARTITIONS, configs={"cleanup.policy": "compact"})
            for topic in (ORDERS_TOPIC, WINDOWS_TOPIC, DEAD_TOPIC):
                broker.create_topic(topic, partitions=PARTITIONS)
            write_customers(broker.bootstrap)
            with RegistryClient(self._registry) as registry:
                values, pause_at = OrderBytes(registry), round(self._count * PAUSE_AT)
                writer = OrderWriter(broker.bootstrap, values, self._count, self._seconds, pause_at=pause_at)
                writer.start()
                self._screen.say("orders are being written to the topic orders; Spark starts, which takes 10 to 30 s")
                pipeline = self._started(broker.bootstrap, writer)
                try:
                    pipeline = self._play(broker.bootstrap, pipeline, writer)
                finally:
                    pipeline.stop()
            self._screen.say("the pipeline has ended cleanly; now everything is counted")
            return self._proof(broker.bootstrap, writer)

    def _started(self, bootstrap: str, writer: OrderWriter) -> PipelineProcess:
        pipeline = PipelineProcess(self._project, bootstrap, self._registry, self._master)
        try:
            while not pipeline.is_ready:
                self._tick(pipeline, writer)
        except BaseException:
            pipeline.kill()
            raise
        return pipeline

    def _play(self, bootstrap: str, pipeline: PipelineProcess, writer: OrderWriter) -> PipelineProcess:
        self._screen.say("the pipeline runs; it reads the orders that are there, then each as it comes")
        self._screen.say(f"after {self._count * EVOLVE_AT:,.0f} orders their schema has a field more, in a new version")
        while writer.expected.orders < self._count * KILL_AT or not self._is_under_way(pipeline):
            self._tick(pipeline, writer)
        self._screen.say(f"killed the pipeline (SIGKILL) after {writer.expected.orders:,} orders; starting it again")
        pipeline.kill()
        writer.go_on()
        pipeline = self._started(bootstrap, writer)
        self._screen.say("the pipeline runs again, from where it was killed")
        progress: object = None
        deadline = 0.0
        while writer.is_alive() or not self._is_finished(bootstrap, writer):
            self._tick(pipeline, writer)
            now = time.monotonic()
            rows = {name: query["rows"] for name, query in pipeline.queries.items()}
            latest = (writer.expected.orders, rows, self._results)
            if latest != progress:
                progress, deadline = latest, now + STALL_SECONDS
            elif now > deadline:
                self._check_read(pipeline)
                self._screen.say(f"no result has changed for {STALL_SECONDS:.0f} s; counting what there is")
                break
        return pipeline

    def _check_read(self, pipeline: PipelineProcess) -> None:
        """Raises `RuntimeError` if a query has not read all orders: what it has not counted is not lost."""
        behind = {name: query["behind"] for name, query in pipeline.queries.items() if query["behind"]}
        if behind or not pipeline.queries:
            records = ", ".join(f"{name} {count:,}" for name, count in behind.items()) or "no query has started"
            raise RuntimeError(
                f"not finished: no query made progress for {STALL_SECONDS:.0f} s (records still to read: {records});"
                " this does not mean that orders are lost; this machine may be too busy, try --orders 4000"
            )

    def _is_under_way(self, pipeline: PipelineProcess) -> bool:
        return all(pipeline.queries.get(name, {}).get("rows", 0) > 0 for name in ("per_minute", "archive"))

    def _is_finished(self, bootstrap: str, writer: OrderWriter) -> bool:
        """Whether all results are there; checked rarely, since it reads all of them."""
        if time.monotonic() < self._look_due:
            return False
        lines = self._proof(bootstrap, writer)
        self._results = [line.found for line in lines]
        self._look_due = time.monotonic() + LOOK_SECONDS
        return all(line.holds for line in lines)

    def _proof(self, bootstrap: str, writer: OrderWriter) -> list[Line]:
        return prove(bootstrap, PARTITIONS, self._project / "archive", writer.expected)

    def _tick(self, pipeline: PipelineProcess, writer: OrderWriter) -> None:
        if writer.error is not None:
            raise RuntimeError(f"cannot write orders: {writer.error}")
        if not pipeline.is_running:
            raise RuntimeError(f"the pipeline ended unexpectedly:\n{(self._project / 'run.log').read_text()[-3000:]}")
        self._screen.show(writer.expected, self._count, pipeline.queries)
        time.sleep(POLL_SECONDS)


def main() -> int:
    """Runs the demo; 0 if every order is counted once."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--orders", type=int, default=40_000, help="how many are written (default 40,000)")
    parser.add_argument("--seconds", type=float, default=40.0, help="how long that takes (default 40)")
    parser.add_argument("--master", default="local[2]", help="where Spark runs (default local[2])")
    parser.add_argument("--json", action="store_true", help="print a summary as JSON")
    given = parser.parse_args()
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ottla-demo-") as folder, Screen(shown=not given.json) as screen:
        demo = Demo(Path(folder), given.orders, given.seconds, given.master, screen)
        try:
            lines = demo.run()
        except RuntimeError as error:
            print(f"demo: {error}", file=sys.stderr)
            return 1
    proved = all(line.holds for line in lines)
    seconds = round(time.monotonic() - begin, 1)
    if given.json:
        claims = [{"claim": line.claim, "expected": line.expected, "found": line.found} for line in lines]
        print(json.dumps({"orders": given.orders, "seconds": seconds, "kills": 1, "claims": claims, "proved": proved}))
    else:
        screen.show_proof(lines, given.orders, seconds)
    return 0 if proved else 1


if __name__ == "__main__":
    sys.exit(main())
