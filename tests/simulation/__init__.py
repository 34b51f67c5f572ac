"""Lives of whole clusters on virtual time: seeds, scenarios, determinism, planted bugs. See docs/simulation.md."""
