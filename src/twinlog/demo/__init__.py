"""The demo: two local clusters, a stream of orders, the mirror, an independent check."""
