"""Twinlog mirrors Kafka topics between clusters on Spark, exactly once."""

__version__ = "0.1.0"

__all__ = ["__version__"]
