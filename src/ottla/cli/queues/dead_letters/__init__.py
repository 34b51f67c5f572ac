"""`ottla queues dead-letters`: lists and shows dead letters, sends them back to their topics, and deletes them."""
