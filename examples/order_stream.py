"""The orders of the demo: always the same, some of them invalid, written to a topic at a steady pace, in Avro.

Their schema evolves on the way: later orders have a field more.
"""

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal

from ottla import Producer
from ottla.registry.serde import AvroSerializer, RegistryClient, Schema

ORDERS_TOPIC: Final = "orders"
CUSTOMERS_TOPIC: Final = "customers"
BEGIN: Final = datetime(2024, 5, 1, 12, tzinfo=UTC)
MINUTES: Final = 10
"""The time span of the orders, however long it takes to write them."""
COUNTRIES: Final = ("AT", "CZ", "DE", "IT", "PL")
CUSTOMERS: Final = 60
KNOWN_CUSTOMERS: Final = 50
"""Other customers are not in the table; the join must handle them."""
TICK_SECONDS: Final = 0.05
EVOLVE_AT: Final = 0.3
"""The share of orders after which they have the second schema."""
_FIELDS: Final[list[dict[str, Any]]] = [
    {"name": "id", "type": "string"},
    {"name": "customer", "type": ["null", "string"]},
    {"name": "amount", "type": "double"},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
]
_CHANNEL: Final = {"name": "channel", "type": "string", "default": "shop"}
SCHEMAS: Final = [
    json.dumps({"type": "record", "name": "Order", "namespace": "shop", "fields": fields})
    for fields in (_FIELDS, [*_FIELDS, _CHANNEL])
]
"""The versions of the schema of orders."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One record to write, and its expected result."""

    key: bytes
    document: dict[str, Any]
    version: int
    """Of the schema; the first one is 0."""
    damage: Literal["cut", "without schema"] | None = None
    """What happens to its bytes on the way."""
    window: tuple[str, str] | None
    """The minute and country that it counts for; None for an invalid order, which becomes a dead letter."""
    cents: int


@dataclass(slots=True, kw_only=True)
class Expected:
    """What has been written so far."""

    orders: int = 0
    wrong: int = 0
    evolved: int = 0
    """The valid orders that have the second schema."""
    named: int = 0
    """The wrong orders whose bytes say which schema they have."""
    windows: Counter[tuple[str, str]] = field(default_factory=Counter)
    cents: Counter[tuple[str, str]] = field(default_factory=Counter)

    def add(self, order: Order) -> None:
        """Counts one more."""
        self.orders += 1
        if order.window is None:
            self.wrong += 1
            self.named += order.damage != "without schema"
        else:
            self.evolved += order.version
            self.windows[order.window] += 1
            self.cents[order.window] += order.cents


def country_of(number: int) -> str:
    """The country of a customer."""
    return COUNTRIES[number % len(COUNTRIES)] if number < KNOWN_CUSTOMERS else "unknown"


def orders(count: int, seed: int = 7) -> Iterator[Order]:
    """`count` orders, sorted by time; about two percent are invalid."""
    chance = random.Random(seed)
    for number in range(count):
        at = BEGIN + timedelta(minutes=MINUTES) * number / count
        customer = chance.randrange(CUSTOMERS)
        cents = chance.randrange(100, 20_000)
        version = 0 if number < count * EVOLVE_AT else 1
        document: dict[str, Any] = {"id": f"o{number}", "customer": f" c{customer}", "amount": cents / 100, "at": at}
        document |= {"channel": "web"} if version else {}
        window: tuple[str, str] | None = (at.strftime("%Y-%m-%dT%H:%M:00"), country_of(customer))
        damage: Literal["cut", "without schema"] | None = None
        match chance.randrange(200):
            case 0:
                damage, window = "cut", None
            case 1:
                document, window = document | {"amount": -1.0}, None
            case 2:
                damage, window = "without schema", None
            case 3:
                document, window = document | {"customer": None}, None
        key = f"o{number}".encode()
        yield Order(key=key, document=document, version=version, damage=damage, window=window, cents=cents)


def closing_order() -> Order:
    """An order so late that all earlier windows close; its own window stays open."""
    at = BEGIN + timedelta(minutes=MINUTES + 30)
    document = {"id": "closing", "customer": "c0", "amount": 1.0, "at": at, "channel": "web"}
    return Order(key=b"closing", document=document, version=1, window=None, cents=100)


class OrderBytes:
    """Orders as bytes. The second schema is registered when the first order needs it."""

    def __init__(self, registry: RegistryClient) -> None:
        self._serializers = [AvroSerializer(registry, schema) for schema in SCHEMAS]
        registry.register(f"{ORDERS_TOPIC}-value", Schema(text=SCHEMAS[0]))

    def of(self, order: Order) -> bytes:
        """The value of an order, damaged if it is to be."""
        value = self._serializers[order.version].serialize(ORDERS_TOPIC, order.document) or b""
        if order.damage == "cut":
            return value[: len(value) // 2]
        return value[5:] if order.damage == "without schema" else value


def write_customers(bootstrap: str) -> None:
    """The table of customers: each moves once, and one is deleted."""
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
    """Writes the orders evenly over some seconds, and then the closing order.

    Stops after `pause_at` orders until `go_on` is called.
    """

    def __init__(self, bootstrap: str, values: OrderBytes, count: int, seconds: float, *, pause_at: int) -> None:
        super().__init__(name="orders", daemon=True)
        self._pause_at = pause_at
        self._may_go_on = threading.Event()
        self.expected = Expected()
        self.count = count
        self.error: Exception | None = None
        self._address = bootstrap
        self._values = values
        self._seconds = seconds

    def run(self) -> None:
        """Writes all orders."""
        try:
            self._write()
        except Exception as error:
            self.error = error

    def go_on(self) -> None:
        """Also writes the orders after `pause_at`."""
        self._may_go_on.set()

    def _write(self) -> None:
        with Producer(bootstrap_servers=self._address, linger_ms=0) as producer:
            begin = time.monotonic()
            for order in orders(self.count):
                producer.send(ORDERS_TOPIC, self._values.of(order), key=order.key)
                self.expected.add(order)
                if self.expected.orders == self._pause_at:
                    producer.flush()
                    paused = time.monotonic()
                    self._may_go_on.wait()
                    begin += time.monotonic() - paused
                due = begin + self._seconds * self.expected.orders / self.count
                if due - time.monotonic() > TICK_SECONDS:
                    # All partitions reach the same event time before the next orders.
                    producer.flush()
                    time.sleep(max(due - time.monotonic(), 0))
            producer.flush()
            closing = closing_order()
            producer.send(ORDERS_TOPIC, self._values.of(closing), key=closing.key).get(60)
