"""What would happen, and what stands in the way: reads only.

`mirror_check` is `twinlog check` on the clusters (what it says of keys is `config.advice`),
`offline_status` what `status` shows without a running mirror.
"""
