"""The orders of the demo: always the same ones, some of them wrong, written to a topic at the pace of a shop."""

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from ottla import Producer

ORDERS_TOPIC: Final = "orders"
CUSTOMERS_TOPIC: Final = "customers"
BEGIN: Final = datetime(2024, 5, 1, 12, tzinfo=UTC)
MINUTES: Final = 10
"""The time of day that the orders span, however long it takes to write them."""
COUNTRIES: Final = ("AT", "CZ", "DE", "IT", "PL")
CUSTOMERS: Final = 60
KNOWN_CUSTOMERS: Final = 50
"""The others order without being in the table, which an enrichment must bear."""
TICK_SECONDS: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One record to be written, and what must become of it."""

    key: bytes
    value: bytes
    window: tuple[str, str] | None
    """The minute and the country that it counts for; None for one that belongs into the dead letters."""
    cents: int


@dataclass(slots=True, kw_only=True)
class Expected:
    """What has been written so far."""

    orders: int = 0
    wrong: int = 0
    windows: Counter[tuple[str, str]] = field(default_factory=Counter)
    cents: Counter[tuple[str, str]] = field(default_factory=Counter)

    def add(self, order: Order) -> None:
        """Counts one more."""
        self.orders += 1
        if order.window is None:
            self.wrong += 1
        else:
            self.windows[order.window] += 1
            self.cents[order.window] += order.cents


def country_of(number: int) -> str:
    """Where a customer lives, as the table says."""
    return COUNTRIES[number % len(COUNTRIES)] if number < KNOWN_CUSTOMERS else "unknown"


def orders(count: int, seed: int = 7) -> Iterator[Order]:
    """So many orders, in the order of their time; about two in a hundred are wrong."""
    chance = random.Random(seed)
    for number in range(count):
        at = BEGIN + timedelta(minutes=MINUTES) * number / count
        customer = chance.randrange(CUSTOMERS)
        cents = chance.randrange(100, 20_000)
        document = {"id": f"o{number}", "customer": f" c{customer}", "amount": cents / 100, "at": at.isoformat()}
        window: tuple[str, str] | None = (at.strftime("%Y-%m-%dT%H:%M:00"), country_of(customer))
        value = json.dumps(document).encode()
        match chance.randrange(200):
            case 0:
                value, window = value[: len(value) // 2], None
            case 1:
                value, window = json.dumps(document | {"amount": -1}).encode(), None
            case 2:
                value, window = json.dumps(document | {"amount": "a lot"}).encode(), None
            case 3:
                value, window = json.dumps(document | {"customer": None}).encode(), None
        yield Order(key=f"o{number}".encode(), value=value, window=window, cents=cents)


def closing_order() -> Order:
    """An order so late in the day that all minutes before it are over; its own minute stays open."""
    at = BEGIN + timedelta(minutes=MINUTES + 30)
    document = {"id": "closing", "customer": "c0", "amount": 1, "at": at.isoformat()}
    return Order(key=b"closing", value=json.dumps(document).encode(), window=None, cents=100)


def write_customers(bootstrap: str) -> None:
    """The table of customers: each one moves once, and one that is not there any more is deleted."""
    with Producer(bootstrap_servers=bootstrap) as producer:
        for country in ("somewhere", None):
            for number in range(KNOWN_CUSTOMERS):
                document = {
                    "customer": f"C{number}",
                    "name": f"Customer {number}",
                    "country": country or country_of(number),
                }
                producer.send(CUSTOMERS_TOPIC, json.dumps(document).encode(), key=document["customer"].encode())
        gone = {"customer": f"C{KNOWN_CUSTOMERS}", "name": "gone", "country": "nowhere"}
        producer.send(CUSTOMERS_TOPIC, json.dumps(gone).encode(), key=gone["customer"].encode())
        producer.send(CUSTOMERS_TOPIC, None, key=gone["customer"].encode())


class OrderWriter(threading.Thread):
    """Writes the orders, evenly over some seconds, and at last the closing one.

    Stops after `pause_at` orders until `go_on` is called.
    """

    def __init__(self, bootstrap: str, count: int, seconds: float, *, pause_at: int) -> None:
        super().__init__(name="orders", daemon=True)
        self._pause_at = pause_at
        self._may_go_on = threading.Event()
        self.expected = Expected()
        self.count = count
        self.error: Exception | None = None
        self._address = bootstrap
        self._seconds = seconds

    def run(self) -> None:
        """See `threading.Thread`."""
        try:
            self._write()
        except Exception as error:
            self.error = error

    def go_on(self) -> None:
        """Writes the orders behind `pause_at`, too."""
        self._may_go_on.set()

    def _write(self) -> None:
        with Producer(bootstrap_servers=self._address, linger_ms=0) as producer:
            begin = time.monotonic()
            for order in orders(self.count):
                producer.send(ORDERS_TOPIC, order.value, key=order.key)
                self.expected.add(order)
                if self.expected.orders == self._pause_at:
                    producer.flush()
                    paused = time.monotonic()
                    self._may_go_on.wait()
                    begin += time.monotonic() - paused
                due = begin + self._seconds * self.expected.orders / self.count
                if due - time.monotonic() > TICK_SECONDS:
                    # All partitions are at the same time of day before the next orders come.
                    producer.flush()
                    time.sleep(max(due - time.monotonic(), 0))
            producer.flush()
            closing = closing_order()
            producer.send(ORDERS_TOPIC, closing.value, key=closing.key).get(60)
