"""Partitions: who may append and read, up to where, and who waits for what.

`partition.py` is one partition on this broker; `partition_table.py` all of them; `timing_wheel.py` deadlines by the
thousand, `timers.py` drives it; `fetch_waiter.py` and `append_waiter.py` are requests that wait for an event.
"""
