"""Parses values of settings, and records the file and line of each.

Read `origin` (a value with its file and line), then `types`. `warnings` defines warnings about a
configuration, `renames` the rules of `twinlog.rename`.
"""
