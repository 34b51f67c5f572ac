"""What the broker's and the topics' configs mean: parsed, merged, changed and listed."""
