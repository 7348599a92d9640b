"""Texts of a file into values, and where each came from.

Read `origin` (a value with its file and line), then `types`; `warnings` is what deserves attention,
`renames` are the rules of `twinlog.rename`.
"""
