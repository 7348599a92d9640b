"""Read-only checks: what a command would do, and what would prevent it.

`mirror_check` is `twinlog check` against the clusters (its advice on keys is in `config.advice`).
`offline_status` is what `status` shows without a running mirror.
"""
