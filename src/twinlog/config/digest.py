"""Short digests of a flow's effective configuration, by key, for comparison between processes.

Clients that may describe the flow's group can read them. So they contain neither secrets, not even
as digests, nor security keys, which may also name files with different paths on each machine.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final

from twinlog.config.effective import as_written, effective, is_of_connection
from twinlog.config.flow.schema import FlowConfig

DIGEST_CHARACTERS: Final = 8


def digests(config: FlowConfig) -> dict[str, str]:
    """Return digests by key, for values that are not the default."""
    out: dict[str, str] = {}
    for name, found in effective(config).items():
        is_secret = found.setting is not None and found.setting.secret
        if is_secret or is_of_connection(name):
            continue
        digest = hashlib.sha256(found.value.encode()).hexdigest()
        out[as_written(config, name)] = digest[:DIGEST_CHARACTERS]
    return dict(sorted(out.items()))


def differing(ours: Mapping[str, str], theirs: Mapping[str, str]) -> list[str]:
    """Return the keys whose values differ, sorted."""
    return sorted(key for key in {*ours, *theirs} if ours.get(key) != theirs.get(key))
