"""Fetching records: one loop for the consumers, the range readers and Spark's tasks.

`fetch_plan_state.py` decides what to ask which broker for and holds the chunks that arrived; `fetcher.py` sends the
requests. A consumer moves the positions (`partition_state.py`) as its group says; `range_fetch.py` reads from one
offset to another. `arrow_chunks.py` decodes chunks to Arrow.
"""
