"""Parses values, and keeps the origin of each.

Read `origin` (a value with its file and line), then `types`. `warnings` defines warnings about a
configuration, `renames` the rules of `twinlog.rename`.
"""
