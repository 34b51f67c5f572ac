"""`ottla registry`: runs a schema registry, and works with any registry that has Confluent's interface."""
