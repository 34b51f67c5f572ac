"""`ottla cluster`: describe the cluster, check its health, elect leaders, move replicas."""
