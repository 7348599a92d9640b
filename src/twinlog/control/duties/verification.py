"""Duty: verifies the copy while the mirror runs, with at most 3 % of the mirror's CPU time.

Sections of partitions are read from both logs and compared by the offset map, as `twinlog verify`
does. `sample` compares the newest records of each partition in turn, because brokers still have
them in their page cache. `full` compares everything from the start of both logs. Lanes do not wait
for the duty, because it has its own connections and sends the supervisor only two requests a round.

The CPU time of all rounds is limited to SHARE of the CPU time of the driver and its lanes. A
section that was begun is completed, and the next section waits until the budget allows it. The size
of a section depends on the cost of the previous one, so none takes long. The thread has a lower
priority, so lanes and brokers come first if all cores are busy.

Read quotas are reserved for the copy. Nothing is verified while a limit of the flow or a quota of
either cluster throttles the copy, or within HELD_S after that. A quota counts all reads of the
flow's clients, so each section would slow down the copy.

A difference is compared again, with the current intents and a new read of the map, before it is
reported once, as COPY_DIFFERS. If that is not possible now, a later round compares the section.
Nothing is repaired, and the copy continues.

The duty only reads. A process that dies in a round, or that has lost the lead without knowing, has
changed nothing. Its successor begins again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Final
from weakref import WeakSet

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.topics.configs import may_lack_offsets
from twinlog.codes import FlowState
from twinlog.config.flow.schema import PolicyKind, VerifyMode
from twinlog.control.duties.rounds import Duty, LedFlow, NotPermitted, PartitionView
from twinlog.control.watch.verified import CODE, Verified
from twinlog.errors import PartitionError, Unauthorized
from twinlog.flow_log import FlowLog
from twinlog.mirror.map.translation import Reach, reach_at
from twinlog.mirror.verify.difference import Compared, Difference
from twinlog.mirror.verify.walk import Rules
from twinlog.model import TopicId, TopicPartition
from twinlog.survey.ends import log_starts
from twinlog.survey.replica import Maps
from twinlog.survey.state_reader import state_rows_if_any
from twinlog.survey.verify import (
    MappedCopy,
    PartitionBounds,
    VerifyTask,
    rules_of,
    verify_partition,
    with_needed_runs,
)
from twinlog.threads import lower_priority

log = logging.getLogger(__name__)

SHARE: Final = 0.03
ROUND_S: float = 10.0
FIRST_OFFSETS: Final = 50
LEAST_OFFSETS: Final = 10
MOST_OFFSETS: Final = 50_000
SECTION_MS: Final = 50
"""Intended CPU time of a section in ms. If a section costs more, the next one is smaller."""
SECTION_BYTES: Final = 4 << 20
"""Intended bytes of a section, which is always completed, even if a quota begins to throttle."""
READ_BYTES: Final = 1 << 20
HELD_S: Final = 60.0
CLEANED_KNOWN_S: Final = 600.0
GIVES_UP_S: Final = 30.0
NICE: Final = 10
SECTIONS_A_ROUND: Final = 50
"""Maximum sections per round, so that rounds end soon if the duty is paused or stopped."""


def verification(flow: LedFlow) -> Duty | None:
    """Return the duty, or None if twinlog.verify=off."""
    return Verification(flow) if flow.config.verify is not VerifyMode.OFF else None


@dataclass(frozen=True, slots=True)
class _Section:
    view: PartitionView
    mapped_copy: MappedCopy
    begin: int
    """First source offset of the section; `end` is the offset after the last one."""
    end: int


class Verification(Duty):
    """The verification of one led flow."""

    name = "verify"
    interval_s: float = ROUND_S
    ends_once = False
    _of_process: ClassVar[WeakSet[Verification]] = WeakSet()
    """All verifications of this process. Each may use SHARE of the CPU time of its flow's lanes,
    and of an equal part of the driver's CPU time.
    """

    def __init__(self, flow: LedFlow) -> None:
        self._flow, self.interval_s = flow, ROUND_S
        self._log = FlowLog(log, flow.name)
        self._is_full = flow.config.verify is VerifyMode.FULL
        self._source = ClusterClient(flow.source, api_timeout_s=GIVES_UP_S)
        self._target = ClusterClient(flow.target, api_timeout_s=GIVES_UP_S)
        self._clients = self._source, self._target
        self._is_shared = flow.config.policy.kind is PolicyKind.IDENTITY
        self._offsets = FIRST_OFFSETS
        self._done: dict[tuple[TopicPartition, TopicId, TopicId], int] = {}
        """The source offset up to which each pair of logs was compared."""
        self._last: TopicPartition | None = None
        """The partition of the previous section."""
        self._lacking: dict[tuple[str, str], tuple[float, bool]] = {}
        self._held_until = 0.0
        """Monotonic time until which nothing is verified, because the copy needs the quotas."""
        self._used_s = self._began_s = 0.0
        """CPU time of earlier rounds, and the thread's CPU time when this round began. Each round
        may run in a different thread.
        """
        flow.verified.last = Verified(mode=flow.config.verify.value)
        self._of_process.add(self)

    def round(self) -> None:
        lower_priority(NICE)
        self._began_s = time.thread_time()
        try:
            self._verify()
        except Unauthorized as error:
            line = f"the copy is not verified while it runs: {error}; or set twinlog.verify=off"
            raise NotPermitted(line, flow=self._flow.name) from error
        finally:
            self._used_s = self._cpu_s()

    def _cpu_s(self) -> float:
        """Return the CPU time of all rounds, including this one."""
        return self._used_s + time.thread_time() - self._began_s

    def _is_spent(self, mirror_s: float) -> bool:
        """Return True if the rounds have used SHARE of `mirror_s`, the mirror's CPU time in
        seconds.
        """
        return self._cpu_s() > SHARE * mirror_s

    def _verify(self) -> None:
        """Compare as many sections as the budget allows. Partitions are queried once a round.

        If the budget is spent, a round only reads the snapshot, which exists anyway. Reading
        partitions and the map would cost CPU time as well, and more in a larger flow.
        """
        snapshot, began = self._flow.snapshot(), time.monotonic()
        if snapshot.state is FlowState.THROTTLED:
            self._held_until = began + HELD_S
        mirror_s = time.process_time() / len(self._of_process) + snapshot.lane_cpu_ms / 1000
        if self._is_spent(mirror_s):
            return
        every = self._flow.partitions()
        of_topic = self._flow.config.transforms.of_topic
        compared = (view for view in every if _is_usable(view) and not of_topic(view.source.topic))
        views = sorted(compared, key=lambda view: view.source)
        if all(self._done.get(_pair(view), 0) >= view.upstream for view in views):
            is_all = self._is_full and 0 < len(views) == len(every)
            self._flow.verified.set_complete(is_complete=is_all)
            return
        if began < self._held_until:
            return
        # read after the views, so that the map covers everything that they report as copied
        maps = self._flow.read_map()
        for _ in range(SECTIONS_A_ROUND):
            if self._is_spent(mirror_s):
                return
            section = self._choose(views, maps)
            if section is None or not self._verify_section(section):
                return
            if max(self._source.muted_until, self._target.muted_until) > began:
                self._held_until = time.monotonic() + HELD_S
                return

    def _choose(self, views: Sequence[PartitionView], maps: Maps) -> _Section | None:
        """Return a section of the next partition in turn that has records to compare."""
        later = (v for v in views if self._last is None or v.source > self._last)
        for view in (*later, *views):
            done = self._done.get(_pair(view), 0)
            if done >= view.upstream:
                continue
            written = self._mapped_copy(view, maps)
            if written.reach is None:
                continue
            end = written.reach.upstream
            begin = done if self._is_full else max(done, end - self._offsets)
            if begin < end:
                return _Section(view, written, begin, min(begin + self._offsets, end))
        return None

    def _mapped_copy(self, view: PartitionView, maps: Maps) -> MappedCopy:
        partition_map = maps.get(view.map_key)
        if (
            partition_map is None
            or not partition_map.runs
            or partition_map.transformed
            or maps.problem(view.source) is not None
        ):
            return MappedCopy()
        reach = view.reach
        # if other clients write to the topic, the copy is certain only below the map's `Mark`
        if self._is_shared:
            if partition_map.mark is None:
                return MappedCopy()
            reach = reach_at(
                partition_map.runs, partition_map.mark.ordinal, partition_map.mark.downstream
            )
        return MappedCopy(runs=partition_map.runs, mark=partition_map.mark, reach=reach)

    def _verify_section(self, section: _Section) -> bool:
        """Compare a section and record the result. Return False if it differs and could not be
        compared again, because its logs or map changed. A later round then compares the section.
        """
        self._last = section.view.source
        self._flow.verified.set_complete(is_complete=False)
        before_s = time.thread_time()
        compared, done = self._compare(section, Rules(is_shared=self._is_shared))
        if not compared.is_identical:
            again = self._compare_again(section)
            if again is None:
                return False
            compared, done = again
        self._done[_pair(section.view)] = done
        self._record_result(section.view, compared)
        cpu_ms = int(1000 * (time.thread_time() - before_s))
        wanted = self._offsets * SECTION_MS // max(1, cpu_ms)
        if compared.bytes:
            wanted = min(wanted, self._offsets * SECTION_BYTES // compared.bytes)
        self._offsets = min(max(wanted, LEAST_OFFSETS), MOST_OFFSETS, 2 * self._offsets)
        return True

    def _record_result(self, view: PartitionView, result: Compared) -> None:
        self._flow.verified.add_compared(
            result.equal, result.bytes, int(time.time() * 1000), int(1000 * self._cpu_s())
        )
        for difference in result.differences:
            line = _difference_line(view, difference)
            if self._flow.verified.add_difference(line):
                error = PartitionError(
                    f"{line}; to compare both logs completely, run twinlog verify", code=CODE
                )
                self._log.warning("the copy differs from its source: %s", error)

    # -- one section

    def _compare_again(self, section: _Section) -> tuple[Compared, int] | None:
        """Compare a section again with current data. Return None if its logs or map changed."""
        views = {_pair(view): view for view in self._flow.partitions() if _is_usable(view)}
        view = views.get(_pair(section.view))
        if view is None:
            return None
        mapped_copy = self._mapped_copy(view, self._flow.read_map())
        if mapped_copy.reach is None or mapped_copy.reach.upstream < section.end:
            return None
        self._lacking.clear()
        intents = state_rows_if_any(self._target).intents(self._flow.name)
        rules = rules_of(intents, view, is_shared=self._is_shared)
        return self._compare(replace(section, view=view, mapped_copy=mapped_copy), rules)

    def _compare(self, section: _Section, rules: Rules) -> tuple[Compared, int]:
        """Compare a section. Return the result, and the source offset where the next section
        begins: the section's end, or a later offset if the source has deleted the records there, or
        if the copy began later.
        """
        view, mapped_copy = section.view, section.mapped_copy
        reach = mapped_copy.reach or Reach(0, 0)
        source_start = log_starts(self._source, [view.source])[view.source]
        target_start = log_starts(self._target, [view.target])[view.target]
        task = VerifyTask(
            source=view.source,
            target=view.target,
            here=PartitionBounds(start=source_start, end=reach.upstream),
            there=PartitionBounds(start=target_start, end=reach.downstream),
            later_source_end=reach.upstream,
            mapped_copy=mapped_copy,
            producers=frozenset(),
            rules=rules,
            isolation=self._flow.config.isolation_level,
            is_led=True,
            source_may_lack=self._may_lack(self._source, view.source.topic),
            target_may_lack=self._may_lack(self._target, view.target.topic),
            since=section.begin,
            until=section.end,
            is_first=False,
        )
        compared = Compared()
        verify_partition(
            with_needed_runs(task),
            self._source,
            self._target,
            lambda _: None,
            compared,
            read_bytes=READ_BYTES,
        )
        # skip deleted offsets, and those before the start of the copy
        return compared, max(section.end, source_start, mapped_copy.runs[0].upstream)

    def _may_lack(self, client: ClusterClient, topic: str) -> bool:
        now = time.monotonic()
        key = client.alias, topic
        asked, answer = self._lacking.get(key, (-CLEANED_KNOWN_S, False))
        if now - asked >= CLEANED_KNOWN_S:
            answer = topic in may_lack_offsets(client, {topic})
            self._lacking[key] = now, answer
        return answer

    def close(self) -> None:
        self._of_process.discard(self)
        super().close()


def _is_usable(view: PartitionView) -> bool:
    is_ours = view.is_begun and not view.foreign_code
    return is_ours and not view.is_broken and not view.is_keyed and view.upstream > 0


def _pair(view: PartitionView) -> tuple[TopicPartition, TopicId, TopicId]:
    """Return the key of two logs. It has topic IDs, because a re-created topic has another ID."""
    return view.source, view.source_topic_id, view.target_topic_id


def _difference_line(view: PartitionView, difference: Difference) -> str:
    sides = [
        f"{tp} {span}"
        for tp, span in ((view.source, difference.source), (view.target, difference.target))
        if span is not None
    ]
    why = f" ({difference.why})" if difference.why else ""
    return f"{difference.kind.value}: {' / '.join(sides)}{why}"
