"""The clients of Kafka's protocol, for Ottla and for Apache Kafka: asyncio and blocking, typed, without broker code.

`network` has connections, metadata, routing and retries. On it stand `producer`, `fetch` and `consumer`, `group`
(membership and assignors), `admin`, `parallel` and `half` (half messages). The modules here are shared by all: options
and arguments, errors, values, serializers, and the thread of the blocking classes.
"""
