"""`ottla queues`: queues of topics, and the dead letters in them (`dead_letters`)."""
