"""Topics with queues, what is parked in them and when it is due, and instructions that change that."""
