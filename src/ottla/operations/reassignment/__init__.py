"""Moving replicas between brokers: plans (pure), how fast replicas are copied, and how far the copying is."""
