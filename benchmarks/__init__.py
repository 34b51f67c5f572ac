"""Measured claims. Every speed that Ottla's documents mention has a module here that repeats it.

`measure.py` is the one way to measure; its docstring shows how a benchmark is written. `python -m benchmarks` runs them
all, and takes names and `--quick`. Numbers are ratios against a named rival in the same run: absolute times belong to a
machine, ratios to the code.
"""
