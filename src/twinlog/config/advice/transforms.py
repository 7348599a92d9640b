"""Refuses files with transforms that a mirror cannot run.

Otherwise, records would be copied unchanged, in the clear if a transform was meant to mask them.
The file is refused as a whole, even if only one line of a transform is not read because it is in
the wrong place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from twinlog.config.flow.connect import CHAIN
from twinlog.config.flow.schema import FlowConfig, MirrorConfig, PolicyKind, TargetPartitions
from twinlog.config.keys.key_table import TARGET_PARTITIONS, TRANSFORMS
from twinlog.config.values.warnings import ConfigWarning, WarningCode, warning
from twinlog.errors import ConfigError

_UNREAD: Final = (WarningCode.DEAD_KEY, WarningCode.UNKNOWN_KEY)
_TODO: Final = (
    "remove the transforms, or exclude their topics and run the function in a stream of your own "
    "(docs/transforms.md)"
)
_TODO_NAMES: Final = (
    "let a RegexRouter keep the names instead of the policy, so that the topics belong to this "
    "flow (docs/transforms.md#topics-that-keep-their-names)"
)

_TODO_KEYS: Final = (
    "remove the line, and place the records in a second flow (docs/transforms.md#new-keys)"
)


def audit_transforms(flows: Iterable[FlowConfig]) -> Iterator[ConfigWarning]:
    """Yield a warning for each line of Kafka Connect's transforms that no transform uses."""
    for setting in dict.fromkeys(line for flow in flows for line in flow.transforms.unread):
        what = "no transform of `transforms` reads this line, so it has no effect, as in Connect"
        yield warning(WarningCode.DEAD_KEY, setting, f"{what}; correct or remove the line")


def refuse_transforms(config: MirrorConfig) -> MirrorConfig:
    """Return `config`. Raises ConfigError (TRANSFORMS_NOT_RUN) if it has transforms that do not
    run.
    """
    errors = unrun_transforms(config)
    if errors:
        first, *more = errors
        first.more = tuple(more)
        raise first
    return config


def unrun_transforms(config: MirrorConfig) -> list[ConfigError]:
    """Return an error for each configuration line that prevents transforms from running."""
    errors = [error for flow in config.flows for error in _flow_errors(flow)]
    return errors + [
        _error(warning.file, warning.line, warning.key, "this line of a transform is not read")
        for warning in config.warnings
        if warning.code in _UNREAD and TRANSFORMS in warning.key
    ]


def _flow_errors(flow: FlowConfig) -> Iterator[ConfigError]:
    if not flow.transforms.entries:
        return
    listed = flow.settings[CHAIN if flow.transforms.entries[0].connect else TRANSFORMS]
    if flow.policy.kind is PolicyKind.IDENTITY:
        what = (
            "a mirror transforms only topics to which no other client writes, but the replication "
            "policy of this flow keeps the names of topics, so applications may write to the "
            "remote topics"
        )
        yield _error(listed.file, listed.line, listed.key, what, _TODO_NAMES)
    if flow.target_partitions is TargetPartitions.ALL_KEYED:
        placed = flow.settings[TARGET_PARTITIONS]
        what = "a flow with transforms places no records by key, because they keep their partitions"
        yield _error(placed.file, placed.line, placed.key, what, _TODO_KEYS)


def _error(file: str, line: int | None, key: str, what: str, todo: str = _TODO) -> ConfigError:
    return ConfigError(f"{what}; {todo}", file=file, line=line, key=key, code="TRANSFORMS_NOT_RUN")
