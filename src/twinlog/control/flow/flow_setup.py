"""Sets up a flow before it copies its first record: the lead, a generation, topics.

Each step can be repeated, and the process can die after any step:

1. Join the consumer group on the state topic: one driver leads, the others wait.
2. Read the state topic and write a claim for the next generation; the first claim in the log wins.
3. Take the producer ID of the flow's last generation, or a new one. The claim contains the ID, so
   the ID is recorded before its first use.
4. Determine the target's capabilities (`survey.capabilities`) and its producer expiry.
5. Discover and create topics; with `--once`, the copy ends at the current end offsets.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Final

from twinlog.cluster.client import API_TIMEOUT_S, ClusterClient
from twinlog.cluster.groups.membership import Membership
from twinlog.cluster.logs.producers import init_producer_id
from twinlog.cluster.logs.raw_log import produce_batch
from twinlog.cluster.net.metadata import Operation
from twinlog.cluster.net.settings import ClusterSettings
from twinlog.cluster.topics.cluster_info import producer_expiry
from twinlog.cluster.topics.internal_log import ensure_compacted_topic
from twinlog.cluster.topics.topic_admin import ensure_permanent_topic
from twinlog.config.flow.offset_storage import OffsetStorage
from twinlog.config.flow.schema import FlowConfig, PolicyKind
from twinlog.control.adopt.adoption import TakeOver
from twinlog.control.duties.acl_sync import acls_of_new
from twinlog.control.duties.handed_topics import HandedTopics
from twinlog.control.flow.noted_transforms import note_transforms, with_noted_transforms
from twinlog.control.leading.claims import FlowClaims
from twinlog.control.leading.lead import (
    Fenced,
    SetupWaiting,
    StandingBy,
    join_election,
    wait_to_lead,
)
from twinlog.control.loops.guard import LoopGuard
from twinlog.control.loops.neighbours import SiblingFlows
from twinlog.control.risk.source_watch import SourceQueries
from twinlog.errors import Fate, FlowError, NotLeader, TwinlogError, Unauthorized
from twinlog.flow_log import FlowLog
from twinlog.lane import late_requests
from twinlog.lane.messages import Work
from twinlog.mirror.map.offset_map import MAP_PARTITIONS
from twinlog.mirror.names.naming import (
    STATE_TOPIC,
    DefaultReplicationPolicy,
    dead_letter_topic,
    map_topic_of,
)
from twinlog.mirror.plan import PartitionPlan
from twinlog.mirror.state.copies import MappedCopies
from twinlog.mirror.state.generations import OF_PRODUCERS, Claim, fan_producers, producer_row
from twinlog.mirror.state.intents import FlowIntents, Intent, promoted
from twinlog.model import TopicPartition
from twinlog.survey.capabilities import NO_CAPABILITIES, Capabilities, ensure_probe_topic, probe
from twinlog.survey.discovery import Discovery, TopicProblem, discover
from twinlog.survey.ends import with_ends
from twinlog.survey.map_reader import MapReader, lacks_map, require_nothing_copied
from twinlog.survey.newcomers import TopicSurveys
from twinlog.survey.rights import denied_error, is_permitted
from twinlog.survey.state_reader import StateNews, StateReader, has_state, state_rows, with_rows
from twinlog.wire.record_batch import Codec
from twinlog.wire.records import Record, encode_batch

# Producer IDs for source partitions that go to several target partitions by key.
#
# All source partitions of such a topic write to each of its target partitions, so each source
# partition needs its own producer ID. The IDs are stored permanently in the state topic. The first
# record in the log that assigns an ID to a partition number wins, whichever process wrote the
# record. So a process that wrongly assumes that it leads uses the same IDs. Every attempt writes
# under new keys. The rows of an attempt without a response may still arrive. With equal keys,
# compaction would then remove the first record because of a later attempt.

TRIES: Final = 5
PAUSE_S: Final = 0.5


def known_fan_producers(target: ClusterClient) -> dict[tuple[str, int], int]:
    """Return the producer IDs of all flows, by flow and number of the source partition."""
    return fan_producers(state_rows(target).of_kinds(*OF_PRODUCERS))


def with_fan_producers(
    target: ClusterClient, flow: str, plans: Iterable[PartitionPlan]
) -> list[PartitionPlan]:
    """Return the plans with the producer IDs of keyed partitions. New IDs are recorded before
    they are used. Raises TwinlogError.
    """
    known = list(plans)
    wanted = {plan.source.partition for plan in known if plan.targets}
    if not wanted:
        return known
    ids = _ids(target, flow, wanted)
    return [
        replace(plan, producer_id=ids[plan.source.partition]) if plan.targets else plan
        for plan in known
    ]


def _ids(target: ClusterClient, flow: str, wanted: set[int]) -> dict[int, int]:
    fresh: dict[int, int] = {}
    for attempt in range(TRIES):
        producers = known_fan_producers(target)
        ids = {number: producers[flow, number] for number in wanted if (flow, number) in producers}
        missing = wanted - ids.keys()
        if not missing:
            return ids
        for number in missing - fresh.keys():
            fresh[number] = init_producer_id(target).producer_id
        try:
            _assign_producer_ids(target, flow, {number: fresh[number] for number in missing})
        except TwinlogError as error:
            if error.fate is not Fate.RETRIABLE or attempt == TRIES - 1:
                raise
            time.sleep(PAUSE_S)
    raise FlowError(
        f"the flow's producer ids were written to {STATE_TOPIC}, but the topic does not have them",
        flow=flow,
        code="STATE_CORRUPT",
        fate=Fate.RETRIABLE,
    )


def _assign_producer_ids(target: ClusterClient, flow: str, ids: dict[int, int]) -> None:
    now_ms, claimant = int(time.time() * 1000), uuid.uuid4().hex
    rows = [producer_row(flow, number, claimant, ids[number]) for number in sorted(ids)]
    records = [
        Record(offset=index, timestamp=now_ms, key=key, value=value, headers=())
        for index, (key, value) in enumerate(rows)
    ]
    # not retried: of two rows with the same key, compaction keeps only the second one, which may be
    # after a row of another process
    produce_batch(target, TopicPartition(STATE_TOPIC, 0), encode_batch(records, codec=Codec.NONE))


# The two clusters of a flow: its configuration, the settings of each of its clients, and the
# connections for occasional requests.

STATE_WITHIN_S: Final = 5.0


@dataclass(slots=True, kw_only=True, eq=False)
class FlowClusters:
    """Settings of one flow and its clients. Sends no requests."""

    config: FlowConfig
    policy: DefaultReplicationPolicy
    source: ClusterSettings
    target: ClusterSettings
    lane_source: ClusterSettings
    lane_target: ClusterSettings

    @property
    def name(self) -> str:
        return str(self.config.flow)

    def clusters(self) -> tuple[ClusterSettings, ...]:
        """Return the settings of all clients: first the driver's, then the lanes'."""
        return self.source, self.target, self.lane_source, self.lane_target

    @property
    def is_identity(self) -> bool:
        return self.config.policy.kind is PolicyKind.IDENTITY

    @property
    def lanes_share_user(self) -> bool:
        """Return True if lanes connect to the target as the same user as the driver."""
        own_time = self.target.request_timeout_ms
        return replace(self.lane_target, request_timeout_ms=own_time) == self.target


class FlowClients:
    """The driver's clients for both clusters of a flow, opened on first use. Not thread-safe."""

    def __init__(self, ends: FlowClusters) -> None:
        self._ends = ends
        self._open: dict[str, ClusterClient] = {}

    @property
    def source(self) -> ClusterClient:
        return self._client("source", self._ends.source)

    @property
    def target(self) -> ClusterClient:
        return self._client("target", self._ends.target)

    @property
    def of_map(self) -> ClusterClient:
        """The target client for the offset map."""
        return self._client("map", self._ends.target)

    @property
    def of_state(self) -> ClusterClient:
        """The target client for the state topic, which is read every second."""
        return self._client("state", self._ends.target, STATE_WITHIN_S)

    def both(self) -> tuple[ClusterClient, ClusterClient]:
        return self.source, self.target

    def _client(
        self, what: str, settings: ClusterSettings, within_s: float = API_TIMEOUT_S
    ) -> ClusterClient:
        if what not in self._open:
            self._open[what] = ClusterClient(settings, api_timeout_s=within_s)
        return self._open[what]

    def close(self) -> None:
        """Close all clients; later uses open new ones."""
        for client in self._open.values():
            client.close()
        self._open = {}


