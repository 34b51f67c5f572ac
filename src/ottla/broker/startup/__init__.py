"""What a broker checks and recovers before it opens its logs."""
