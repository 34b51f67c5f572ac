"""Takes pictures of every page: `python -m tests.console.screenshots [PAGE...]`, into build/screenshots.

A busy cluster of three brokers in three sizes, light and dark; then an empty one, and one with a broker that is away.
"""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

from ottla.testing import BrokerCluster, ProcessBroker
from ottla.testing.free_ports import consecutive_free_ports
from tests.console.busy_cluster import BusyCluster
from tests.console.conftest import ARGUMENTS, CHROMIUM
from tests.console.console_process import running_console
from tests.processes import OTTLA, Program

SIZES = ((1440, 900), (1024, 768), (390, 844))
THEMES = ("light", "dark")
FOLDER = Path("build/screenshots")
PAGES = {
    "overview": "/",
    "brokers": "/brokers",
    "broker": "/brokers/0",
    "broker-configs": "/brokers/0/configs",
    "broker-config": "/brokers/0/configs/log.retention.ms?change=set&value=3600000",
    "throttle": "/brokers/~throttle",
    "topics": "/topics",
    "topic": "/topics/orders",
    "records": "/topics/orders/records",
    "search-of-records": "/topics/orders/records?filter=value.price%20%3E%2099",
    "export": "/topics/orders/records?limit=20#export",
    "record": "/topics/orders/records/0/3",
    "produce": "/topics/orders/produce",
    "partitions": "/topics/orders/partitions",
    "topic-config": "/topics/orders/config",
    "topic-create": "/topics/~create",
    "topic-grow": "/topics/orders/grow",
    "topic-move": "/topics/orders/move?broker=0&broker=1&replication_factor=2&throttle=20m",
    "topic-delete": "/topics/orders/delete",
    "delete-records": "/topics/orders/delete-records",
    "groups": "/groups",
    "group": "/groups/billing",
    "group-reset": "/groups/fraud-check/reset?to=earliest",
    "transactions": "/transactions",
    "dead-letters": "/dead-letters",
    "dead-letter-topic": "/dead-letters/dlq.orders",
    "dead-letter": "/dead-letters/dlq.orders/0/0",
    "redrive": "/dead-letters/dlq.orders/redrive",
    "queues": "/queues",
    "schemas": "/schemas",
    "schema-register": "/schemas/-/register",
    "pipelines": "/pipelines",
    "users": "/security/users",
    "user": "/security/users/set",
    "acls": "/security/acls",
    "acl": "/security/acls/new",
    "quotas": "/security/quotas",
    "quota": "/security/quotas/set",
    "explain": "/security/explain",
    "search": "/search?q=or",
    "jobs": "/jobs",
    "audit": "/audit",
    "error": "/topics/does-not-exist",
}
LOGIN_PAGES = {
    # With an identity provider, which is away.
    "oidc-login": "/login?next=/topics",
    "oidc-provider-away": "/login/start",
    "oidc-interrupted": "/login/callback?state=x&code=y",
}
CLUSTER_LOGIN_PAGES = {"cluster-login": "/login?next=/topics"}


@contextmanager
def running_brokers(folder: Path, count: int) -> Iterator[tuple[str, str, list[str], int]]:
    """`ottla serve` with brokers, a registry and metrics: bootstrap, registry URL, metrics URLs, its process id."""
    port, http = consecutive_free_ports(count), consecutive_free_ports(count)
    command = [*OTTLA, "serve", "--brokers", str(count), "--data", str(folder / "data")]
    command += ["--listen", f"127.0.0.1:{port}", "--http", f"127.0.0.1:{http}"]
    command += ["--registry", f"127.0.0.1:{consecutive_free_ports(count)}"]
    command += ["--set", f"default.replication.factor={count}"]
    with Program(command, folder / "brokers") as brokers:
        bootstrap, (_, registry) = brokers.wait_ready(), brokers.next_line().split()
        yield bootstrap, registry, [f"http://127.0.0.1:{http + each}/metrics" for each in range(count)], brokers.pid
        brokers.stop()


def picture(page: Page, folder: Path, name: str, address: str) -> None:
    """One page; a page that fails is a picture, too."""
    page.goto(address, wait_until="load")
    page.wait_for_timeout(700)
    folder.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=folder / f"{name}.png")


def pictures(browser: Browser, url: str, kind: str, wanted: dict[str, str], sizes: tuple[tuple[int, int], ...]) -> None:
    """All pages in all sizes and themes."""
    for width, height in sizes:
        for theme in THEMES:
            context = browser.new_context(
                base_url=url,
                viewport={"width": width, "height": height},
                color_scheme="dark" if theme == "dark" else "light",
            )
            page = context.new_page()
            for name, address in wanted.items():
                picture(page, FOLDER / kind / f"{width}x{height}-{theme}", name, address)
            context.close()


