"""The driver: what keeps flows running, and what shows and steers them."""
