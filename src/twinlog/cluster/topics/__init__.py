"""Topics, their configs and ACLs, and the topics in which we and MirrorMaker 2 keep state.

`internal_log` reads and writes small topics.
"""
