"""The parts of `benchmarks/cluster.py`: three Apache Kafka brokers and three of Ottla's, loaded and broken alike.

`clusters` starts, stops and kills them and finds leaders, `memory` reads what they take, `failover_load` writes while
a broker is killed, and `cases` is the table of what is measured. Loads, CPU time and tables are `kafka_race`'s.
"""
