"""Values as columns: strings, JSON, Avro, schema registries, and what happens to those that cannot be decoded."""
