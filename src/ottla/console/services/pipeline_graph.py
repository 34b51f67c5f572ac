"""The picture of a pipeline: sources on the left, steps in the middle, sinks on the right, each at its place. Pure.

Templates draw it as SVG. A box stands one column right of the furthest box that it reads; within a column, boxes
stand in the order of what they read, which keeps most lines from crossing.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final, Literal

from ottla.spark.pipelines.declaration.loading import unused_views
from ottla.spark.pipelines.declaration.project import Project
from ottla.spark.pipelines.running.query_names import DEAD_LETTERS, view_of

BoxKind = Literal["source", "step", "sink", "dead"]
WIDTH: Final = 190
HEIGHT: Final = 48
_GAP_X: Final = 110
_GAP_Y: Final = 28
_MARGIN: Final = 12
_TITLE_LENGTH_MAX: Final = 24
_DETAIL_LENGTH_MAX: Final = 29
_SWEEPS: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryFacts:
    """What the edges of a query say."""

    name: str
    rows_per_second: float | None
    lag_by_topic: Mapping[str, int]
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A source, a step or a sink, at its place."""

    id: str
    kind: BoxKind
    title: str
    detail: str
    topic: str | None
    """The topic that it reads or writes."""
    state: str
    """The state of a sink's query; empty for others."""
    is_unused: bool
    x: int = 0
    y: int = 0

    @property
    def short_title(self) -> str:
        """The title as far as it fits."""
        return _short(self.title, _TITLE_LENGTH_MAX)

    @property
    def short_detail(self) -> str:
        """The detail as far as it fits."""
        return _short(self.detail, _DETAIL_LENGTH_MAX)


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """A line between two boxes."""

    start: Box
    end: Box
    lag: int | None
    """Records that the slowest query has not read; only on lines from a source."""
    rows_per_second: float | None
    """Only on lines to a sink."""

    via: tuple[tuple[int, int], ...] = ()
    """The corners of the free places that it passes on its way, in columns that it crosses."""

    @property
    def path(self) -> str:
        """The line as the `d` of an SVG path."""
        x, y = self.start.x + WIDTH, self.start.y + HEIGHT // 2
        parts = [f"M{x},{y}"]
        for next_x, next_y in (*self.via, (self.end.x, self.end.y)):
            bend, next_y = (next_x - x) // 2, next_y + HEIGHT // 2
            parts.append(f"C{x + bend},{y} {next_x - bend},{next_y} {next_x},{next_y}")
            x, y = next_x, next_y
            if (next_x, next_y - HEIGHT // 2) in self.via:
                x += WIDTH
                parts.append(f"H{x}")
        return " ".join(parts)

    @property
    def label_x(self) -> int:
        """Where its label stands: beside the source, or beside the sink."""
        return self.start.x + WIDTH + _GAP_X // 2 if self.lag is not None else self.end.x - _GAP_X // 2

    @property
    def label_y(self) -> int:
        """Above the middle of the bend beside the source, or beside the sink."""
        stops = [self.start.y, *(y for _, y in self.via), self.end.y]
        near = stops[:2] if self.lag is not None else stops[-2:]
        return sum(near) // 2 + HEIGHT // 2 - 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """All boxes and lines, and the size of the picture."""

    boxes: tuple[Box, ...]
    edges: tuple[Edge, ...]
    width: int
    height: int


def draw(project: Project, queries: Iterable[QueryFacts]) -> Graph:
    """The picture of a project, with what is known of its queries."""
    facts = list(queries)
    links = _links(project, facts)
    boxes = _boxes(project, facts)
    placed, ways = _placed(boxes, [(start, end) for start, end, _, _ in links])
    edges = tuple(
        Edge(start=placed[start], end=placed[end], lag=lag, rows_per_second=rate, via=ways.get((start, end), ()))
        for start, end, lag, rate in links
    )
    right = max((box.x + WIDTH for box in placed.values()), default=0)
    passed = [y for way in ways.values() for _, y in way]
    bottom = max([box.y for box in placed.values()] + passed, default=0) + HEIGHT
    return Graph(boxes=tuple(placed.values()), edges=edges, width=right + _MARGIN, height=bottom + _MARGIN)


def _boxes(project: Project, queries: list[QueryFacts]) -> dict[str, Box]:
    unused = set(unused_views(project))
    found: dict[str, Box] = {}
    for view in project.order:
        source = project.settings.sources.get(view)
        if source is not None:
            kind: BoxKind = "source"
            detail = _place(source.topic, source.parquet, source.delta)
            topic = source.topic
        else:
            kind, topic = "step", None
            detail = f"{project.steps[view].language.upper() if view in project.steps else ''} step".strip()
            detail = detail.replace("PYTHON", "Python")
        found[view] = Box(
            id=view, kind=kind, title=view, detail=detail, topic=topic, state="", is_unused=view in unused
        )
    states = {each.name: each.state for each in queries}
    for name, sink in project.settings.sinks.items():
        found[f"to {name}"] = Box(
            id=f"to {name}",
            kind="sink",
            title=name,
            detail=_place(sink.topic, sink.parquet, sink.delta),
            topic=sink.topic,
            state=states.get(name, ""),
            is_unused=False,
        )
    letters = project.settings.dead_letters
    if letters is not None and any(each.name.startswith(DEAD_LETTERS) for each in queries):
        found[f"to {DEAD_LETTERS}"] = Box(
            id=f"to {DEAD_LETTERS}",
            kind="dead",
            title="dead letters",
            detail=_place(letters.topic, None, None),
            topic=letters.topic,
            state="",
            is_unused=False,
        )
    return found


def _links(project: Project, queries: list[QueryFacts]) -> list[tuple[str, str, int | None, float | None]]:
    """Start, end, lag and rate of each line."""
    needed = {each.name: set(project.needed_for(view_of(project, each.name))) for each in queries}
    links: list[tuple[str, str, int | None, float | None]] = []
    for view in project.order:
        for read in project.reads(view):
            through = [each for each in queries if {read, view} <= needed[each.name]]
            links.append((read, view, _lag(project, read, through), None))
    known = {each.name: each for each in queries}
    for name, sink in project.settings.sinks.items():
        query = known.get(name)
        rate = None if query is None else query.rows_per_second
        lag = _lag(project, sink.view, [query]) if query is not None else None
        links.append((sink.view, f"to {name}", lag, rate))
    for name, query in known.items():
        if name.startswith(DEAD_LETTERS) and project.settings.dead_letters is not None:
            links.append((view_of(project, name), f"to {DEAD_LETTERS}", None, query.rows_per_second))
    return links


def _lag(project: Project, view: str, queries: Iterable[QueryFacts]) -> int | None:
    source = project.settings.sources.get(view)
    if source is None or source.topic is None:
        return None
    known = [each.lag_by_topic[source.topic] for each in queries if source.topic in each.lag_by_topic]
    return max(known) if known else None


_Ways = dict[tuple[str, str], tuple[tuple[int, int], ...]]
"""The places that a line passes, by its start and end."""


def _placed(boxes: Mapping[str, Box], links: list[tuple[str, str]]) -> tuple[dict[str, Box], _Ways]:
    columns = _columns(boxes, links)
    rows: dict[int, list[str]] = {}
    for name, column in columns.items():
        rows.setdefault(column, []).append(name)
    before: dict[str, list[str]] = {}
    after: dict[str, list[str]] = {}
    passing: dict[tuple[str, str], list[str]] = {}
    for start, end in links:
        # A line that crosses columns takes a place in each of them, so that it does not run behind a box.
        between = [f"{start} to {end} at {column}" for column in range(columns[start] + 1, columns[end])]
        for column, name in enumerate(between, columns[start] + 1):
            rows[column].append(name)
        passing[start, end] = between
        for left, right in pairwise([start, *between, end]):
            after.setdefault(left, []).append(right)
            before.setdefault(right, []).append(left)
    for sweep in range(_SWEEPS):
        neighbours = before if sweep % 2 == 0 else after
        places = {name: at for some in rows.values() for at, name in enumerate(some)}
        for some in rows.values():
            some.sort(key=lambda name: (_middle(neighbours.get(name, []), places, places[name]), places[name]))
    tallest = max((len(some) for some in rows.values()), default=0)
    corners: dict[str, tuple[int, int]] = {}
    for column, some in rows.items():
        offset = (tallest - len(some)) * (HEIGHT + _GAP_Y) // 2
        for at, name in enumerate(some):
            corners[name] = _MARGIN + column * (WIDTH + _GAP_X), _MARGIN + offset + at * (HEIGHT + _GAP_Y)
    placed = {name: replace(box, x=corners[name][0], y=corners[name][1]) for name, box in boxes.items()}
    return placed, {link: tuple(corners[name] for name in between) for link, between in passing.items()}


def _columns(boxes: Mapping[str, Box], links: list[tuple[str, str]]) -> dict[str, int]:
    columns: dict[str, int] = {}
    for name in boxes:
        # Views come in the order in which they read each other, and sinks last.
        columns[name] = 1 + max((columns[start] for start, end in links if end == name), default=-1)
    last = max(columns.values(), default=0)
    return {name: last if boxes[name].kind in ("sink", "dead") else column for name, column in columns.items()}


def _middle(neighbours: list[str], places: Mapping[str, int], otherwise: int) -> float:
    return sum(places[each] for each in neighbours) / len(neighbours) if neighbours else float(otherwise)


def _place(topic: str | None, parquet: str | None, delta: str | None) -> str:
    if topic is not None:
        return f"topic {topic}"
    return f"Parquet {parquet}" if parquet is not None else f"Delta {delta or ''}"


def _short(text: str, length_max: int) -> str:
    return text if len(text) <= length_max else f"{text[: length_max - 1]}…"
