"""The registry as a process: its topic, the election of a leader, and HTTP.

- `schemas_topic.py` opens and reads the topic `_schemas`; `schemas_writer.py` writes to it, one writer at a time.
- `election_protocol.py` and `leader_election.py` elect one leader among all instances on a cluster.
- `registry.py` answers: reads come from the image in memory, writes go through `leadership.py` or to the leader.
- `image_access.py` and `checking_thread.py` run what takes long in threads: with the image, and without it.
- `application.py` is the ASGI application, `routes.py` its table, `served_registry.py` runs it.

What a registry decides is in `ottla.registry.state`, which does no I/O.
"""
