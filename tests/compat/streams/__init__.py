"""Kafka Streams applications on Ottla and on Apache Kafka."""
