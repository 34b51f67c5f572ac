"""`ottla groups`: consumer groups, their lag and their committed offsets."""
