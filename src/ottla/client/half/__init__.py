"""Half messages: records that are delivered only if a local transaction of their producer succeeded.

`HalfMessageProducer` and `AsyncHalfMessageProducer` prepare, decide and answer the broker's questions; everything they
send are plain records with headers (docs/queues.md). The broker's part is `ottla.queues.kinds.half_queue`.
"""
