"""Commands about groups: which ones may move to the other cluster, and resets of their offsets."""
