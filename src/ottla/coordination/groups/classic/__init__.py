"""Groups of the classic protocol: members, generations and deadlines."""
