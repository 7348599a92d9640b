"""A custom replication policy in Python: `replication.policy.class = module:Class`.

The class is a subclass of `twinlog.mirror.names.naming.DefaultReplicationPolicy` that names remote
topics differently and finds the source topic of a remote name. It must be importable where the
command runs. Lanes do not need it because they receive the names. The constructor is called with
those of `separator`, `internal_separator` and `source_alias` that it accepts, so a dataclass, or a
subclass without a constructor, works unchanged. docs/replication-policy.md has the contract.
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


def custom_instance(entry: str, **given: Any) -> Any:
    """Return an instance of the class `module:Class`, with those arguments that its constructor
    has. Raises any error that its module raises.
    """
    module, _, name = entry.partition(SEPARATES)
    made = getattr(importlib.import_module(module), name)
    taken = inspect.signature(made).parameters
    return made(**{name: value for name, value in given.items() if name in taken})


def keeps_names(given: Setting, entry: str) -> bool:
    """Return True if remote topics keep their source names, as with the identity policy.

    Raises ConfigError if the class cannot be loaded or is not a replication policy.
    """
    try:
        policy = custom_instance(
            entry, separator=".", internal_separator=".", source_alias="source"
        )
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
        raise refuse(given, f"{given.shown} is not a replication policy", _TODO)
    if remote != "topic" and back != ("source", "topic"):
        what = (
            f"{given.shown} names `topic` of `source` {remote!r}, but maps that name back to "
            f"{back[1]!r} of {back[0]!r}: topics would be copied back to their source"
        )
        raise refuse(given, what, _WAY_BACK)
    return remote == "topic"
