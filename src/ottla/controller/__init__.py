"""Decides about the cluster: topics, partitions, their leaders, and configs.

`controller.py` is the shell: it decides on the newest image, commits to the metadata store, and decides again when
another commit came first. `active_controller.py` elects leaders when brokers come and go. The decisions are pure:
`topics_state.py` (create, delete), `partitions_state.py` (add partitions, elect leaders, reassign), `configs_state.py`
(configs, producer ids), `security_state.py` (ACLs, users, quotas, tokens); `decisions.py` has what goes in and comes
out, `placement.py` and `topic_names.py` their rules. `registration.py` is how a broker joins.
"""
