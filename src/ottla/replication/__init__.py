"""Partitions: the leader's and the follower's side of replication, and the requests that wait for it.

Pure cores: `partition_state.py` decides what is committed, which requests are answered and which fetches are woken;
`leader_state.py` and `follower_state.py` are its two roles. Shells: `partition.py` is one partition,
`partition_table.py` all of them, `replica_fetcher.py` fetches from leaders, `replica_copy.py` applies the answers,
`isr_proposals.py` commits ISR changes, `log_repairs.py` and `lost_logs.py` deal with damaged and missing logs,
`throttles.py` and `read_replicas.py` with throttled replicas and nearby ones. `fetch_waiter.py` is a fetch that waits,
`timing_wheel.py` and `timers.py` keep deadlines. Groups and transactions are in `ottla.coordination`.
"""
