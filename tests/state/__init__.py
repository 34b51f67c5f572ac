"""State machines driven by Hypothesis against simple models."""
