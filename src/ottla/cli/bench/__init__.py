"""`ottla bench`: producing, consuming and end-to-end latency, against any broker that speaks Kafka's protocol."""
