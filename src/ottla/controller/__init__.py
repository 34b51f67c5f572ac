"""Decides about the cluster: topics, their partitions, who leads them, and configs.

`controller.py` is the shell: it decides on the newest image, commits to the metadata store, and decides again when
somebody else was faster. The decisions are pure: `topics_state.py` (create, delete), `partitions_state.py` (add
partitions, elect leaders, reassign), `configs_state.py` (configs, producer ids); `decisions.py` has what goes in and
comes out, `placement.py` and `topic_names.py` their rules. `registration.py` is how a broker joins.
"""
