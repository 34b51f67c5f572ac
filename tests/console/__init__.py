"""The console in a real browser, against real broker processes: `make test-console`, after `tests/console/prepare`.

Fixtures (`conftest.py`), for all test modules here:

| fixture | scope | what |
|---|---|---|
| `broker` | session | a `ProcessBroker` with a schema registry; `broker.bootstrap`; topics are shared, so name yours |
| `registry_url` | session | its registry |
| `console` | session | a `ConsoleProcess` on it, with the registry: `console.url`, `console.log` |
| `read_only_console` | session | the same with `--read-only` |
| `page` | test | a Playwright page of its own browser context, 1440 x 900, whose base URL is `console` |
| `new_page` | test | more visitors: `new_page(console.url, width=390, height=844, theme="dark")` |
| `http` | test | requests without a browser: `http.get("/topics")`, `http.post("/topics/~create", {"name": "x"})` |
| `admin` | session | a blocking `ottla.Admin` of `broker`, to prepare and to judge |

A page that logs an error to the browser's console, or violates the CSP, fails its test: add a pattern to
`page.allowed_errors` where a test provokes one on purpose. Playwright's `expect(...)` waits; never sleep. Other
consoles and brokers: `console_process.running_console(folder, *options)`, `ProcessBroker`.
"""
