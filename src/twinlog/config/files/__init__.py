"""Readers of file formats: .properties, MirrorMaker 1's pair of files, and config providers.

Every format becomes a `raw.RawConfig` before its values are parsed.
"""