# Facts about the target that a flow needs before it writes: its own topics and the permissions on
# them, the brokers' capabilities, and when brokers drop producer IDs.


@dataclass(slots=True, kw_only=True, eq=False)
class TargetFacts:
    """Determines facts about one flow's target, and creates the flow's own topics there."""

    ends: FlowClusters = field(repr=False)
    log_once: Callable[[str], None]
    _capabilities: Capabilities | None = None

    def own_topic(self, target: ClusterClient, name: str, partitions: int) -> int:
        """Create an own topic if it is missing. Return its partition count. Raises Unauthorized."""
        ends = self.ends

        def unseen(error: Unauthorized) -> None:
            self.log_once(
                f"{ends.name}: whether {name} has cleanup.policy=compact is unknown, and without "
                f"it the flow's state would be deleted after a time: {error}"
            )

        count = ensure_compacted_topic(
            target,
            name,
            partitions=partitions,
            replication_factor=ends.config.state_topic_replication_factor,
            on_unseen=unseen,
        )
        # check here: otherwise a start without these permissions would succeed on an empty topic
        metadata = target.metadata([name])
        for right in (Operation.READ, Operation.WRITE):
            is_ours = right is Operation.READ or name == STATE_TOPIC or ends.lanes_share_user
            if is_ours and not is_permitted(metadata, name, right):
                raise denied_error(ends.config.flow.target, right.name, name)
        return count

    def own_map(self, clients: FlowClients) -> MapReader:
        """Create the offset map's topic if missing, and return its reader. Raises Unauthorized."""
        name = map_topic_of(self.ends.config.flow)
        return MapReader(clients.of_map, name, self.own_topic(clients.target, name, MAP_PARTITIONS))

    def own_dead_letters(self, target: ClusterClient) -> str:
        """Create the topic for records on which a transform fails, if it is missing. Return its
        name, or an empty text if such records are not quarantined.
        """
        config = self.ends.config
        name = dead_letter_topic(config.flow, config.transforms)
        if name:
            factor = config.state_topic_replication_factor
            ensure_permanent_topic(target, name, replication_factor=factor)
        return name

    def capabilities(self, target: ClusterClient) -> Capabilities:
        """Return the brokers' capabilities. They are tested only once."""
        if self._capabilities is None:
            probed = self._capabilities = self._probe(target)
            if probed is not NO_CAPABILITIES and probed.missing:
                FlowLog(log, self.ends.name).warning(
                    "the target lacks %s: the guarantee is '%s'",
                    ", ".join(probed.missing),
                    probed.guarantee,
                )
        return self._capabilities

    def _probe(self, target: ClusterClient) -> Capabilities:
        try:
            ensure_probe_topic(target, self.ends.config.state_topic_replication_factor)
            return probe(target)
        except Unauthorized as error:
            self.log_once(
                f"{self.ends.name}: the target's capabilities are not tested, so the guarantee is "
                f"'{NO_CAPABILITIES.guarantee}' and every partition counts as unprotected: {error}"
            )
            return NO_CAPABILITIES

    def expiry_ms(self, target: ClusterClient) -> int | None:
        """Return the brokers' shortest expiry of producer IDs, or the configured one if unknown."""
        configured = self.ends.config.producer_id_expiration_ms
        try:
            shortest_ms = producer_expiry(target)
        except Unauthorized as error:
            if configured is None:
                self.log_once(
                    f"{self.ends.name}: every partition counts as unprotected (one batch in flight "
                    f"for a minute after a problem): {error}; or set "
                    "twinlog.target.producer.id.expiration.ms to the brokers' "
                    "producer.id.expiration.ms"
                )
            return configured
        return configured if shortest_ms is None else shortest_ms


