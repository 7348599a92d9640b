"""A lane's two clusters: leaders and connections, fetches on one side, produces on the other.

Read `cluster_side`, then `source_side` and `target_side`. `background` keeps blocking calls out of
the loop, and `log_view` makes those of cold starts.
"""
