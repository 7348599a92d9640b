"""Java's `RemoteClusterUtils`: functions that each use a temporary MirrorClient."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import overload

from twinlog.client.mirror_client import DEFAULT_TIMEOUT_S, GroupOffsets, MirrorClient


def replication_hops(config: Mapping[str, str], upstream_alias: str) -> int:
    """`MirrorClient.replication_hops`."""
    with MirrorClient(config) as client:
        return client.replication_hops(upstream_alias)


def heartbeat_topics(config: Mapping[str, str]) -> set[str]:
    """`MirrorClient.heartbeat_topics`."""
    with MirrorClient(config) as client:
        return client.heartbeat_topics()


def checkpoint_topics(config: Mapping[str, str]) -> set[str]:
    """`MirrorClient.checkpoint_topics`."""
    with MirrorClient(config) as client:
        return client.checkpoint_topics()


def upstream_clusters(config: Mapping[str, str]) -> set[str]:
    """`MirrorClient.upstream_clusters`."""
    with MirrorClient(config) as client:
        return client.upstream_clusters()


@overload
def translate_offsets(
    config: Mapping[str, str], remote_alias: str, group: str, *, timeout_s: float = ...
) -> GroupOffsets: ...


@overload
def translate_offsets(
    config: Mapping[str, str], remote_alias: str, group: re.Pattern[str], *, timeout_s: float = ...
) -> dict[str, GroupOffsets]: ...


def translate_offsets(
    config: Mapping[str, str],
    remote_alias: str,
    group: str | re.Pattern[str],
    *,
    timeout_s: float = DEFAULT_TIMEOUT_S,
) -> GroupOffsets | dict[str, GroupOffsets]:
    """Return where a group resumes on this cluster. For a compiled pattern, return this for each
    group that matches.
    """
    with MirrorClient(config) as client:
        return client.remote_consumer_offsets(group, remote_alias, timeout_s=timeout_s)
