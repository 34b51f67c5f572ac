"""`ottla configs`: the configs of topics and brokers."""
