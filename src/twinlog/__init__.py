"""Twinlog mirrors Kafka topics between clusters on Spark, exactly once.

Each folder's `__init__` says what is in it. Beside them: `errors` (the one tree), `model` (values
that all know), `metrics` (every series of `/metrics`; `control.watch.series` fills them),
`flow_log` (lines about one flow), `shown` (text of others made safe to print), `quantities`
(numbers for people), `addresses`, `clock`, `java`, `folders`, `private_files`.
"""

__version__ = "0.1.0"

__all__ = ["__version__"]
