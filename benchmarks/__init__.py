"""Benchmarks that compare Twinlog and Java's MirrorMaker 2 in the same run on one machine."""
