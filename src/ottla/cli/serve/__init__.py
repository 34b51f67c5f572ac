"""`ottla serve`: runs one broker or several."""
