"""Why the keys of the process and of Connect's workers mean nothing here, or what they do."""

from __future__ import annotations

from typing import Final

from twinlog.config.keys.client_keys import words
from twinlog.config.keys.worker_keys import PROCESS_KEYS, TOP_LEVEL_WORKER_PREFIXES, WORKER_KEYS

_GROUPS: Final = {
    "clusters": "acts: the aliases; every ordered pair of them may be a flow",
    "dedicated.mode.enable.internal.rest": "processes find each other through the target",
    "listeners": "acts: HTTP is served at the first http:// one; where others would reach it and "
    "nothing says who may come in, at its port of 127.0.0.1; `twinlog mirror --listen` wins",
    "admin.listeners rest.advertised.host.name rest.advertised.listener "
    "rest.advertised.port response.http.headers.config access.control.allow.methods "
    "access.control.allow.origin rest.extension.classes ssl.client.auth": "MirrorMaker 2's REST; "
    "`twinlog mirror --listen` says where HTTP is served",
    "exactly.once.source.support": "every copy is exactly once, whatever it says",
    "offset.flush.interval.ms offset.flush.timeout.ms": "there is nothing to flush: positions are "
    "in the target itself",
    "offset.storage.partitions offset.storage.replication.factor": (
        "positions are in the target itself"
    ),
    "offset.storage.topic": "positions are in the target itself; where MirrorMaker 2 left its own, "
    "for `twinlog mirror --adopt-mm2`",
    "config.storage.replication.factor config.storage.topic status.storage.partitions "
    "status.storage.replication.factor status.storage.topic": "Connect's own topics are not needed",
    "group.id": "a flow's processes have a group of Twinlog's own; with the target's alias, the "
    "one of the workers that `twinlog mirror --adopt-mm2` takes over from",
    "client.id": "always twinlog-SOURCE->TARGET",
    "session.timeout.ms heartbeat.interval.ms rebalance.timeout.ms worker.sync.timeout.ms "
    "worker.unsync.backoff.ms": "membership has its own times here",
    "scheduled.rebalance.max.delay.ms": "another process takes over within seconds",
    "task.shutdown.graceful.timeout.ms": "a stop waits for what was sent already",
    "topic.creation.enable": "see the table of flows",
    "connector.client.config.override.policy": "overrides are always allowed",
    "key.converter value.converter header.converter key.converter.plugin.version "
    "value.converter.plugin.version header.converter.plugin.version": "bytes are never converted",
    "plugin.discovery plugin.path": "Java classes",
    "metric.reporters metrics.num.samples metrics.recording.level metrics.sample.window.ms": (
        "metrics are those of docs/monitoring.md"
    ),
    "connect.protocol inter.worker.key.generation.algorithm inter.worker.key.size "
    "inter.worker.key.ttl.ms inter.worker.signature.algorithm "
    "inter.worker.verification.algorithms topic.tracking.allow.reset topic.tracking.enable": (
        "Connect only"
    ),
}

WORKER_MEANINGS: Final = {
    name: meaning for names, meaning in _GROUPS.items() for name in words(names)
}

_OF_PREFIX: Final = "of Connect's workers, which do not exist here"


def worker_meaning(name: str, *, everywhere: bool) -> str | None:
    """Why a worker's or the process's key means nothing here; None for any other key.

    `everywhere`: it stands without an alias, where whole families of keys go to the workers.
    """
    if name in WORKER_MEANINGS and name in WORKER_KEYS | PROCESS_KEYS:
        return WORKER_MEANINGS[name]
    if name.startswith(("listeners.https.", "admin.listeners.https.")):
        return WORKER_MEANINGS["admin.listeners"]
    family = everywhere and name.startswith(TOP_LEVEL_WORKER_PREFIXES)
    return _OF_PREFIX if family else None
