"""What brokers say of the logs of partitions: offsets, bytes, producers.

`per_leader` asks each leader once for all of its partitions, and lets none delay another.
"""
