"""What a member of a group knows, and how members describe themselves to each other."""

from __future__ import annotations

import json
import os
import socket
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from twinlog.errors import TwinlogError


class Role(StrEnum):
    """What a member does at the moment."""

    JOINING = "joining"
    LEADING = "leading"
    STANDBY = "standby"
    LEFT = "left"


@dataclass(frozen=True, slots=True, kw_only=True)
class MembershipState:
    """What one member knows; `problem` is why it is not (yet) a member."""

    role: Role = Role.JOINING
    member_id: str = ""
    generation: int = -1
    leader: bytes = b""
    """Metadata of the member that leads; empty while that is not known."""
    members: int = 0
    """How many there are; only the leader knows, else 0."""
    problem: TwinlogError | None = None


def who_we_are() -> bytes:
    """This process as the standbys see it."""
    started = datetime.now(UTC).isoformat(timespec="seconds")
    member = {"host": socket.gethostname(), "pid": os.getpid(), "started": started}
    return json.dumps(member).encode()


def describe_member(metadata: bytes) -> str:
    """`process 4711 on host-a, since 2026-11-21T04:24:00+00:00`; what is not ours as it is."""
    if not metadata:
        return "not known yet"
    try:
        member = json.loads(metadata)
        return f"process {member['pid']} on {member['host']}, since {member['started']}"
    except (ValueError, KeyError, TypeError):
        return metadata.decode(errors="replace")
