"""`ottla log`: log files on disk, and the log dirs of running brokers."""