log = logging.getLogger(__name__)

REACHED_WITHIN_S: Final = 5.0
END_WAITS_S: Final = 0.5
"""Seconds that a generation's end waits for a running discovery, before both run in parallel."""


@dataclass(slots=True, kw_only=True)
class PreparedFlow:
    """A flow that is ready to start."""

    work: Work
    generation: int
    plans: list[PartitionPlan]
    problems: list[TopicProblem]
    source_topics: Mapping[str, int]
    """Partition counts of all topics that the source lists."""
    clean: bool
    """True if the previous generation was closed, so that none of its requests is pending."""
    guarantee: str
    setup: FlowSetup
    map_reader: MapReader
    news: StateNews
    """The rows of the state topic when the flow was set up."""
    read_news: Callable[[], StateNews]
    news_at_hand: Callable[[], StateNews | None]
    """Returns the same as `read_news`, or None if reading might block."""

    @property
    def lost_lead(self) -> bool:
        membership = self.setup.membership
        return membership is not None and not membership.is_leading

    def discover(self) -> list[PartitionPlan]:  # called again later, for new topics and partitions
        discovery = self.setup.discover()
        self.problems, self.source_topics = discovery.problems, discovery.partition_counts
        return discovery.plans

    def close(self, *, drained: bool) -> None:
        """Give up the lead. If all lanes have drained, first write their end to the target."""
        self.setup.close(self.generation if drained else None)

    def end_generation(self, *, drained: bool, successor: FlowSetup | None) -> None:
        """End this generation but keep the membership, for the successor or to lead again. After a
        lost lead, this process can lead again immediately if only the coordinator was down, and
        still knows this member.
        """
        self.setup.end_generation(self.generation if drained else None, successor)


