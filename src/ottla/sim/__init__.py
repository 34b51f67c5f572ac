"""The simulator: implementations of the ports in `ottla.env` that replay a run, with its faults, from one seed.

Start with `disk.py`, which states its fault model; `clock.py` has a clock that is moved by hand, `random.py` a seeded
random generator. Brokers and clients run on them unchanged.
"""
