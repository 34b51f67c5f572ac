"""Spark's own Kafka connector and the data source `ottla`, in one Spark session, on Apache Kafka and on Ottla.

`connector.py` gets the connector's jars; `ground.py` has the brokers, their topics and the session; `reads.py`,
`writes.py` and `micro_batches.py` are what is measured. `benchmarks/spark.py` runs it all.
"""
