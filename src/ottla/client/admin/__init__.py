"""The admin clients: topics, configs, groups, transactions and partitions, asked and changed."""
