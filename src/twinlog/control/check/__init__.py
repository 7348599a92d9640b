"""Read-only checks: what would happen, and what prevents it.

`mirror_check` is `twinlog check` against the clusters (its advice on keys is in `config.advice`).
`offline_status` is what `status` shows without a running mirror.
"""
