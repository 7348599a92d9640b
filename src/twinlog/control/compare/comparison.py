"""Compares the two clusters of each flow by what its mirror keeps equal, which its replication
policy, filters and syncs determine. Only reads.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from twinlog.cluster.client import ClusterClient, prompt_client
from twinlog.cluster.groups.coordinators import Coordinators
from twinlog.cluster.net.metadata import ClusterMetadata
from twinlog.config.flow.schema import FlowConfig, MirrorConfig
from twinlog.control.check.resting_flow import intents_of, resting_flow
from twinlog.control.compare.deviation import Aspect, FlowComparison
from twinlog.control.compare.groups import compare_groups
from twinlog.control.compare.settings import compare_acls, compare_configs, compare_quotas
from twinlog.control.compare.topics import (
    compare_partitions,
    compare_replication,
    compare_topics,
    remote_names,
)
from twinlog.control.flow.flow_setup import FlowSetup
from twinlog.control.flow.wiring import flow_setup
from twinlog.errors import UsageError
from twinlog.quantities import plural
from twinlog.survey.discovery import mirrored_topics

MANY: Final = 1_000
"""Number of topics from which on a comparison shows its steps, because it takes long."""


def matching(topics: str | None, where: str) -> Callable[[str], bool]:
    """Return a matcher of whole names; None matches all. Raises UsageError, which names `where`."""
    if topics is None:
        return lambda _: True
    try:
        compiled = re.compile(topics)
    except re.error as problem:
        raise UsageError(f"{where}: {topics} is not a regular expression: {problem}") from None
    return lambda name: compiled.fullmatch(name) is not None


def compare_flows(
    config: MirrorConfig,
    matches: Callable[[str], bool],
    *,
    with_left_alone: bool,
    say: Callable[[str], None],
) -> Iterator[FlowComparison]:
    """Compare each flow. `matches` selects the source topics that are checked. `with_left_alone`
    adds what the flows do not copy. Raises TwinlogError if a cluster of a flow cannot be queried.
    """
    for flow in config.flows:
        setup = flow_setup(flow)
        with prompt_client(setup.source) as source, prompt_client(setup.target) as target:
            comparer = _Comparer(config, setup, source, target, with_left_alone, say)
            yield comparer.compared(matches)


def compare_topic_configs(
    setup: FlowSetup,
    source: ClusterClient,
    target: ClusterClient,
    matches: Callable[[str], bool],
) -> FlowComparison:
    """Compare only the topic configs of one flow."""
    out = FlowComparison(flow=setup.name)
    here, there = source.metadata(None), target.metadata(None)
    flow = replace(setup.config, released=intents_of(setup.name, target).released)
    mirrored = {n: t for n, t in mirrored_topics(flow, here).items() if matches(n)}
    remote = remote_names(flow, mirrored)
    present = {name: its for name, its in remote.items() if its in there.topics}
    narrowed = _narrowed(flow, here, matches)
    compare_configs(narrowed, source, target, present, out, with_left_alone=False)
    return out


def _narrowed(
    flow: FlowConfig, here: ClusterMetadata, matches: Callable[[str], bool]
) -> FlowConfig:
    """Return the flow without topics that are not compared, for the sync of configs."""
    unseen = frozenset(name for name in here.topics if not matches(name))
    return replace(flow, released=flow.released | unseen)


class _Comparer:
    """Compares the two clusters of one flow."""

    def __init__(
        self,
        config: MirrorConfig,
        setup: FlowSetup,
        source: ClusterClient,
        target: ClusterClient,
        with_left_alone: bool,
        say: Callable[[str], None],
    ) -> None:
        self._config = config
        self._setup = setup
        self._source = source
        self._target = target
        self._with_left_alone = with_left_alone
        self._say = say

    def compared(self, matches: Callable[[str], bool]) -> FlowComparison:
        out = FlowComparison(flow=self._setup.name)
        here, there = self._source.metadata(None), self._target.metadata(None)
        intents = intents_of(self._setup.name, self._target)
        flow = replace(self._setup.config, released=intents.released)
        mirrored = {n: t for n, t in mirrored_topics(flow, here).items() if matches(n)}
        remote = remote_names(flow, mirrored)
        present = {name: its for name, its in remote.items() if its in there.topics}

        def report(what: str) -> None:
            if len(remote) >= MANY:
                self._say(f"{self._setup.name}: comparing {what}")

        topics = [one for one in compare_topics(flow, here, there, remote) if matches(one.name)]
        out.add(Aspect.TOPIC, len(remote), topics)
        partitions = compare_partitions(flow, here.topics, there.topics, present)
        out.add(Aspect.PARTITIONS, len(present), partitions)
        factors = compare_replication(flow, here.topics, there.topics, present)
        out.add(Aspect.REPLICATION_FACTOR, len(present), factors)
        narrowed = _narrowed(flow, here, matches)
        with_left_alone = self._with_left_alone
        report(f"configs of {plural(len(present), 'topic')}")
        compare_configs(
            narrowed, self._source, self._target, present, out, with_left_alone=with_left_alone
        )
        report("ACLs")
        compare_acls(flow, self._source, self._target, remote, out, with_left_alone=with_left_alone)
        if with_left_alone:
            compare_quotas(self._source, self._target, out)
        if with_left_alone or flow.groups.sync_s is not None:
            report("groups")
            self._groups(out, matches)
        return out

    def _groups(self, out: FlowComparison, matches: Callable[[str], bool]) -> None:
        led = resting_flow(self._config, self._setup, self._source, self._target, out.notes.append)
        views = tuple(view for view in led.partitions() if matches(view.source.topic))
        compare_groups(
            replace(led, partitions=lambda: views),
            Coordinators(self._source),
            Coordinators(self._target),
            out,
            with_left_alone=self._with_left_alone,
        )
