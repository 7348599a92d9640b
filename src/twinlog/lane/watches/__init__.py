"""Watches for problems that the copy itself would not notice, one per module."""
