"""What clients do in a simulation: each file is one kind of program, run by real clients, noted in the history.

A workload runs until the life is over, in a process that may be killed, and begins again after every failure: what a
client is told is the truth that the checkers hold the cluster to.
"""
