"""A flow's effective configuration as short digests by key, for other processes to compare.

They are seen by whoever may describe the flow's group, so nothing is in them that says how to enter
a cluster: no secret, not even as a digest, and none of the security keys, which may name files that
lie elsewhere on another machine. Values that are the default are left out, however they are
written.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final

from twinlog.config.client_keys import CONNECTION_KEYS
from twinlog.config.key_types import Kind
from twinlog.config.keys import DEFINITIONS
from twinlog.config.origin import shown_key
from twinlog.config.schema import FlowConfig

DIGEST_CHARACTERS: Final = 8
_ROLES: Final = ("cluster.", "producer.", "consumer.", "admin.")


def digests(config: FlowConfig) -> dict[str, str]:
    """Digest by key, of what is not the default."""
    out: dict[str, str] = {}
    for name, setting in config.settings.items():
        value = _canonical(name, setting.value)
        is_default = name in DEFINITIONS and value == _canonical(
            name, DEFINITIONS[name].default or ""
        )
        if setting.secret or is_default or _without_role(name) in CONNECTION_KEYS:
            continue
        digest = hashlib.sha256(value.encode()).hexdigest()
        out[_as_written(config, name)] = digest[:DIGEST_CHARACTERS]
    return dict(sorted(out.items()))


def differing(ours: Mapping[str, str], theirs: Mapping[str, str]) -> list[str]:
    """Keys whose values differ, sorted."""
    return sorted(key for key in {*ours, *theirs} if ours.get(key) != theirs.get(key))


def _canonical(name: str, value: str) -> str:
    text = value.strip()
    match DEFINITIONS[name].kind if name in DEFINITIONS else None:
        case Kind.BOOLEAN:
            return text.lower()
        case Kind.SHORT | Kind.INT | Kind.LONG:
            return str(int(text)) if text.lstrip("+-").isdecimal() else text
        case Kind.LIST | Kind.NAMES:
            return ",".join(part.strip() for part in text.split(","))
        case _:
            return text


def _without_role(name: str) -> str:
    for side in ("source.", "target."):
        for role in _ROLES:
            if name.startswith(side + role):
                return name.removeprefix(side + role)
    return name


def _as_written(config: FlowConfig, name: str) -> str:
    """`source.consumer.fetch.max.bytes` as people write it: `A.consumer.fetch.max.bytes`."""
    for side, alias in (("source.", config.flow.source), ("target.", config.flow.target)):
        if name.startswith(tuple(side + role for role in _ROLES)):
            name = f"{alias}.{name.removeprefix(side).removeprefix('cluster.')}"
            break
    return shown_key(name)
