"""Commands for the REST API: tokens."""