def main(names: list[str]) -> None:
    """Takes the pictures of these pages, or of all."""
    wanted = _chosen(PAGES, names)
    kinds = os.environ.get("OTTLA_SCREENSHOT_KINDS", "login,busy,empty,trouble").split(",")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        playwright = stack.enter_context(sync_playwright())
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS))
        if "login" in kinds:
            _pictures_of_logins(stack, browser, folder, names)
        if "busy" in kinds:
            _pictures_of_work(stack, browser, folder, wanted)
        if "empty" in kinds:
            _pictures_without_data(stack, browser, folder, wanted)
        if "trouble" in kinds:
            _pictures_of_trouble(stack, browser, folder, wanted)
        print(f"{len(wanted)} pages in {FOLDER}")


def _chosen(pages: dict[str, str], names: list[str]) -> dict[str, str]:
    return {name: address for name, address in pages.items() if not names or name in names}


def _pictures_of_logins(stack: ExitStack, browser: Browser, folder: Path, names: list[str]) -> None:
    """Pages for people who are not signed in; they need no cluster."""
    oidc = ("--auth", "oidc", "--oidc-issuer", "http://127.0.0.1:1/realms/main", "--oidc-client-id", "console")
    for pages, options in ((LOGIN_PAGES, oidc), (CLUSTER_LOGIN_PAGES, ("--auth", "cluster"))):
        wanted = _chosen(pages, names)
        place = folder / options[1]
        console = stack.enter_context(running_console(place, "--bootstrap", "kafka1:9092,kafka2:9092", *options))
        pictures(browser, console.url, "login", wanted, SIZES)


def _pictures_of_work(stack: ExitStack, browser: Browser, folder: Path, wanted: dict[str, str]) -> None:
    """Three brokers with much on them, in all sizes; OTTLA_SCREENSHOT_SIZES=1 takes the largest only."""
    sizes = SIZES[: int(os.environ.get("OTTLA_SCREENSHOT_SIZES", len(SIZES)))]
    (folder / "busy").mkdir()
    bootstrap, registry, metrics, _ = stack.enter_context(running_brokers(folder / "busy", 3))
    busy = BusyCluster(bootstrap, replication_factor=3)
    busy.fill()
    busy.leave_throttle()
    busy.start()
    stack.callback(busy.close)
    options = ["--bootstrap", bootstrap, "--registry", registry, "--name", "shop-production"]
    options += [part for each in metrics for part in ("--metrics", each)]
    console = stack.enter_context(running_console(folder / "console", *options))
    _wait_for_dot(browser, console.url, "healthy")
    page = browser.new_page(base_url=console.url)
    page.goto("/")
    page.wait_for_timeout(25_000)  # charts need some samples
    page.close()
    pictures(browser, console.url, "busy", wanted, sizes)


def _pictures_without_data(stack: ExitStack, browser: Browser, folder: Path, wanted: dict[str, str]) -> None:
    """A broker with nothing on it, and a console without a registry."""
    broker = stack.enter_context(ProcessBroker(folder / "empty"))
    console = stack.enter_context(running_console(folder / "empty-console", "--bootstrap", broker.bootstrap))
    _wait_for_dot(browser, console.url, "healthy")
    pictures(browser, console.url, "empty", wanted, SIZES[:1])


def _pictures_of_trouble(stack: ExitStack, browser: Browser, folder: Path, wanted: dict[str, str]) -> None:
    """Two brokers, one of them killed; then the other one, too. A registry that does not answer."""
    cluster = stack.enter_context(BrokerCluster(folder / "broken", brokers=2, kind=ProcessBroker))
    cluster.create_topic("orders", 4, replicas=2)
    cluster.create_topic("lonely", 4, replicas=1)
    options = ("--bootstrap", cluster.bootstrap, "--registry", "http://127.0.0.1:1", "--read-only")
    console = stack.enter_context(running_console(folder / "broken-console", *options))
    _wait_for_dot(browser, console.url, "healthy")
    cluster.brokers[1].kill()
    _wait_for_dot(browser, console.url, "problem")
    pictures(browser, console.url, "one-away", wanted, SIZES[:1])
    cluster.brokers[0].kill()
    _wait_for_dot(browser, console.url, "no answer")
    pictures(browser, console.url, "all-away", wanted, SIZES[:1])


def _wait_for_dot(browser: Browser, url: str, words: str) -> None:
    page = browser.new_page(base_url=url)
    page.goto("/jobs")
    page.wait_for_selector(f"#health-dot:has-text({words!r})", timeout=60_000)
    page.close()


if __name__ == "__main__":
    main(sys.argv[1:])
