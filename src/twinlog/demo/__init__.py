"""The demo: two local clusters, a stream of orders, a mirror, and an independent check."""
