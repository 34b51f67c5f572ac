"""A consumer as a member of its group: membership in both group protocols, assignors, committed offsets."""
