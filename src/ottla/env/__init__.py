"""The world as a parameter: clock, disk, network and randomness as ports, and the real ones.

`ports.py` has the protocols that the rest of the house is written against; `real_*.py` implement them on the operating
system. The simulated twins live in `ottla.sim`. A room above this one never imports os, time, random or socket.
"""
