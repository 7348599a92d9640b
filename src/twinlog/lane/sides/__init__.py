"""A lane's two clusters: who leads what, fetches on one side, produces on the other.

Read `cluster_side`, then `source_side` and `target_side`; `background` keeps blocking questions
away from the loop, and `log_view` asks those of cold starts.
"""
