"""`ottla acls`: access control lists."""
