"""Twinlog mirrors Kafka topics between clusters on Spark, exactly once.

Each folder's `__init__` describes its content. The modules beside them serve all layers: `errors`
(the tree of errors) and `model` (values such as partitions and flows) first; then `clock`,
`threads`, `metrics` (every series of `/metrics`; `control.watch.series` fills them), `flow_log`
(log lines about one flow), `shown` (makes text safe to print), `hidden` (removes secrets from
text), `quantities` (numbers for people), `addresses`, `folders`, `private_files`, `java`, `machine`
(cores and memory) and `extras` (optional packages).
"""

__version__ = "0.1.0"

__all__ = ["__version__"]
