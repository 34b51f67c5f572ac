"""Share groups (KIP-932): members, their assignments, and which share-partitions have their state initialized."""
