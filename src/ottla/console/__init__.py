"""The web console of a cluster: pages for people, over `ottla.client` only, for Ottla and for Apache Kafka.

It runs in a process of its own, never on a broker's event loop. Starlette routes, Jinja2 renders, htmx and uPlot are
served from `assets/vendor`; docs/decisions/0031-console.md says why. Rooms:

- `settings.py`: what the process was started with. `application.py`: the Starlette application and its table of pages.
- `web/`: all of HTTP that is not one page: `pages.py` (render, forms, redirects, commands to copy), `human.py` (numbers
  and times for people), `guard.py` (CSP, Host, CSRF), `cookies.py`, `sessions.py` and `login.py`, `failures.py` (error
  pages), `events.py` (server-sent events and downloads), `windows.py` (long tables), `routes.py` (names with slashes).
- `oidc/`: signing in with OpenID Connect.
- `cluster/`: what stands behind all pages: `access.py` (a user's clients, and the gate for changes), `audit.py`,
  `jobs.py` (long work), `sampler.py` (the last 60 minutes).
- `history/`: the past of charts, from Prometheus.
- `services/`: what a page does, without HTTP: takes an `Access`, returns frozen dataclasses. `pages/`: reads the
  request, calls a service, renders. `templates/<page>/`, `assets/`.

How a page is added:

1. `services/<name>.py`: functions such as `async def list_things(access: Access) -> list[ThingRow]`. Reads use
   `access.admin()` (shared: never close it), `async with access.consumer(...)`, `async with access.producer(...)`,
   `access.registry()`. Every change happens inside

       async with access.change("create topic", name, {"partitions": 3}):
           await access.admin().create_topics([...])

   which refuses it in read-only mode, and writes who, when, what, from where and how it ended to the audit log. Work
   that takes longer than a second or two is a job: `job = access.start_job("redrive", title, work)`, then redirect to
   `job.address`. In the job's function the change passes through `access.change` as well. `access.sampler` has the
   rates, sizes and lags of the last 60 minutes (`latest`, `series`).
2. `pages/<name>.py`: `routes: list[Route]`, endpoints `async def show(request: Request) -> Response`, which end with
   `return render(request, "<name>/list.html", rows=rows)`. `console_of(request)` returns the `Access`. A POST reads
   `form = await form_of(request)` (its origin and token were verified before; `text_of`, `number_of`, `unconfirmed`
   check fields) and ends with `return see(request, "/things/x")`, a redirect to the page that shows the result. Raise
   any `OttlaError`, or `NotFoundError`, for an error page; `InvalidFormError` to say what is wrong with a form.
   Blocking work belongs into `asyncio.to_thread`, looking through records into `access.scans`. Tables of more than
   some hundred rows use `windows.window`; addresses with names `path_of("topics", name)`.
3. `templates/<name>/list.html`: starts with `{% extends layout %}` and `{% import "macros.html" as ui with context %}`
   and fills the blocks `title`, `state` (one sentence), `actions`, `content`. `macros.html` documents its macros:
   tables, forms, fields, commands to copy (`ui.copy(command("topics", "create", name))`), charts, tabs, states.
   Filters: `count`, `bytes`, `rate`, `byte_rate`, `duration`, `when`, `ago`. A request of htmx gets `content` without
   the frame. No inline script or style: the CSP forbids both.
4. Name the module in `PAGES` of `application.py`, and its link in `RAIL` of `web/pages.py` if it belongs there.
5. `tests/broker/console/test_<name>.py` without a browser, `tests/console/test_<name>.py` with one.
"""
