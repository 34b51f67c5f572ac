"""A browser without a screen: sends requests to the console's application itself."""

import html
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from starlette.testclient import TestClient

from ottla.console.application import Console
from ottla.console.cluster.access import Access

T = TypeVar("T")
HOST = "http://127.0.0.1:8080"
_HIDDEN = re.compile(r'<input type="hidden" name="([^"]*)" value="([^"]*)">')
_TOKEN = re.compile(r'<meta name="csrf-token" content="([0-9a-f]+)">')


class Visitor:
    """`visitor.get("/topics")`, `visitor.post("/x", {...})` with token and origin; `visitor.console` is the `Console`,
    `visitor.access()` an `Access` for services, whose coroutines `visitor.run(...)` runs on the application's own event
    loop."""

    def __init__(self, console: Console, client: TestClient) -> None:
        self.console = console
        self.client = client
        self.token = ""

    def get(self, path: str, **options: Any) -> Any:
        """A page."""
        response = self.client.get(path, follow_redirects=False, **options)
        found = _TOKEN.search(response.text) if "html" in response.headers.get("content-type", "") else None
        if found is not None:
            self.token = found[1]
        return response

    def post(self, path: str, fields: Mapping[str, Any] | None = None, headers: Mapping[str, str] | None = None) -> Any:
        """A form, with the token of a page that was loaded before."""
        if not self.token:
            self.get("/")
        given = {"csrf": self.token, **(fields or {})}
        sent = {"Origin": HOST, "Sec-Fetch-Site": "same-origin", **(headers or {})}
        return self.client.post(path, data=given, headers=sent, follow_redirects=False)

    def form(self, address: str) -> dict[str, list[str]]:
        """The hidden fields of a page: what its preview passes on."""
        page = self.get(address)
        assert page.status_code == 200, page.text
        found: dict[str, list[str]] = {}
        for name, value in _HIDDEN.findall(page.text):
            found.setdefault(name, []).append(html.unescape(value))
        return found

    def send_form(self, address: str, fields: Mapping[str, str] | None = None) -> Any:
        """Loads the page of a form with its preview, and sends it."""
        return self.post(address.partition("?")[0], {**self.form(address), **(fields or {})})

    def access(self) -> Access:
        """For services."""
        return self.console.access("anonymous", "127.0.0.1", self.console.own_clients)

    def run(self, work: Callable[[], Awaitable[T]]) -> T:
        """Runs a coroutine function on the application's event loop."""
        assert self.client.portal is not None
        return self.client.portal.call(work)
