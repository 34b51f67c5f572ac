"""Wrong arguments of public methods: one error class, a message that names the argument and the expected type."""

import inspect
from typing import Any

import pytest

from ottla import (
    AsyncProducer,
    Producer,
)
from ottla.client.producer.errors import ProducerClosedError
from ottla.transport.addresses import Address


@pytest.mark.parametrize("transactional_id", [None, "closed"])
async def test_a_closed_producer_raises_the_same_in_every_method(
    address: Address, transactional_id: str | None
) -> None:
    import pyarrow as pa

    calls: list[tuple[str, tuple[Any, ...]]] = [
        ("send", ("t", b"x")),
        ("send_table", ("t", pa.table({"value": [b"x"]}))),
        ("flush", ()),
        ("partitions_for", ("t",)),
    ]
    if transactional_id is not None:
        calls += [("init_transactions", ()), ("commit_transaction", ()), ("abort_transaction", ())]
        calls += [("begin_transaction", ()), ("send_offsets_to_transaction", ({}, "g"))]
    expected = "the producer is closed; create a new one"
    producer = Producer(bootstrap_servers=str(address), transactional_id=transactional_id)
    producer.close()
    producer.close()
    for name, args in calls:
        with pytest.raises(ProducerClosedError) as refusal:
            getattr(producer, name)(*args)
        assert expected == str(refusal.value), name
    asynchronous = AsyncProducer(bootstrap_servers=str(address), transactional_id=transactional_id)
    await asynchronous.start()
    await asynchronous.close()
    await asynchronous.close()

    async def call(name: str, args: tuple[Any, ...]) -> None:
        called = getattr(asynchronous, name)(*args)
        if inspect.isawaitable(called):
            await called

    for name, args in calls:
        with pytest.raises(ProducerClosedError) as refusal:
            await call(name, args)
        assert expected == str(refusal.value), name


# The mechanism
