"""Commands about groups: which may move to the other cluster, and setting their offsets."""
