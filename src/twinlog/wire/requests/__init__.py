"""Fetch and Produce, which carry batches: the copy builds and reads them without a schema."""