@dataclass(slots=True, kw_only=True, eq=False)
class FlowSetup(FlowClusters):
    """Sets up one flow. The object is kept between attempts."""

    neighbours: SiblingFlows = field(default_factory=SiblingFlows)
    """All flows of this process, including this one."""
    adopts: OffsetStorage | None = None
    """The offset storage of the MirrorMaker 2 whose work this flow adopts, or None."""
    membership: Membership | None = None
    surveys: TopicSurveys = field(default_factory=TopicSurveys)
    released: frozenset[str] = frozenset()
    """Topics that operators have released from the flow."""
    handed: HandedTopics | None = None  # topics that lanes copy; None with `--once`
    leadership: tuple[int, FlowIntents] | None = (
        None  # this generation, and the intents that it follows
    )
    claims: FlowClaims = field(init=False)
    queries: SourceQueries = field(init=False)
    clients: FlowClients = field(init=False)
    facts: TargetFacts = field(init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _has_resigned: bool = False
    _has_ended: bool = False
    _mapped: MappedCopies = field(default_factory=MappedCopies)
    _logged: set[str] = field(default_factory=set)
    _is_admitted: bool = False
    _take_over: TakeOver | None = None

    def __post_init__(self) -> None:
        self.queries = SourceQueries(self.source, self.config)
        self.clients = FlowClients(self)
        self.facts = TargetFacts(ends=self, log_once=self.log_once)
        self.claims = FlowClaims(
            config=self.config, claimant=uuid.uuid4().hex, log_once=self.log_once
        )

    @property
    def guard(self) -> LoopGuard:
        """The checks that keep the flow from copying in a loop, or twice."""
        return LoopGuard(
            config=self.config,
            policy=self.policy,
            neighbours=self.neighbours,
            log_once=self.log_once,
            handed=self.handed,
            still_leads=self._still_leads,
            before_begin=self._give_acls,
            # topics to adopt have records of MirrorMaker 2 and no row yet, so the guard would
            # refuse them
            refuses_foreign_topics=self.adopts is None,
        )

    # -- steps

    def prepare(self, *, once: bool) -> PreparedFlow:
        """Run all steps. Raises the error that prevents the start."""
        with self._lock:
            source, target = self.clients.both()
            self.handed, self.leadership = None if once else HandedTopics(), None
            self._has_ended = False
            self.queries = SourceQueries(self.source, self.config)
            news_of = StateReader(self.clients.of_state, self.name)
            # check for a promotion before the source is queried, because the source of a promoted
            # flow may no longer exist
            if has_state(target, within_s=REACHED_WITHIN_S):
                self._stay_fenced(news_of.read(), once=once)
            ids = self._contact_clusters(once=once)
            news = news_of.read()
            pause, self.released = news.intents.pause, news.intents.unmirrored_topics
            self._mapped = news.mapped
            if pause is not None and (once or self.adopts is not None):
                raise _paused_error(self.name, pause, once=once)
            history = self.claims.history(target)
            map_topic = map_topic_of(self.config.flow)
            if lacks_map(target, map_topic, history):
                known = discover(self.config, self.policy, source, target, create=False)
                require_nothing_copied(target, map_topic, known.plans)
            map_reader = self.facts.own_map(self.clients)
            take_over = self._take_over = TakeOver(
                flow=self.config, storage=self.adopts, clients=self.clients.both,
                map_reader=map_reader, log_once=self.log_once, once=once,
            )  # fmt: skip
            left = [] if self.adopts is None else self._discover(source, target).plans
            adoption = take_over.survey(left)
            claim, clean = self.claims.claim(
                target, ids, map_reader, seen=history, fresh_id=adoption.begins_again
            )
            # read again after the claim: a promotion writes its row and then reads claims, so at
            # least one of the two finds the other. While lanes of the previous generation may still
            # write, the promotion waits for them
            ended = claim.generation if clean else None
            self._stay_fenced(news_of.read(), once=once, ended=ended)
            self.leadership = claim.generation, news.intents
            take_over.write(adoption, claim)
            try:
                capabilities = self.facts.capabilities(target)
                discovery = self._discover(source, target, create=pause is None)
                if once:
                    discovery.fail_absent(self.config)
                    discovery.plans = with_ends(source, self.config, discovery.plans)
                work = self._work_of_lead(claim, target, map_reader, discovery, capabilities)
            except TwinlogError:
                self.claims.idle = claim  # no lane has run
                raise
            return PreparedFlow(
                work=work,
                generation=claim.generation,
                plans=discovery.plans,
                problems=discovery.problems,
                source_topics=discovery.partition_counts,
                clean=clean,
                guarantee=capabilities.guarantee,
                setup=self,
                map_reader=map_reader,
                news=news,
                read_news=news_of.follow,
                news_at_hand=news_of.at_hand,
            )

    def log_once(self, line: str) -> None:
        """Log a line once in the life of this process, for problems that stop nothing."""
        if line not in self._logged:
            self._logged.add(line)
            log.warning("%s", line, extra={"flow": self.name})

    def _contact_clusters(self, *, once: bool) -> tuple[str, str]:
        """Contact both clusters and lead the flow. Return the IDs of both clusters."""
        source, target = self.clients.both()
        # the first timeout is short, so that an outage is reported soon; the set-up is retried
        source_id = source.metadata([], timeout_s=REACHED_WITHIN_S).cluster_id or ""
        target_id = target.metadata([], timeout_s=REACHED_WITHIN_S).cluster_id or ""
        if not self._is_admitted:
            self.guard.before_anything(source, target)
            # a standby does not repeat this check, because each discovery does
            self._is_admitted = True
        self.facts.own_topic(target, STATE_TOPIC, 1)
        note_transforms(target, self.name, self.config.transforms)
        self._lead(once=once)
        return source_id, target_id

    def _lead(self, *, once: bool) -> None:
        self.membership = join_election(self.membership, self.target, self.config)
        self._require_not_resigned(
            self.membership
        )  # `resign` may have been called before the membership existed
        try:
            wait_to_lead(self.membership, self.config, once=once)
        except (StandingBy, NotLeader):
            # not valid any more: the new leader may claim the number of the idle claim
            self.claims.idle = None
            raise
        self._require_not_resigned(self.membership)

    def _require_not_resigned(self, membership: Membership) -> None:
        if self._has_resigned:
            membership.leave()
            raise StandingBy("standing by: this process has left the flow's group")

    def _still_leads(self, target: ClusterClient) -> bool:
        """Return True if this process leads. Another process leads only after its own claim."""
        if self._has_ended:
            return False
        if self.leadership is not None and not self.claims.is_latest(target, *self.leadership):
            return False
        return self.membership is None or self.membership.is_leading

    def _give_acls(self, remotes: Mapping[str, str]) -> None:
        for line in acls_of_new(self.config, remotes, *self.clients.both()):
            self.log_once(line)

    def discover(self) -> Discovery:
        """Discover the current topics again after the set-up."""
        with self._lock:
            try:
                source, target = self.clients.both()
                # no error here, because partitions that need this topic report that it is missing
                with suppress(TwinlogError):
                    self.facts.own_dead_letters(target)
                return self._discover(source, target)
            finally:
                if self._has_ended:
                    self._disconnect()

    def set_released(self, topics: frozenset[str]) -> None:
        self.released = topics

    def _stay_fenced(self, news: StateNews, *, once: bool, ended: int | None = None) -> None:
        """If the flow was promoted, close the generation `ended` (if None, an idle one) and raise
        FENCED.
        """
        promotion = news.intents.promotion
        if promotion is None:
            return
        if ended is None:
            self.claims.end_idle(self.clients.target)
        else:
            self.claims.end(self.clients.target, ended)
        if self.membership is not None:
            self.membership.leave()
            self.membership = None
        message = promoted(self.name, promotion)
        raise FlowError(message, code="FENCED") if once else Fenced(message)

    def _discover(
        self, source: ClusterClient, target: ClusterClient, *, create: bool = True
    ) -> Discovery:
        """Discover topics. Without `create` topics are only checked, and nothing is written."""
        discovery = discover(
            replace(self.config, released=self.released),
            self.policy,
            source,
            target,
            create=create,
            lanes_share_user=self.lanes_share_user,
            guard=self.guard if create else None,
        )
        for line in discovery.notes:
            self.log_once(line)
        if create and self.config.start.new_from_earliest:
            self.surveys.recall(self.name, source, target, discovery.source_topics)
        plans = self.surveys.marked(discovery.plans, discovery.source_topics)
        plans = with_fan_producers(target, self.name, plans) if create else plans
        discovery.plans = with_rows(plans, self._mapped)
        if self._take_over is not None:
            discovery.plans = self._take_over.judge(discovery.plans)
        if create:
            transforms = self.config.transforms
            plans = with_noted_transforms(target, self.name, transforms, discovery.plans)
            discovery.plans = plans
        return discovery

    def _work_of_lead(
        self,
        claim: Claim,
        target: ClusterClient,
        map_reader: MapReader,
        discovery: Discovery,
        capabilities: Capabilities,
    ) -> Work:
        expiry = self.facts.expiry_ms(target) if capabilities.producers_listed else None
        letters = self.facts.own_dead_letters(target)
        topics = {plan.target.topic for plan in discovery.plans} | ({letters} if letters else set())
        return Work(
            flow=self.name,
            source=self.lane_source,
            target=self.lane_target,
            producer_id=claim.producer_id,
            is_ours_alone=not self.is_identity,
            isolation=self.config.isolation_level,
            producer_expiry_ms=expiry,
            known_producers=tuple(sorted(state_rows(target).producers)),
            map_topic=map_reader.topic,
            map_topic_id=map_reader.topic_id,
            map_partitions=map_reader.partitions,
            source_topics=tuple(sorted({plan.source.topic for plan in discovery.plans})),
            target_topics=tuple(sorted(topics)),
            memory_bytes=self.config.lanes.memory_bytes,
            tuning=self.config.tuning,
            has_transforms=bool(self.config.transforms.entries),
            dead_letters=letters,
            accept_source_loss=self.config.accept_source_loss,
            has_budget=self.config.lanes.max_bytes_per_second is not None,
            silence_ms=late_requests.SILENCE_MS,
        )

    def resign(self) -> None:
        """Never lead again. A standby leaves the group immediately. Thread-safe.

        The lock is not acquired, because a set-up holds it while it waits to lead. This method sets
        the flag and then reads the role; a set-up reads its role and then the flag. So if a set-up
        leads, either the set-up finds the flag before it claims anything, or this method finds the
        set-up leading, and `close` ends it. Nothing is claimed after the group was left.
        """
        self._has_resigned = True
        membership = self.membership
        if membership is not None and not membership.is_leading:
            membership.leave()

    def close(self, generation: int | None) -> None:
        """Write the end of a drained generation, or, if `generation` is None, of one in which no
        lane ran. Then leave the group, and close the connections.
        """
        with self._closing_client() as target:
            try:
                if generation is None:
                    self.claims.end_idle(target)
                else:
                    self.claims.end(target, generation)
            finally:
                if self.membership is not None:
                    self.membership.leave()
                    self.membership = None

    def end_generation(self, generation: int | None, successor: FlowSetup | None) -> None:
        """End the generation like `close`, but keep the membership, or pass it to the successor."""
        with self._closing_client() as target:
            try:
                if generation is not None:
                    self.claims.end(target, generation)
            finally:
                if successor is not None:
                    self.hand_on(successor)

    @contextmanager
    def _closing_client(self) -> Iterator[ClusterClient]:
        """Yield a client of the target with which the end of a generation is written.

        If a discovery is running, a separate client is used, because the discovery may wait a
        minute for a source that is down. If the end were written too late, the flow would have no
        leader for a session timeout. The discovery changes nothing any more, and closes the
        connections at its end. If a set-up waits to lead, wait for the set-up, because it leaves
        the group itself (`resign`).
        """
        self._has_ended = True
        is_free = self._lock.acquire(timeout=END_WAITS_S)
        if not is_free and self.leadership is not None:
            with ClusterClient(self.target) as client:
                yield client
            return
        if not is_free:
            self._lock.acquire()
        try:
            yield self.clients.target
        finally:
            self._disconnect()
            self._lock.release()

    def hand_on(self, successor: FlowSetup) -> None:
        """Pass the membership and the surveys to the set-up under a changed configuration."""
        if successor.source == self.source:
            successor.surveys = self.surveys
        if self.membership is not None:
            if successor.target == self.target:
                successor.membership = self.membership
            else:
                self.membership.leave()
            self.membership = None

    def _disconnect(self) -> None:
        self.queries.close()
        self.clients.close()
        # the guard checks again: after reconnecting, addresses may lead to other clusters
        self._is_admitted = False


def _paused_error(flow: str, pause: Intent, *, once: bool) -> TwinlogError:
    """Return the error for a paused flow that cannot start, with `--once` or before an adoption."""
    message = f"{flow} is paused {pause}: undo this with `twinlog flow resume`"
    if once:
        return FlowError(message, code="PAUSED")
    return SetupWaiting(f"{message}; the take-over from MirrorMaker 2 continues then")
