"""Runs the cases in rounds. The order of the copiers alternates between rounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from confluent_kafka import KafkaException

from benchmarks.ballast import Ballast
from benchmarks.copier import Copier, CopierFailed, Launch, warnings_in
from benchmarks.group_run import GROUP_KEYS, GroupRun
from benchmarks.latency_run import measure_floor, steady_load, watch_steady
from benchmarks.launches import (
    DEFAULT_LINGER,
    LINGER_0,
    TUNED,
    FlowFile,
    log_of,
    mirror_maker_launch,
    twinlog_launch,
)
from benchmarks.others import Others
from benchmarks.payload import KEY_BYTES, VALUE_BYTES
from benchmarks.phases import phases_of
from benchmarks.progress import Progress
from benchmarks.results import MIRROR_MAKER, WARM_UP, Latency, RunResult
from benchmarks.scale import STEADY_CASES
from benchmarks.stage import (
    BACKLOG_TOPIC,
    GROUPS_TOPIC,
    HEAD_TOPIC,
    OLD_TOPIC,
    SMALL_TOPIC,
    STEADY_TOPIC,
    Stage,
)
from benchmarks.watch import watch_copy

__all__ = ["Rounds"]


@dataclass(slots=True)
class Rounds:
    """The plan of a benchmark, and its latency without a copier."""

    stage: Stage
    progress: Progress
    jars: Path
    cases: Sequence[str]
    programs: Mapping[str, Path]
    """The copiers in the order of the first round, with the `twinlog` program of each."""
    rounds: int
    floor: Latency | None = None
    """Latency of a consumer on the source, that is, without a copier."""

    def run(self) -> Iterator[RunResult]:
        """Execute all runs, and yield the result of each. A failed run is also a result."""
        if self.stage.scale.warms_up and "backlog" in self.cases:
            for system in self.programs:
                yield self._one(RunResult(round=WARM_UP, case="backlog", system=system, alias=""))
        for number in range(1, self.rounds + 1):
            order = tuple(self.programs)[:: 1 if number % 2 else -1]
            for case in self.cases:
                if case in STEADY_CASES and self.floor is None:
                    self._measure_floor()
                for system in order:
                    yield self._one(RunResult(round=number, case=case, system=system, alias=""))

    def _one(self, result: RunResult) -> RunResult:
        result = replace(result, alias=self.stage.next_alias())
        turn = "warm-up" if result.is_warm_up else f"round {result.round}/{self.rounds}"
        self.progress.say(f"{turn}, {result.case}: {result.system}")
        with Ballast(self.stage.scale.ballast_bytes(result.case)) as ballast, Others() as others:
            try:
                result = self._measured(result)
            except (CopierFailed, KafkaException, OSError) as error:
                # after a failed run, the other runs continue; the report and the exit code show the
                # failure
                result = replace(result, failure=str(error) or repr(error))
            share = round(others.share(), 3)
        result = replace(result, used_by_others=share, ballast_bytes=ballast.size)
        log = log_of(result.alias, self.stage.folder)
        result = replace(result, warnings=[*result.warnings, *warnings_in(log)])
        self.stage.clean(result.alias)
        self.progress.say(f"  {_told(result)}")
        return result

    def _measured(self, result: RunResult) -> RunResult:
        topic = self._topic(result)
        listener = "SSL" if result.case == "tls" else "PLAINTEXT"
        clusters = {result.alias: self.stage.source, "B": self.stage.target}
        flow = FlowFile(
            alias=result.alias,
            source=self.stage.source.bootstrap_for(listener),
            target=self.stage.target.bootstrap_for(listener),
            topic=topic,
            tasks=self.stage.scale.partitions,
            more={
                f"{alias}.{key}": value
                for alias, cluster in clusters.items()
                for key, value in cluster.client_properties(listener).items()
                if listener == "SSL" and key != "bootstrap.servers"
            },
        )
        if result.case == "groups":
            return self._groups(result, flow)
        if result.case == "lowest":
            latency = {f"{result.alias}->B.twinlog.latency": "lowest"}
            flow = replace(flow, more={**flow.more, **latency})
        launch = self._launch(result, flow)
        if result.case in STEADY_CASES:
            scale = self.stage.scale.at_rate_of(result.case)
            with steady_load(flow.source, topic, scale), Copier(launch) as copier:
                result = self._steady(result, copier, flow)
        else:
            self.stage.read_source_log(topic)
            with Copier(launch) as copier:
                result = self._copy(result, copier, flow)
        return replace(
            result,
            stop_s=copier.stop_s,
            exit_code=copier.exit_code,
        )

    def _groups(self, result: RunResult, flow: FlowFile) -> RunResult:
        run = GroupRun(
            alias=flow.alias,
            source=flow.source,
            target=flow.target,
            many_topic=GROUPS_TOPIC,
            head_topic=HEAD_TOPIC,
            scale=self.stage.scale,
        )
        topics = f"{GROUPS_TOPIC}, {HEAD_TOPIC}"
        flow = replace(flow, topic=topics, more={**GROUP_KEYS, "groups": run.selects})
        own_time = {"message.timestamp.type": "LogAppendTime", "cleanup.policy": "compact"}
        self.stage.target_topics.create(run.checkpoints_topic, 1, own_time)
        run.prepare()
        try:
            with Copier(self._launch(result, flow)) as copier:
                numbers = run.measure(copier, self.stage.remote(flow.alias, GROUPS_TOPIC))
        finally:
            run.clean()
        done = f"{numbers.checkpointed:,} checkpointed and {numbers.committed:,} committed"
        missing = min(numbers.checkpointed, numbers.committed) < numbers.expected
        return replace(
            result,
            first_record_s=numbers.first_record_s,
            latency=numbers.latency,
            checkpointed_s=numbers.checkpointed_s,
            committed_s=numbers.committed_s,
            warnings=[f"of {numbers.expected:,} offsets {done}"] if missing else [],
            stop_s=copier.stop_s,
            exit_code=copier.exit_code,
        )

    def _topic(self, result: RunResult) -> str:
        if result.case == "groups":
            return GROUPS_TOPIC
        if result.case not in STEADY_CASES:
            return {"unprotected": OLD_TOPIC, "small": SMALL_TOPIC}.get(result.case, BACKLOG_TOPIC)
        # a new topic for each run, because otherwise a copier would also copy the records of the
        # previous run
        topic = f"{STEADY_TOPIC}-{result.alias}"
        self.stage.source_topics.create(topic, self.stage.scale.partitions)
        return topic

    def _launch(self, result: RunResult, flow: FlowFile) -> Launch:
        folder = self.stage.folder
        if result.system == MIRROR_MAKER:
            producer = {**dict.fromkeys(STEADY_CASES, DEFAULT_LINGER), "lowest": LINGER_0}.get(
                result.case, TUNED
            )
            return mirror_maker_launch(flow, producer, self.jars, folder)
        lease_s = self.stage.scale.lease_s if result.case in STEADY_CASES else None
        program = self.programs[result.system]
        return twinlog_launch(flow, folder, system=result.system, program=program, lease_s=lease_s)

    def _copy(self, result: RunResult, copier: Copier, flow: FlowFile) -> RunResult:
        remote = self.stage.remote(flow.alias, flow.topic)
        scale = self.stage.scale
        few = {"unprotected": scale.old_records, "small": scale.small_records}
        numbers = watch_copy(copier, remote, few.get(result.case, self.stage.backlog_records))
        result = replace(
            result,
            first_record_s=numbers.first_record_s,
            phases=phases_of(copier, numbers),
        )
        if result.case == "startup":
            return result
        gigabytes = numbers.cpu_records * (VALUE_BYTES + KEY_BYTES) / 1e9
        return replace(
            result,
            copy_s=numbers.copy_s,
            records_per_s=numbers.records / numbers.copy_s if numbers.copy_s else None,
            cpu_s=numbers.cpu_s,
            cpu_s_per_gb=numbers.cpu_s / gigabytes if gigabytes else None,
            peak_pss_bytes=numbers.peak_pss_bytes,
            excess_records=numbers.excess_records,
            bytes_on_disk=self.stage.bytes_on_disk(remote),
        )

    def _steady(self, result: RunResult, copier: Copier, flow: FlowFile) -> RunResult:
        remote = self.stage.remote(flow.alias, flow.topic)
        scale = self.stage.scale.at_rate_of(result.case)
        numbers = watch_steady(copier, remote, flow.target, scale)
        return replace(
            result,
            first_record_s=numbers.first_record_s,
            latency=numbers.latency,
            cpu_s=numbers.cpu_s,
            peak_pss_bytes=numbers.pss_bytes,
            processes_started_in_window=numbers.processes_started,
        )

    def _measure_floor(self) -> None:
        self.progress.say("latency: a consumer on the source itself, without a copier")
        source, scale = self.stage.source.bootstrap, self.stage.scale
        self.stage.source_topics.create(STEADY_TOPIC, scale.partitions)
        with steady_load(source, STEADY_TOPIC, scale):
            self.floor = measure_floor(source, STEADY_TOPIC, scale)
        self.stage.source_topics.delete([STEADY_TOPIC])


def _told(result: RunResult) -> str:
    if result.failure:
        return f"FAILED: {result.failure}"
    words = [f"first record after {result.first_record_s:.1f} s"]
    if result.copy_s is not None and result.records_per_s and result.peak_pss_bytes:
        words.append(f"copied in {result.copy_s:.1f} s ({result.records_per_s:,.0f} records/s)")
        words.append(f"CPU {result.cpu_s:.1f} s, {result.peak_pss_bytes / 2**20:,.0f} MiB")
    if (latency := result.latency) is not None:
        words.append(f"p50 {latency.p50:.1f}, p99 {latency.p99:.1f}, p99.9 {latency.p99_9:.1f} ms")
        words.append(f"{latency.records:,} of {latency.expected:,} records")
    if result.checkpointed_s is not None:
        words.append(f"all groups checkpointed in {result.checkpointed_s:.2f} s")
    if result.committed_s is not None:
        words.append(f"committed in {result.committed_s:.2f} s")
    if result.excess_records:
        words.append(f"{result.excess_records:,} DUPLICATES")
    return "; ".join(words)
