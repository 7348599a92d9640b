"""Twinlog mirrors Kafka topics between clusters on Spark, exactly once.

Each folder's `__init__` describes its content. The modules beside them are `errors` (the tree of
errors), `model` (values that all layers use), `metrics` (every series of `/metrics`;
`control.watch.series` fills them), `flow_log` (log lines about one flow), `shown` (makes foreign
text safe to print), `quantities` (numbers for people), `addresses`, `clock`, `java`, `folders`,
`private_files`.
"""

__version__ = "0.1.0"

__all__ = ["__version__"]
