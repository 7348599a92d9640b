"""The state of a group member, and the metadata with which members describe themselves."""

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
    """The current role of a member."""

    JOINING = "joining"
    LEADING = "leading"
    STANDBY = "standby"
    LEFT = "left"


@dataclass(frozen=True, slots=True, kw_only=True)
class MembershipState:
    """A member's state. `problem` is why it is not (yet) a member."""

    role: MemberRole = MemberRole.JOINING
    member_id: str = ""
    generation: int = -1
    leader: bytes = b""
    """Metadata of the leading member; empty while unknown."""
    members: int = 0
    """Number of members. Only the leader knows it, else 0."""
    others: tuple[bytes, ...] = ()
    """Metadata of the standby members. Only the leader knows it."""
    problem: TwinlogError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """The share of the work that a standby reports."""

    process: str
    leads: int
    """Number of flows that it leads."""
    is_ready: bool
    """Whether it could lead this one."""


def who_we_are(config: Mapping[str, str] | None = None) -> bytes:
    """Return this process's metadata for the standbys, with digests of its configuration by key."""
    started = datetime.now(UTC).isoformat(timespec="seconds")
    member = {"host": socket.gethostname(), "pid": os.getpid(), "started": started}
    return with_config(json.dumps(member).encode(), config)


def with_config(metadata: bytes, config: Mapping[str, str] | None) -> bytes:
    """Return the metadata with another configuration."""
    member = json.loads(metadata)
    if config is not None:
        member["config"] = dict(config)
    return json.dumps(member).encode()


def config_of(metadata: bytes) -> Mapping[str, str] | None:
    """Return the digests in a member's metadata, or None if there are none."""
    try:
        config = json.loads(metadata)["config"]
    except (ValueError, KeyError, TypeError):
        return None
    return config if isinstance(config, dict) else None


def with_share(metadata: bytes, share: Share) -> bytes:
    """Return the metadata with another share."""
    member = json.loads(metadata)
    member["share"] = [share.process, share.leads, share.is_ready]
    return json.dumps(member).encode()


def share_of(metadata: bytes) -> Share | None:
    """Return the share in a member's metadata, or None if there is none."""
    try:
        process, leads, is_ready = json.loads(metadata)["share"]
        return Share(process=str(process), leads=int(leads), is_ready=bool(is_ready))
    except (ValueError, KeyError, TypeError):
        return None


def with_successor(metadata: bytes, process: str) -> bytes:
    """Return a leader's metadata with the process to which it is about to hand over;
    empty: none.
    """
    member = json.loads(metadata)
    member["successor"] = process
    return json.dumps(member).encode()


def successor_of(metadata: bytes) -> str:
    """Return the process to which this leader hands over; empty: none."""
    try:
        return str(json.loads(metadata).get("successor", ""))
    except (ValueError, AttributeError):
        return ""


def describe_member(metadata: bytes) -> str:
    """Return text like `process 4711 on host-a, since 2026-11-21T04:24:00+00:00`. Foreign metadata
    is returned unchanged.
    """
    if not metadata:
        return "not known yet"
    try:
        member = json.loads(metadata)
        return f"process {member['pid']} on {member['host']}, since {member['started']}"
    except (ValueError, KeyError, TypeError):
        return metadata.decode(errors="replace")
