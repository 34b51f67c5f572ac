"""Share groups in simulated runs: their members, what these were told, and when a group is done with its topic."""
