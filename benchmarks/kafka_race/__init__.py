"""The parts of `benchmarks/vs_kafka.py`: Apache Kafka and Ottla under the same loads.

`brokers` starts and stops the two, `process_usage` reads what they cost, `raw_load`, `librdkafka_load` and `java_load`
put work on them, `arena` is where a case works, `cases`, `group_cases` and `transaction_cases` are the tables of what
is measured, and `scoreboard` turns samples into ratios and tables. The load generator in C is in the folder `load`
beside this one.
"""
