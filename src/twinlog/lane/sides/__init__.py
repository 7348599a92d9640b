"""A lane's two clusters: leaders and connections of both, fetches from the source, produces to the
target.

Read `cluster_side`, then `source_side` and `target_side`. `background` runs blocking calls outside
the loop, and `log_view` is how cold starts read a cluster.
"""
