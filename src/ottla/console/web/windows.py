"""A window over many rows: the server filters, sorts and cuts, and the address says how. For tables of 10,000 rows."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar
from urllib.parse import urlencode

from starlette.requests import Request

from ottla.console.web.routes import own_path

T = TypeVar("T")
_SIZE: Final = 200
_NAMES: Final = ("q", "sort", "start")


@dataclass(frozen=True, slots=True, kw_only=True)
class Window(Generic[T]):
    """The rows that are shown, and the addresses of other windows."""

    rows: list[T]
    total: int
    matched: int
    query: str
    sort: str
    descending: bool
    start: int
    size: int
    path: str
    kept: tuple[tuple[str, str], ...]
    """The other parameters of the address, and the sort: kept when the filter changes."""

    @property
    def words(self) -> str:
        """How many rows there are, and how many match."""
        if self.query:
            return f"{self.matched:,} of {self.total:,} match"
        return f"{self.total:,} row{'' if self.total == 1 else 's'}"

    @property
    def next_address(self) -> str | None:
        """The address of the next window; None at the end."""
        after = self.start + self.size
        return None if after >= self.matched else self._address(self._sort_text, after)

    @property
    def _sort_text(self) -> str:
        return f"-{self.sort}" if self.descending else self.sort

    def sorted_by(self, sort: str) -> str:
        """The address with another sort; the same column the other way round."""
        return self._address(f"-{sort}" if sort == self.sort and not self.descending else sort, 0)

    def _address(self, sort: str, start: int) -> str:
        pairs = [each for each in self.kept if each[0] != "sort"] + [("sort", sort)]
        pairs += [("q", self.query)] if self.query else []
        pairs += [("start", str(start))] if start else []
        return f"{self.path}?{urlencode(pairs)}"


def window(
    request: Request,
    rows: Iterable[T],
    *,
    text: Callable[[T], str],
    sorts: Mapping[str, Callable[[T], Any]],
    default: str,
    size: int = _SIZE,
) -> Window[T]:
    """The window that the address names: `q` is in the text of each row (case does not matter), `sort` names one of
    `sorts` (with "-" for descending; `default` likewise), `start` is the first row. A sort key of None comes last."""
    every = list(rows)
    query = request.query_params.get("q", "").strip()
    wanted = request.query_params.get("sort", default)
    if wanted.lstrip("-") not in sorts:
        wanted = default
    sort, descending = wanted.lstrip("-"), wanted.startswith("-")
    needle = query.casefold()
    matched = [each for each in every if needle in text(each).casefold()] if needle else every
    key = sorts[sort]
    known = [each for each in matched if key(each) is not None]
    known.sort(key=key, reverse=descending)
    matched = known + [each for each in matched if key(each) is None]
    start_text = request.query_params.get("start", "0")
    start = int(start_text) if start_text.isascii() and start_text.isdigit() and len(start_text) < 10 else 0
    kept = tuple((name, value) for name, value in request.query_params.multi_items() if name not in _NAMES)
    sorted_pair = (("sort", wanted),) if "sort" in request.query_params else ()
    return Window(
        rows=matched[start : start + size],
        total=len(every),
        matched=len(matched),
        query=query,
        sort=sort,
        descending=descending,
        start=start,
        size=size,
        path=own_path(request),
        kept=(*kept, *sorted_pair),
    )
