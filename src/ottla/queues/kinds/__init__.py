"""The kinds of queues: what a parked record means, and what happens to it when it is due. Pure."""
