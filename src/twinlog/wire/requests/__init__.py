"""Fetch and Produce, which carry batches: the copy encodes and decodes them without a schema."""
