"""The console's pages with 10,000 topics: how long the server and a browser need, beside a request for all metadata.

`python -m benchmarks.console_pages` prints one table of pages and one of ratios; `--topics N` takes another number of
topics, `--quick` 300 of them and few rounds. A broker and a console process of their own serve the pages. The columns
of Chromium are those of its navigation timing, each page opened in a new tab of a browser that has the assets; they
are left out, with a remark, if Playwright (`make .venv/.installed-browser`) or Chromium is missing.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.measure import ROUNDS, ROUNDS_QUICK, Result, interleaved, report
from ottla.protocol.apis import ApiKey
from tests.broker_process import BrokerProcess
from tests.console.console_process import ConsoleProcess, FormClient, running_console
from tests.wire.exchange import RawConnection

if TYPE_CHECKING:
    from playwright.sync_api import Browser

TOPICS: Final = 10_000
TOPICS_QUICK: Final = 300
TOPICS_AT_ONCE: Final = 200
FIRST_PAGE: Final = "/"
PAGES: Final = {
    FIRST_PAGE: 0.3,
    "/topics": 1.0,
    "/topics?sort=-records": 1.0,
    "/topics?q=topic-0001": 1.0,
    "/topics/topic-00001": None,
    "/topics/topic-00001/records": None,
    "/groups": None,
    "/brokers": None,
}
"""Each page with the seconds that it may take, if it has a goal."""
_SAMPLED_SECONDS: Final = 300.0
_PAGE_SECONDS: Final = 120.0
_TIMING: Final = """() => {
    const [it] = performance.getEntriesByType("navigation");
    const paint = performance.getEntriesByName("first-contentful-paint")[0];
    return [it.responseStart - it.startTime, paint ? paint.startTime : null, it.loadEventEnd - it.startTime];
}"""


@dataclass(frozen=True, slots=True)
class PageTimes:
    """The rounds of one page, in seconds."""

    server: list[float] = field(default_factory=list)
    """From the request to the last byte, at an HTTP client."""
    cpu: list[float] = field(default_factory=list)
    """CPU time of the console's process meanwhile; samples of the cluster are part of it."""
    first_byte: list[float] = field(default_factory=list)
    painted: list[float] = field(default_factory=list)
    loaded: list[float] = field(default_factory=list)


def run(quick: bool = False, topics: int | None = None) -> list[Result]:
    """Prints the times of the pages; returns the ratios."""
    count = topics or (TOPICS_QUICK if quick else TOPICS)
    with (
        tempfile.TemporaryDirectory() as folder,
        BrokerProcess(Path(folder) / "broker", settings={"auto.create.topics.enable": "false"}) as broker,
    ):
        _create_topics(broker, count)
        with running_console(Path(folder) / "console", "--bootstrap", broker.address) as console:
            return _measured(broker, console, count, quick)


def _create_topics(broker: BrokerProcess, topics: int) -> None:
    began = time.perf_counter()
    with RawConnection(broker.address) as connection:
        connection._socket.settimeout(300)
        for start in range(0, topics, TOPICS_AT_ONCE):
            wishes = [
                {"name": f"topic-{each:05d}", "num_partitions": 1, "replication_factor": 1}
                for each in range(start, min(start + TOPICS_AT_ONCE, topics))
            ]
            connection.ask_newest(ApiKey.CREATE_TOPICS, {"topics": wishes, "timeout": timedelta(minutes=5)})
    _tell(f"creating {topics} topics took {time.perf_counter() - began:.1f} s")


def _measured(broker: BrokerProcess, console: ConsoleProcess, topics: int, quick: bool) -> list[Result]:
    assert console.program is not None
    pid = console.program.pid
    client = FormClient(console.url)
    client.client.timeout = _PAGE_SECONDS
    began = time.perf_counter()
    _load(client, FIRST_PAGE)
    cold = time.perf_counter() - began
    _wait_sampled(client)
    times: dict[str, PageTimes] = defaultdict(PageTimes)
    with _browser() as browser:
        for number in range(-1, ROUNDS_QUICK if quick else ROUNDS):
            _tell(f"  .. pages: {'warming up' if number < 0 else f'round {number + 1}'}")
            for path in PAGES:
                times_of = times[path] if number >= 0 else PageTimes()
                began, used = time.perf_counter(), _cpu_seconds(pid)
                _load(client, path)
                times_of.server.append(time.perf_counter() - began)
                times_of.cpu.append(_cpu_seconds(pid) - used)
                if browser is not None:
                    _open(browser, console.url + path, times_of)
    _print_table(times, topics, cold, pid)
    result = _ratios(broker, client, topics, quick)
    client.close()
    return [result]


