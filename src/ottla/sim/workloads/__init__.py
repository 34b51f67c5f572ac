"""Workloads of a simulation: each file is one kind of program on real clients, recorded in the history.

A workload runs until the run is over, in a process that may be killed, and begins again after every failure: what a
client is told is the truth that the checkers hold the cluster to.
"""
