"""The state of a member of a leadership group, and the metadata with which it describes itself.

Metadata is JSON that other members and other releases read. So each part may be missing, and each
reader of a part returns a default if it is.

    host, pid, started    who the process is, for people
    config                digests of its configuration by key (CONFIG_MISMATCH)
    share                 how many flows it leads, so that processes can share them evenly
    successor             the process to which a leader is about to hand over
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from twinlog.errors import TwinlogError


class MemberRole(StrEnum):
    """What a member currently does."""

    JOINING = "joining"
    LEADING = "leading"
    STANDBY = "standby"
    LEFT = "left"


@dataclass(frozen=True, slots=True, kw_only=True)
class MembershipState:
    """The state of a member. `problem` is why it has not joined."""

    role: MemberRole = MemberRole.JOINING
    member_id: str = ""
    generation: int = -1
    leader: bytes = b""
    """Metadata of the leader. Empty while unknown."""
    members: int = 0
    """Number of members. Only the leader knows it; otherwise 0."""
    others: tuple[bytes, ...] = ()
    """Metadata of the standbys. Only the leader knows it."""
    problem: TwinlogError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A process's share of the work, which a standby reports to the leader."""

    process: str
    leads: int
    """Number of flows that the process leads."""
    is_ready: bool
    """Whether the process could lead this flow."""


def process_metadata(config: Mapping[str, str] | None = None) -> bytes:
    """Return the metadata of this process, with digests of its configuration by key."""
    started = datetime.now(UTC).isoformat(timespec="seconds")
    member = {"host": socket.gethostname(), "pid": os.getpid(), "started": started}
    return with_config(json.dumps(member).encode(), config)


def with_config(metadata: bytes, config: Mapping[str, str] | None) -> bytes:
    """Return the metadata with this configuration, unless it is None."""
    return metadata if config is None else _with_part(metadata, config=dict(config))


def config_of(metadata: bytes) -> Mapping[str, str] | None:
    """Return the digests of the configuration in the metadata, or None."""
    try:
        config = json.loads(metadata)["config"]
    except (ValueError, KeyError, TypeError):
        return None
    return config if isinstance(config, dict) else None


def with_share(metadata: bytes, share: Share) -> bytes:
    return _with_part(metadata, share=[share.process, share.leads, share.is_ready])


def share_of(metadata: bytes) -> Share | None:
    try:
        process, leads, is_ready = json.loads(metadata)["share"]
        return Share(process=str(process), leads=int(leads), is_ready=bool(is_ready))
    except (ValueError, KeyError, TypeError):
        return None


def with_successor(metadata: bytes, process: str) -> bytes:
    """Return a leader's metadata with the process to which it is about to hand over, or empty."""
    return _with_part(metadata, successor=process)


def _with_part(metadata: bytes, **part: object) -> bytes:
    return json.dumps({**json.loads(metadata), **part}).encode()


def successor_of(metadata: bytes) -> str:
    """Return the process to which the leader is about to hand over, or an empty text."""
    try:
        return str(json.loads(metadata).get("successor", ""))
    except (ValueError, AttributeError):
        return ""


def describe_member(metadata: bytes) -> str:
    """Return text like `process 4711 on host-a, since 2026-11-21T04:24:00+00:00`. Unknown metadata
    is returned unchanged.
    """
    if not metadata:
        return "not known yet"
    try:
        member = json.loads(metadata)
        return f"process {member['pid']} on {member['host']}, since {member['started']}"
    except (ValueError, KeyError, TypeError):
        return metadata.decode(errors="replace")
