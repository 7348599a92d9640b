"""What would happen, and what stands in the way: reads only.

`mirror_check` is `twinlog check`, `offline_status` what `status` shows without a running mirror.
"""
