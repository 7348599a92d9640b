"""Refuses to mirror topics that have transforms, because nothing runs these transforms yet.

The topics' records would be copied as they are, in the clear if a transform was meant to mask them.
So a file with transforms is refused as a whole, also if a line of one is not read because it is in
the wrong place.
"""

from __future__ import annotations

from typing import Final

from twinlog.config.flow.schema import FlowConfig, MirrorConfig
from twinlog.config.keys.key_table import TRANSFORMS
from twinlog.config.values.warnings import WarningCode
from twinlog.errors import ConfigError

_UNREAD: Final = (WarningCode.DEAD_KEY, WarningCode.UNKNOWN_KEY)
_TODO: Final = (
    "remove these lines, or exclude the topics and run the function in a stream of your own "
    "(docs/transforms.md)"
)


def refuse_transforms(config: MirrorConfig) -> MirrorConfig:
    """Return the configuration. Raises ConfigError (TRANSFORMS_NOT_RUN) if it has transforms."""
    found = unrun_transforms(config)
    if found:
        first, *more = found
        first.more = tuple(more)
        raise first
    return config


def unrun_transforms(config: MirrorConfig) -> list[ConfigError]:
    """Return an error for each line that lists transforms, and for those that are not read."""
    lines = {
        flow.settings[TRANSFORMS]: _said(flow) for flow in config.flows if flow.transforms.entries
    }
    found = [_error(one.file, one.line, one.key, what) for one, what in lines.items()]
    return found + [
        _error(one.file, one.line, one.key, "this line is not read, and mirrors run no transforms")
        for one in config.warnings
        if one.code in _UNREAD and TRANSFORMS in one.key
    ]


def _said(flow: FlowConfig) -> str:
    topics = ", ".join(dict.fromkeys(str(one.topics) for one in flow.transforms.entries))
    return f"mirrors do not run transforms yet, so records of {topics} would be copied unchanged"


def _error(file: str, line: int | None, key: str, what: str) -> ConfigError:
    return ConfigError(f"{what}; {_TODO}", file=file, line=line, key=key, code="TRANSFORMS_NOT_RUN")
