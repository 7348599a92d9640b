"""Local Kafka clusters (KRaft) of real brokers, for the demo, the tests and the benchmark."""

from twinlog.sandbox.brokers import QUICK_JVM, LocalCluster

__all__ = ["QUICK_JVM", "LocalCluster"]
