"""Server-side groups (KIP-848): heartbeats, targets, reconciliation."""
