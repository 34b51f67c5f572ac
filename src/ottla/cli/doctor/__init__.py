"""`ottla doctor`: says whether this machine can run a broker well, and what to change if not.

`probes/` look at the machine and return the facts of `facts.py`; `judgement.py` turns facts into findings and touches
nothing, so that tests feed it machines that they do not have. `report.py` prints the findings; `command.py` has the
options and the order. Nothing is changed: the disk is measured with an unnamed file, the port is closed at once.
"""
