"""The simulated world: twins of the ports in `ottla.env` that one seed replays, faults and all.

`disk.py` states its fault model first and is the place to start; `clock.py` stands still until it is moved; `random.py`
repeats itself. What runs on them is the same code that runs on the real ones.
"""
