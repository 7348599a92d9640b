"""What a member of a group knows, and how members describe themselves to each other."""

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
    """What a member does at the moment."""

    JOINING = "joining"
    LEADING = "leading"
    STANDBY = "standby"
    LEFT = "left"


@dataclass(frozen=True, slots=True, kw_only=True)
class MembershipState:
    """What one member knows; `problem` is why it is not (yet) a member."""

    role: MemberRole = MemberRole.JOINING
    member_id: str = ""
    generation: int = -1
    leader: bytes = b""
    """Metadata of the member that leads; empty while that is not known."""
    members: int = 0
    """How many there are; only the leader knows, else 0."""
    others: tuple[bytes, ...] = ()
    """Metadata of the members that stand by; only the leader knows."""
    problem: TwinlogError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What a process that stands by tells of its part in the work."""

    process: str
    leads: int
    """How many flows."""
    is_ready: bool
    """It could lead this one."""


def who_we_are(config: Mapping[str, str] | None = None) -> bytes:
    """This process as the standbys see it, with digests of its configuration by key."""
    started = datetime.now(UTC).isoformat(timespec="seconds")
    member = {"host": socket.gethostname(), "pid": os.getpid(), "started": started}
    return with_config(json.dumps(member).encode(), config)


def with_config(metadata: bytes, config: Mapping[str, str] | None) -> bytes:
    """The same process with another configuration."""
    member = json.loads(metadata)
    if config is not None:
        member["config"] = dict(config)
    return json.dumps(member).encode()


def config_of(metadata: bytes) -> Mapping[str, str] | None:
    """The digests that a member told of itself; None for one that told none."""
    try:
        config = json.loads(metadata)["config"]
    except (ValueError, KeyError, TypeError):
        return None
    return config if isinstance(config, dict) else None


def with_share(metadata: bytes, share: Share) -> bytes:
    """The same process with another share."""
    member = json.loads(metadata)
    member["share"] = [share.process, share.leads, share.is_ready]
    return json.dumps(member).encode()


def share_of(metadata: bytes) -> Share | None:
    """What a member told of its share; None for one that told none."""
    try:
        process, leads, is_ready = json.loads(metadata)["share"]
        return Share(process=str(process), leads=int(leads), is_ready=bool(is_ready))
    except (ValueError, KeyError, TypeError):
        return None


def with_successor(metadata: bytes, process: str) -> bytes:
    """The same leader, which is about to hand over to a process; empty is to none."""
    member = json.loads(metadata)
    member["successor"] = process
    return json.dumps(member).encode()


def successor_of(metadata: bytes) -> str:
    """The process to which this leader hands over; empty is none."""
    try:
        return str(json.loads(metadata).get("successor", ""))
    except (ValueError, AttributeError):
        return ""


def describe_member(metadata: bytes) -> str:
    """`process 4711 on host-a, since 2026-11-21T04:24:00+00:00`; what is not ours as it is."""
    if not metadata:
        return "not known yet"
    try:
        member = json.loads(metadata)
        return f"process {member['pid']} on {member['host']}, since {member['started']}"
    except (ValueError, KeyError, TypeError):
        return metadata.decode(errors="replace")
