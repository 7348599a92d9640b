"""Topics, their configs and ACLs, and the topics in which we and MirrorMaker 2 keep state.

`admin` gathers the calls that a control loop makes; `internal_log` reads and writes small topics.
"""
