"""Which generation of a flow is ours: a claim in the state topic, and what must be true before.

The first claim of a number in the log wins. So what was checked to decide on it must not have
changed in between: a claim that another process wrote since makes it check again.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
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
from twinlog.mirror.state.generations import (
    CLAIMS,
    WROTE,
    Claim,
    FlowHistory,
    closing,
    superseded,
    winning_claims,
)
from twinlog.mirror.state.intents import INTENT, FlowIntents, flow_intents
from twinlog.mirror.state.mapped import losing_map
from twinlog.model import TopicId, TopicPartition
from twinlog.survey.flow_clusters import source_changed
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
    mine: Claim | None = None
    """The last one that we won."""
    idle: Claim | None = None
    """The one whose set-up failed: no lane ran in it. Only as long as nobody else leads."""
    quiet_at: float = -math.inf
    """Monotonic: from when on no lane of a generation before `mine` can write."""
    _waits: tuple[int, float] = (-1, 0.0)
    """The generation whose lanes are waited for, and until when (monotonic)."""

    @property
    def name(self) -> str:
        return str(self.config.flow)

    def history(self, target: ClusterClient) -> FlowHistory | None:
        """What the state topic says now."""
        return state_rows(target).history(self.name)

    def is_latest(self, target: ClusterClient, generation: int, followed: FlowIntents) -> bool:
        """Whether no newer claim is there than this one, and nothing is wanted but what is followed
        already, as of now. Rows may be gone with their topic, ours among them: whoever leads since
        wrote one to the new topic, and what nobody took back is wanted still.
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
        """All lanes of a generation have drained."""
        _write(target, closing(self.name, generation))

    @contextmanager
    def setting_up(self, claim: Claim) -> Iterator[None]:
        """Of a generation whose lanes begin only behind this: where it fails, it had none."""
        try:
            yield
        except TwinlogError:
            self.idle = claim
            raise

    def end_idle(self, target: ClusterClient) -> None:
        """Whoever leads next need not wait for lanes that never ran. It spares that time and
        nothing else, so nobody waits long for it, and it may fail.
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
            log.info("generation %d could not be noted as ended: %s", idle.generation, error)
        finally:
            target.api_timeout_s = usual_s

    def note_lost_map(
        self, target: ClusterClient, generation: int, targets: Iterable[TopicId]
    ) -> None:
        """Before the map topic is created again: whoever starts a partition by it knows that rows
        of these topics were lost. Written twice it says the same.
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
        """(our generation, the one before it ended in order); `fresh_id`: under a fresh producer
        id.

        `seen`: the history before anything was checked. What a generation claimed since has
        copied was not checked: so none may have been.
        """
        source_id, target_id = ids
        # the map before the claims: a generation that it names was claimed before
        maps = map_reader.read()
        history = self.history(target)
        last = None if history is None else history.latest
        if last != (None if seen is None else seen.latest):
            raise SetupWaiting("another process led this flow meanwhile", flow=self.name)
        if changed := source_changed(self.config, last, source_id):
            raise changed
        self._check_meaning(history, fresh_id=fresh_id)
        # the state topic may have lost its newest claims, or all: rows of the map name theirs
        if last is None:
            maps.require_all()  # they alone say which generations there were
        in_map = maps.newest_generation()
        lost_claims = last is not None and in_map > last.generation
        if lost_claims:
            self.log_once(
                f"{self.name}: {STATE_TOPIC} lost claims of this flow: the offset map knows "
                f"generation {in_map}; it resumes with the next one, under a new producer id"
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
        now_ms = int(time.time() * 1000)
        append_once(target, TopicPartition(STATE_TOPIC, 0), [claim.encode()], now_ms)
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
        self.mine, self.idle = claim, None
        self._remove_earlier(target, superseded(self.name, claim.generation, rows))
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
        """Whether the latest generation has ended, or had no lane while we led."""
        if history is None:
            return False
        return history.is_closed or (self.idle is not None and _is_same(self.idle, history.latest))

    def _check_meaning(self, history: FlowHistory | None, *, fresh_id: bool) -> None:
        """A changed meaning waits until no lane of the old one can still send (H3, a4)."""
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
                "its isolation, start or policy changed, and the process before did "
                "not end in "
                "order: waiting until its lanes have surely stopped",
                flow=self.name,
            )

    def _meaning(self) -> str:
        """What decides which record is which ordinal; a change takes effect at a drained position
        only.
        """
        parts = [
            self.config.isolation_level.value,
            str(self.config.start),
            self.config.policy.kind.value,
            self.config.policy.separator,
            *filter(None, [self.config.policy.custom]),
        ]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def _is_same(one: Claim, other: Claim | None) -> bool:
    return other is not None and (one.generation, one.claimant) == (
        other.generation,
        other.claimant,
    )


def _write(client: ClusterClient, *rows: tuple[bytes, bytes | None]) -> None:
    append_rows(client, TopicPartition(STATE_TOPIC, 0), rows, int(time.time() * 1000))
