"""One broker: configuration, assembly, the way of a request, and one handler file for each family of APIs.

`parts.py` builds the parts, with `controllers.py`, `hosted_partitions.py`, `replication.py`, `coordinators.py`,
`queues.py` and `serving.py` for groups of them; `broker.py` starts them. `requests/` brings each request to its handler
in `handlers/`; `configs/` has what the configs mean; `startup/` checks and recovers before the logs are opened;
`assignment.py` makes logs and partitions match the cluster's image.
"""
