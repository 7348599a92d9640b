"""Topics, their configs and ACLs, and the internal topics of Twinlog and MirrorMaker 2.

`internal_log` reads and writes small topics.
"""
