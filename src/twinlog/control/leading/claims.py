"""The generations of a flow: their claims in the state topic, and the conditions for writing a
claim.

**Problem.** The group elects a leader, but a leader that was frozen continues without knowing that
its session has ended. So before any other write, a process claims the next generation in a log,
because all processes see a log in the same order (`mirror.state.generations`).

**Invariants**

1. The first claim of a number in the log wins. The claimant reads the log again after its claim,
   and leads only if the first claim of this number is its own.
2. A claim relies on checks that were made before it. If another process has claimed a generation
   since the checks, the claim is not written, and the set-up is repeated.
3. A generation is above every generation in the state topic *and* in the rows of the offset map.
   Both are needed, because either topic may have lost its end. If claims were lost, the flow also
   gets a new producer ID, because the IDs in the lost claims are unknown.
4. The map is read before the claims, so every generation in the rows read was already claimed.
5. A key is never written twice, so compaction keeps the order of claims (`append_once`).
6. A record's ordinal is the number of the flow's records before it. Settings that determine
   ordinals (`_meaning`) change only after all lanes with the old settings have stopped. They have
   stopped if the previous generation was closed, or if the time for late requests is over.

**What may die**

- *The process, before its claim*: nothing happened.
- *After the claim, before a lane*: `end_idle` notes that the generation had no lane. If this note
  is not written, the next leader waits for late requests that do not exist.
- *The response to the claim is lost*: the log is read, and shows whether the claim is first.
- *A frozen process claims late*: the number is taken, or the claim is below a newer one.

**Rejected:** to let the group's election decide alone, because no process can be sure at any moment
that it still leads (`cluster.groups.membership`).
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.logs.producers import init_producer_id
from twinlog.cluster.topics.internal_log import append_once, append_rows
from twinlog.config.flow.schema import FlowConfig
from twinlog.control.leading.lead import SetupWaiting
from twinlog.errors import TwinlogError
from twinlog.lane import late_requests
from twinlog.mirror.names.naming import STATE_TOPIC
from twinlog.mirror.state.copies import losing_map
from twinlog.mirror.state.generations import (
    CLAIMS,
    WROTE,
    Claim,
    FlowHistory,
    closing_row,
    rows_to_remove,
    winning_claims,
)
from twinlog.mirror.state.intents import INTENT, FlowIntents, flow_intents
from twinlog.model import TopicId, TopicPartition
from twinlog.survey.cluster_state import changed_error
from twinlog.survey.map_reader import MapReader
from twinlog.survey.state_reader import state_rows

IDLE_ENDS_WITHIN_S: Final = 1.0

log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class FlowClaims:
    """The claims of one flow, as this process reads and writes them."""

    config: FlowConfig
    claimant: str
    log_once: Callable[[str], None]
    own_claim: Claim | None = None
    """The last claim of this process that won."""
    idle: Claim | None = None
    """The claim whose set-up failed, so it had no lane; valid while no other process leads."""
    quiet_at: float = -math.inf
    """Monotonic time from which no lane of a generation before `own_claim` can write."""
    _waits: tuple[int, float] = (-1, 0.0)
    """The generation whose lanes may still send records by the former settings, and the monotonic
    time after which they have certainly stopped.
    """

    @property
    def name(self) -> str:
        return str(self.config.flow)

    def history(self, target: ClusterClient) -> FlowHistory | None:
        """Return the flow's claims in the state topic, or None if there are none."""
        return state_rows(target).history(self.name)

    def is_latest(self, target: ClusterClient, generation: int, followed: FlowIntents) -> bool:
        """Return True if no newer claim exists, and this process follows all intents, none of which
        pauses or promotes the flow. Missing rows do not matter: the state topic may have been
        deleted. In that case a new leader has written a claim to the new topic, and intents remain
        valid until they are removed.
        """
        rows = state_rows(target).of(self.name, *CLAIMS, INTENT)
        history = winning_claims(rows).get(self.name)
        latest = None if history is None else history.latest
        is_newer = latest is not None and (
            latest.generation > generation
            or (latest.generation == generation and latest.claimant != self.claimant)
        )
        rests = followed.promotion is not None or followed.pause is not None
        return not is_newer and not rests and flow_intents(self.name, rows, followed) == followed

    def end(self, target: ClusterClient, generation: int) -> None:
        """Write to the state topic that all lanes of a generation have drained."""
        _write(target, closing_row(self.name, generation))

    def end_idle(self, target: ClusterClient) -> None:
        """Write to the state topic that a generation had no lanes, so that the next leader does not
        wait for them. This only saves time, so the timeout is short, and an error is only logged.
        """
        idle, self.idle = self.idle, None
        if idle is None or time.monotonic() < self.quiet_at:
            return
        usual_s, until = target.api_timeout_s, time.monotonic() + IDLE_ENDS_WITHIN_S
        target.api_timeout_s = IDLE_ENDS_WITHIN_S / 2
        try:
            history = self.history(target)
            is_latest = history is not None and _is_same(idle, history.latest)
            if is_latest and time.monotonic() < until:
                self.end(target, idle.generation)
        except TwinlogError as error:
            log.info("the end of generation %d could not be stored: %s", idle.generation, error)
        finally:
            target.api_timeout_s = usual_s

    def note_lost_map(
        self, target: ClusterClient, generation: int, targets: Iterable[TopicId]
    ) -> None:
        """Write to the state topic that map rows of these target topics were lost. Call this before
        the map topic is re-created, because any process may then start partitions by the new map.
        Safe to repeat.
        """
        _write(target, losing_map(self.name, generation, targets))

    def claim(
        self,
        target: ClusterClient,
        ids: tuple[str, str],
        map_reader: MapReader,
        *,
        seen: FlowHistory | None,
        fresh_id: bool,
    ) -> tuple[Claim, bool]:
        """Claim a generation. Return the claim, and True if no lane of an earlier generation can
        write any more.

        `fresh_id`: use a new producer ID. `seen`: the history before the checks. Raises
        SetupWaiting if another generation was claimed since then, because its copies were not
        checked.
        """
        source_id, target_id = ids
        # read the map before the claims, so that every generation in it was already claimed
        maps = map_reader.read()
        history = self.history(target)
        last = None if history is None else history.latest
        if last != (None if seen is None else seen.latest):
            raise SetupWaiting("another process led this flow in the meantime", flow=self.name)
        if changed := changed_error(self.config, last, source_id=source_id):
            raise changed
        self._check_meaning(history, fresh_id=fresh_id)
        # the state topic may have lost its newest or all claims; the map's rows show their
        # generations
        if last is None:
            maps.require_all()  # without claims, only the maps show which generations there were
        in_map = maps.newest_generation()
        lost_claims = last is not None and in_map > last.generation
        if lost_claims:
            self.log_once(
                f"{self.name}: {STATE_TOPIC} lost claims of this flow: the offset map has "
                f"generation {in_map}. The flow resumes with the next generation, under a new "
                "producer id"
            )
        before = max(in_map, -1 if last is None else last.generation)
        claim = Claim(
            flow=self.name,
            generation=before + 1,
            claimant=self.claimant,
            producer_id=init_producer_id(target).producer_id
            if last is None or fresh_id or lost_claims
            else last.producer_id,
            meaning=self._meaning(),
            host=socket.gethostname(),
            pid=os.getpid(),
            started_ms=int(time.time() * 1000),
            source_cluster_id=source_id,
            target_cluster_id=target_id,
        )
        append_once(target, TopicPartition(STATE_TOPIC, 0), [claim.encode()])
        rows = state_rows(target).of(self.name, *CLAIMS, WROTE)
        after = winning_claims(rows).get(self.name)
        won = None if after is None else after.latest
        if not _is_same(claim, won):
            raise SetupWaiting(f"another process claimed generation {claim.generation} first")
        is_first = before < 0 and history is None
        if lost_claims or not (is_first or self._is_known(history)):
            self.quiet_at = time.monotonic() + late_requests.wait_s()
        elif is_first or (history is not None and history.is_closed):
            self.quiet_at = -math.inf
        self.own_claim, self.idle = claim, None
        self._remove_earlier(target, rows_to_remove(self.name, claim.generation, rows))
        return claim, time.monotonic() >= self.quiet_at

    def _remove_earlier(
        self, target: ClusterClient, rows: Sequence[tuple[bytes, bytes | None]]
    ) -> None:
        """Remove earlier claims. If that fails, the next claimant tries again."""
        try:
            _write(target, *rows)
        except TwinlogError as error:
            log.info("%s: earlier claims could not be removed: %s", self.name, error)

    def _is_known(self, history: FlowHistory | None) -> bool:
        """Return True if the latest generation was closed, or its set-up failed in this process."""
        if history is None:
            return False
        return history.is_closed or (self.idle is not None and _is_same(self.idle, history.latest))

    def _check_meaning(self, history: FlowHistory | None, *, fresh_id: bool) -> None:
        """Raise SetupWaiting if the changed settings give records other ordinals while a lane with
        the former settings may still send. An ordinal is the number of the flow's records before a
        record, and its sequence.
        """
        if history is None or history.latest is None or history.is_closed:
            return
        if self._is_known(history) and time.monotonic() >= self.quiet_at:
            return
        if history.latest.meaning == self._meaning() and not fresh_id:
            return
        if self._waits[0] != history.latest.generation:
            self._waits = history.latest.generation, time.monotonic() + late_requests.wait_s()
        if time.monotonic() < self._waits[1]:
            raise SetupWaiting(
                "the flow's isolation level, start or policy has changed, and the previous process "
                "was not shut down cleanly: waiting until that process's lanes have certainly "
                "stopped",
                flow=self.name,
            )

    def _meaning(self) -> str:
        """Return a digest of the settings that determine each record's ordinal (number of the
        flow's records before it). A change of these settings takes effect only after all lanes have
        drained.
        """
        parts = [
            self.config.isolation_level.value,
            str(self.config.start),
            self.config.policy.kind.value,
            self.config.policy.separator,
            *filter(None, [self.config.policy.custom, self.config.transforms.digest]),
        ]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def _is_same(claim: Claim, other: Claim | None) -> bool:
    return other is not None and (claim.generation, claim.claimant) == (
        other.generation,
        other.claimant,
    )


def _write(client: ClusterClient, *rows: tuple[bytes, bytes | None]) -> None:
    append_rows(client, TopicPartition(STATE_TOPIC, 0), rows)
