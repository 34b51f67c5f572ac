"""The share coordinator: the state of share-partitions, one partition of `__share_group_state` at a time."""
