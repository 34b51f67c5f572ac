"""The console: how fast the viewer searches, as a ratio to the Arrow consumer.

Filters are searched over the same topic that `poll_arrow` reads, in the same run. The memory of a console's process is
told on standard error. How fast pages are is in `console_pages.py`.
"""

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from benchmarks.measure import Goal, Result, interleaved, report
from ottla.client.admin.async_admin import AsyncAdmin
from ottla.client.admin.values import NewTopic
from ottla.client.consumer.async_consumer import AsyncConsumer
from ottla.client.producer.async_producer import AsyncProducer
from ottla.console.cluster.scans import Scans
from ottla.console.services.records.query import RecordsQuery
from ottla.console.services.records.scan import scan_plan
from ottla.console.services.records.search import Search, all_rows, bounds_for
from ottla.model.ids import TopicPartition
from tests.broker_process import BrokerProcess
from tests.console.console_process import FormClient, running_console

TOPIC: Final = "searched"
PARTITIONS: Final = 4
RECORDS: Final = 1_000_000
RECORDS_QUICK: Final = 100_000
SEND_RECORDS: Final = 50_000
FILTERS: Final = {
    "contains": 'value contains "nowhere to be found"',
    "key ==": 'key == "key-77777"',
    "any text": '"nowhere to be found"',
    "field == text": 'value.user.name == "user 77777"',
    "field == number": "value.user.id == 77777",
    "field > number": "value.amount > 5000",
    "field contains": 'value.note contains "nowhere"',
    "lower(field)": 'lower(value.user.name) startsWith "absent"',
    "and, or, not": "value.user.id > 5 and not (value.amount >= 0 or value.user.name == null)",
    "timestamp": "timestamp < 5",
}
"""No record passes, so that all are searched."""


def run(quick: bool = False) -> list[Result]:
    """Searches."""
    with _folder() as folder, BrokerProcess(folder / "records") as broker:
        return [_searches(broker.address, folder, quick)]


def _searches(bootstrap: str, folder: Path, quick: bool) -> Result:
    records = RECORDS_QUICK if quick else RECORDS
    with asyncio.Runner() as runner:
        admin = AsyncAdmin(bootstrap_servers=bootstrap)
        runner.run(_fill(admin, bootstrap, records))

        def rival(work: Callable[[], Coroutine[Any, Any, int]]) -> Callable[[], float]:
            def measured() -> float:
                done = runner.run(work())
                assert done == records, (done, records)
                return done

            return measured

        rivals = {"poll_arrow": rival(lambda: _poll(bootstrap, records))}
        rivals |= {name: rival(partial(_search, admin, text)) for name, text in FILTERS.items()}
        result = interleaved(
            rivals,
            title=f"search of {records} records of JSON, {PARTITIONS} partitions",
            unit="records",
            baseline="poll_arrow",
            goals=[Goal(rival=each, at_least=0.5) for each in FILTERS],
            quick=quick,
        )
        runner.run(admin.close())
    _tell_search_memory(bootstrap, folder)
    return result


async def _fill(admin: AsyncAdmin, bootstrap: str, records: int) -> None:
    await admin.create_topics([NewTopic(TOPIC, PARTITIONS)], wait_for_metadata=True)
    async with AsyncProducer(bootstrap_servers=bootstrap) as producer:
        for start in range(0, records, SEND_RECORDS):
            numbers = range(start, min(start + SEND_RECORDS, records))
            values = [
                json.dumps({"user": {"id": each, "name": f"user {each}"}, "amount": each % 1000, "note": "x" * 100})
                for each in numbers
            ]
            table = pa.table({"key": pa.array([f"key-{each}" for each in numbers]), "value": pa.array(values)})
            await producer.send_table(TOPIC, table)
            await producer.flush()


async def _poll(bootstrap: str, records: int) -> int:
    options: dict[str, Any] = {"isolation_level": "read_committed", "auto_offset_reset": "earliest"}
    async with AsyncConsumer(bootstrap_servers=bootstrap, **options) as consumer:
        consumer.assign([TopicPartition(TOPIC, each) for each in range(PARTITIONS)])
        done = 0
        while done < records:
            done += sum(batch.num_rows for batch in (await consumer.poll_arrow(1000)).values())
        return done


async def _search(admin: AsyncAdmin, text: str) -> int:
    query = RecordsQuery.of({"filter": text})
    bounds = await bounds_for(admin.cluster, TOPIC, query)
    _, progress = await all_rows(Search(admin.cluster, Scans(), bounds, scan_plan(query, None), query).events())
    return progress.scanned


def _tell_search_memory(bootstrap: str, folder: Path) -> None:
    with running_console(folder / "search-console", "--bootstrap", bootstrap) as console:
        client = FormClient(console.url)
        assert console.program is not None
        client.get(f"/topics/{TOPIC}/records")
        before = _resident_bytes(console.program.pid)
        with client.client.stream(
            "GET", f"/topics/{TOPIC}/records/search", params={"filter": FILTERS["contains"]}, timeout=300
        ) as answer:
            for _ in answer.iter_bytes():
                pass
        after = _resident_bytes(console.program.pid, "VmHWM")
        client.close()
    _tell(
        f"a console: {before >> 20} MiB after the first page, at most {after >> 20} MiB during a search of all records"
    )


def _resident_bytes(pid: int, field: str = "VmRSS") -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as made:
        yield Path(made)


def _tell(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    report(run(given.quick))
