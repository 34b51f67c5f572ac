"""`ottla quotas`: client quotas."""
