"""Clock, disk, network and randomness as ports, and their real implementations.

`ports.py` has the protocols that the other rooms use; `real_*.py` implement them on the operating system. `ottla.sim`
has the simulated implementations. Rooms above this one never import os, time, random or socket.
"""
