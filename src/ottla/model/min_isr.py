"""How many replicas must be in sync before a partition commits anything."""


def effective_min_isr(min_insync_replicas: int, replica_count: int) -> int:
    """`min.insync.replicas`, but no more than there are replicas: as in Kafka, a topic with fewer can still be written.

    Used by leaders for `acks=all` and the high watermark, by elections, metrics and the command line alike.
    """
    return min(min_insync_replicas, replica_count)