def _load(client: FormClient, path: str) -> None:
    response = client.get(path)
    assert response.status_code == 200, (path, response.status_code)


def _open(browser: "Browser", url: str, times: PageTimes) -> None:
    page = browser.contexts[0].new_page()
    try:
        page.goto(url, wait_until="load", timeout=_PAGE_SECONDS * 1000)
        page.wait_for_function("performance.getEntriesByType('navigation')[0].loadEventEnd > 0")
        first_byte, painted, loaded = page.evaluate(_TIMING)
    finally:
        page.close()
    times.first_byte.append(first_byte / 1000)
    times.loaded.append(loaded / 1000)
    if painted is not None:
        times.painted.append(painted / 1000)


@contextmanager
def _browser() -> "Iterator[Browser | None]":
    """Chromium with one window; None if it cannot be had."""
    try:
        from playwright.sync_api import sync_playwright

        from tests.console.conftest import ARGUMENTS, CHROMIUM
    except ImportError as error:
        _tell(f"without the columns of Chromium: {error}; make .venv/.installed-browser")
        yield None
        return
    if not Path(CHROMIUM).exists():
        _tell(f"without the columns of Chromium: {CHROMIUM} does not exist; tests/console/prepare installs it")
        yield None
        return
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS))
        browser.new_context(viewport={"width": 1440, "height": 900})
        try:
            yield browser
        finally:
            browser.close()


def _print_table(times: dict[str, PageTimes], topics: int, cold: float, pid: int) -> None:
    lines = [
        f"| page, {topics:,} topics | goal | server | console CPU | Chromium: first byte | painted | loaded |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for path, each in times.items():
        goal = PAGES[path]
        columns = (each.server, each.cpu, each.first_byte, each.painted, each.loaded)
        cells = ["–" if goal is None else f"{goal:g} s", *map(_median, columns)]
        lines.append(f"| `{path}` | {' | '.join(cells)} |")
    memory, most = (_resident_bytes(pid, name) / 1e6 for name in ("VmRSS", "VmHWM"))
    lines.append(
        f"\nFirst page of a console that has just started: {cold:.3f} s. Memory {memory:.0f} MB, peak {most:.0f} MB."
    )
    print("\n".join(lines), end="\n\n", flush=True)


def _median(seconds: Sequence[float]) -> str:
    return f"{statistics.median(seconds):.3f} s" if seconds else "–"


def _ratios(broker: BrokerProcess, client: FormClient, topics: int, quick: bool) -> Result:
    with RawConnection(broker.address) as connection:

        def page(path: str) -> Callable[[], float]:
            def load() -> float:
                _load(client, path)
                return 1

            return load

        def metadata() -> float:
            connection.ask_newest(ApiKey.METADATA, {"topics": None})
            return 1

        rivals = {"all metadata, read in Python": metadata}
        rivals |= {path: page(path) for path in PAGES if path.startswith("/topics") and "/topic-" not in path}
        return interleaved(
            rivals,
            title=f"the list of {topics} topics",
            unit="pages",
            baseline="all metadata, read in Python",
            quick=quick,
        )


def _wait_sampled(client: FormClient) -> None:
    """The first samples of a large cluster take a moment; pages are measured after them."""
    deadline = time.monotonic() + _SAMPLED_SECONDS
    while len(client.get("/samples.json?s=a:cluster.size:").json()["times"]) < 2:
        assert time.monotonic() < deadline, "the console has not sampled the cluster"
        time.sleep(0.2)


def _resident_bytes(pid: int, name: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _tell(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--topics", type=int)
    given = parser.parse_args()
    report(run(given.quick, given.topics))
