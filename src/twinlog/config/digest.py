"""A flow's effective configuration as short digests by key, for other processes to compare.

They are seen by whoever may describe the flow's group, so nothing is in them that says how to enter
a cluster: no secret, not even as a digest, and none of the security keys, which may name files that
lie elsewhere on another machine.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final

from twinlog.config.effective import as_written, effective, is_of_connection
from twinlog.config.flow.schema import FlowConfig

DIGEST_CHARACTERS: Final = 8


def digests(config: FlowConfig) -> dict[str, str]:
    """Digest by key, of what is not the default."""
    out: dict[str, str] = {}
    for name, found in effective(config).items():
        is_secret = found.setting is not None and found.setting.secret
        if is_secret or is_of_connection(name):
            continue
        digest = hashlib.sha256(found.value.encode()).hexdigest()
        out[as_written(config, name)] = digest[:DIGEST_CHARACTERS]
    return dict(sorted(out.items()))


def differing(ours: Mapping[str, str], theirs: Mapping[str, str]) -> list[str]:
    """Keys whose values differ, sorted."""
    return sorted(key for key in {*ours, *theirs} if ours.get(key) != theirs.get(key))
