"""Records that wait to be sent, collected into batches, and their deliveries.

`AccumulatorState` holds a `PartitionQueue` for each partition, which holds `ProducerBatch`es; all pure. Deliveries are
compiled, since there is one for each record.
"""
