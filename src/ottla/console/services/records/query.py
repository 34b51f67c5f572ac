"""What the viewer shows, as its address says: the whole state of the page is in the address. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any, Final, Self
from urllib.parse import urlencode

from ottla.console.errors import InvalidFormError

LIMIT: Final = 50
LIMIT_MAX: Final = 1_000
_TEXT_MAX: Final = 4_096


class Decode(StrEnum):
    """How keys and values are shown."""

    AUTO = "auto"
    STRING = "string"
    JSON = "json"
    HEX = "hex"
    BASE64 = "base64"
    INTEGER = "integer"


class Order(StrEnum):
    """Which records come first."""

    NEWEST = "newest"
    OLDEST = "oldest"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordsQuery:
    """The state of the viewer. `from_` and `to` are positions as `ottla.operations.positions` reads them."""

    from_: str = ""
    """Empty for the beginning; the newest records are shown then."""
    to: str = ""
    """Empty for the end."""
    partition: str = ""
    """Numbers with commas; empty for all."""
    key: str | None = None
    """Only records with this key, in the partition that it belongs to."""
    everywhere: bool = False
    """With a key: look in all partitions, for topics whose producers choose partitions in another way."""
    filter: str = ""
    decode: Decode = Decode.AUTO
    live: bool = False
    uncommitted: bool = False
    """Whether records of open and aborted transactions are shown."""
    order: Order = Order.NEWEST
    limit: int = LIMIT

    @classmethod
    def of(cls, params: Mapping[str, str]) -> Self:
        """The query that an address has. Raises `InvalidFormError`."""
        for name, value in params.items():
            if len(value) > _TEXT_MAX:
                raise InvalidFormError(f"{name} is longer than {_TEXT_MAX} characters")
        start = params.get("from", "").strip()
        # From a position on, people read forward; without one, they want the newest records.
        default_order = Order.OLDEST if start and not start.startswith("-") else Order.NEWEST
        key = params.get("key")
        return cls(
            from_=start,
            to=params.get("to", "").strip(),
            partition=_partitions(params.get("partition", "")),
            key=key if key else None,
            everywhere=params.get("everywhere") == "1",
            filter=params.get("filter", "").strip(),
            decode=_choice(Decode, params.get("decode") or Decode.AUTO, "decode"),
            live=params.get("live") == "1",
            uncommitted=params.get("uncommitted") == "1",
            order=_choice(Order, params.get("order") or default_order, "order"),
            limit=_limit(params.get("limit", "")),
        )

    @property
    def partitions(self) -> tuple[int, ...] | None:
        """The partitions that are asked for; None for all."""
        return tuple(map(int, self.partition.split(","))) if self.partition else None

    @property
    def is_search(self) -> bool:
        """Whether records have to be looked for."""
        return bool(self.filter) or self.key is not None

    def params(self, **changes: Any) -> dict[str, str]:
        """The parameters of the address, without those that have their default."""
        changed = replace(self, **changes)
        found: dict[str, str] = {}
        for each in fields(changed):
            value = getattr(changed, each.name)
            if value == each.default:
                continue
            found[each.name.rstrip("_")] = "1" if value is True else str(value)
        default_order = Order.OLDEST if changed.from_ and not changed.from_.startswith("-") else Order.NEWEST
        found.pop("order", None)
        if Order(changed.order) is not default_order:
            found["order"] = Order(changed.order).value
        return found

    def address(self, path: str, **changes: Any) -> str:
        """The address of this state, with changes."""
        pairs = urlencode(self.params(**changes))
        return f"{path}?{pairs}" if pairs else path


def _choice(kind: Any, text: str, name: str) -> Any:
    try:
        return kind(text)
    except ValueError:
        raise InvalidFormError(f"{name}={text[:50]} is not one of {', '.join(kind)}") from None


def _limit(text: str) -> int:
    if not text:
        return LIMIT
    if not (text.isascii() and text.isdigit() and len(text) < 8) or not 1 <= int(text) <= LIMIT_MAX:
        raise InvalidFormError(f"limit={text[:50]} is not a number from 1 to {LIMIT_MAX}")
    return int(text)


def _partitions(text: str) -> str:
    words = [each.strip() for each in text.split(",") if each.strip()]
    if not all(each.isascii() and each.isdigit() and len(each) < 10 for each in words):
        raise InvalidFormError(f"partition={text[:50]} is not a list of partitions such as 0 or 0,3")
    return ",".join(str(int(each)) for each in words)
