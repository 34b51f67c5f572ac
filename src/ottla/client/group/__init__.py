"""A consumer as a member of its group: membership, assignors, committed offsets."""
