"""Fetch and Produce, the requests with batches. Lanes encode and decode them without a schema."""
