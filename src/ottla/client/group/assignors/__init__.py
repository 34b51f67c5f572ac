"""Partition assignment in a classic group: computed by its leader for all members.

`assignor.py` says what an assignor is, and is what your own would follow. The four that there are give what Java's
give: `range_assignor.py`, `roundrobin_assignor.py`, and `sticky_assignor.py` with its two ways of working,
`even_stickiness.py` where all members want the same topics and `uneven_stickiness.py` where they do not.
`java_order.py` is why they can be equal: some of Java's choices follow the order of its hash tables. Replicas' racks
are not looked at.
"""
