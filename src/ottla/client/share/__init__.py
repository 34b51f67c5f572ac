"""Share consumers (KIP-932): the members of a share group read the same partitions and acknowledge each record.

`async_share_consumer.py` and `blocking_share_consumer.py` are the public classes, `core.py` puts the parts together.
The decisions are in `share_session_state.py` (one broker) and `acquired_records_state.py` (records that the program
has); the membership is `ottla.client.group.share_membership_state`.
"""
