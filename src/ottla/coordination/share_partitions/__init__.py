"""Share-partitions on the broker that leads the partition: which member has which record, sessions, fetching."""
