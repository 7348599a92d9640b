"""Real local Kafka clusters (KRaft) for the demo, the tests and the benchmark."""
