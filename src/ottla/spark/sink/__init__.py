"""Writing topics: exactly-once decisions, transactions, and the writers that Spark calls."""
