"""A replication policy of the user's own, in Python: `replication.policy.class = module:Class`.

The class is a subclass of `twinlog.mirror.names.naming.DefaultReplicationPolicy` that names remote
topics another way, and finds the source of a name again. It must be importable where the command
runs; lanes do not need it, names reach them as they are. A subclass that is a dataclass, or has no
constructor of its own, is right as it is: what is given is `separator`, `internal_separator` and,
where the constructor takes it, `source_alias`. docs/replication-policy.md has the contract.
"""

from __future__ import annotations

import importlib
import inspect
from typing import Any, Final

from twinlog.config.values.origin import Setting, refuse

SEPARATES: Final = ":"

_METHODS: Final = (
    "checkpoints_topic",
    "format_remote_topic",
    "heartbeats_topic",
    "is_checkpoints_topic",
    "is_heartbeats_topic",
    "is_internal_topic",
    "is_mm2_internal_topic",
    "offset_syncs_topic",
    "original_topic",
    "topic_source",
    "upstream_topic",
)
_TODO: Final = (
    "write package.module:Class of an importable subclass of "
    "twinlog.mirror.names.naming.DefaultReplicationPolicy"
)
_WAY_BACK: Final = "make topic_source() and upstream_topic() undo format_remote_topic()"


def custom_policy(
    entry: str, *, separator: str, internal_separator: str, source_alias: str | None
) -> Any:
    """An instance of the class; raises whatever its module raises."""
    module, _, name = entry.partition(SEPARATES)
    made = getattr(importlib.import_module(module), name)
    given = {
        "separator": separator,
        "internal_separator": internal_separator,
        "source_alias": source_alias,
    }
    taken = inspect.signature(made).parameters
    return made(**{name: value for name, value in given.items() if name in taken})


def keeps_names(given: Setting, entry: str) -> bool:
    """Whether remote topics have the names of their source, as with the identity policy.

    Raises ConfigError where the class cannot be had, or is no replication policy.
    """
    try:
        policy = custom_policy(entry, separator=".", internal_separator=".", source_alias="source")
        missing = [name for name in _METHODS if not callable(getattr(policy, name, None))]
        remote = None if missing else policy.format_remote_topic("source", "topic")
        is_named = isinstance(remote, str)
        back = (
            (policy.topic_source(remote), policy.upstream_topic(remote))
            if is_named
            else (None, None)
        )
    except Exception as error:
        what = f"{given.shown} cannot be used: {type(error).__name__}: {error}"
        raise refuse(given, what, _TODO) from error
    if not is_named:
        raise refuse(given, f"{given.shown} is no replication policy", _TODO)
    if remote != "topic" and back != ("source", "topic"):
        what = (
            f"{given.shown} names `topic` of `source` {remote!r}, and takes that for {back[1]!r} "
            f"of {back[0]!r}: topics would be copied back to where they are from"
        )
        raise refuse(given, what, _WAY_BACK)
    return remote == "topic"
