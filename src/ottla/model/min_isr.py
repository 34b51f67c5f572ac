"""How many replicas must be in sync before a partition commits anything."""


def effective_min_isr(min_insync_replicas: int, replica_count: int) -> int:
    """`min.insync.replicas`, but at most the number of replicas: as in Kafka 4, a topic with fewer can be written.

    The one definition, for `acks=all`, the high watermark, elections, metrics and the command line.
    """
    return min(min_insync_replicas, replica_count)
