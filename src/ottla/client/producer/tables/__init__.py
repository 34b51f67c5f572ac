"""Arrow tables as record batches: split by partition, encoded, and delivered as one."""
