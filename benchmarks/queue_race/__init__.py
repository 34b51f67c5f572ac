"""The rivals of `benchmarks.queues`: delayed records in Ottla, and in RabbitMQ by TTL and dead-letter exchange."""
