"""Real local Kafka clusters (KRaft) for the demo, the tests and the benchmark."""

from twinlog.sandbox.brokers import QUICK_JVM, LocalCluster
from twinlog.sandbox.security import SandboxSecurity

__all__ = ["QUICK_JVM", "LocalCluster", "SandboxSecurity"]
