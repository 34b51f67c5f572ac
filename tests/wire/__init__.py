"""The wire, byte by byte: a raw socket, every API in every version that is served, and what must be refused.

`exchange.py` speaks the protocol through kio alone, so that a mistake of ours cannot hide on both sides; `world.py`
prepares what the requests are about. `conftest.py` starts the broker. With `OTTLA_WIRE_ADDRESS=host:port` the suite
asks that broker instead. Apache Kafka 4.3 passes it too, but for moments in which a topic that it has made does not
show yet.
"""
