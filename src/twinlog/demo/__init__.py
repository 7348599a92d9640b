"""The demo: two local clusters, a stream of orders, the mirror, and an independent check."""
