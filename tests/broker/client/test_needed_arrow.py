"""Without pyarrow everything works but tables, and those say what to install."""

import sys

import pytest

from ottla.transport.addresses import Address
from tests.processes import run

PROGRAM = """
import sys
sys.modules["pyarrow"] = None  # as if it were not installed
from ottla import Consumer, Producer

address, topic = sys.argv[1], "no-arrow-" + sys.argv[2]
with Producer(bootstrap_servers=address) as producer, Consumer(topic, bootstrap_servers=address,
        auto_offset_reset="earliest") as consumer:
    producer.send(topic, b"x").get(30)
    assert [b"x"] == [record.value for some in consumer.poll(30_000).values() for record in some]
    calls = {
        "send_table": lambda: producer.send_table(topic, None),
        "poll_arrow": lambda: consumer.poll_arrow(0),
        "poll_table": lambda: consumer.poll_table(0),
    }
    try:
        calls[sys.argv[2]]()
    except ImportError as error:
        print(error)
"""


@pytest.mark.parametrize("call", ["send_table", "poll_arrow", "poll_table"])
def test_tables_say_what_to_install(address: Address, call: str) -> None:
    done = run([sys.executable, "-c", PROGRAM, str(address), call])
    assert "" == done.stderr
    assert done.stdout.strip().endswith("install it with pip install 'ottla[arrow]'")
