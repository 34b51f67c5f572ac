"""Queues on the Kafka wire: delayed delivery, expiry, retry, dead letters and half messages.

A topic that opts in has companion topics whose only consumer is the broker. A companion's partition is its own state
log: it holds the parked records of clients and, as control batches, the progress of the broker. Names are in
`ottla.model.queue_names`; the design is in docs/decisions/0021-queues.md.
"""
