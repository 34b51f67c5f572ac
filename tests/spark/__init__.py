"""Against real Spark: reading, writing, kills, pipelines; Apache Kafka and Ottla as brokers."""
