"""What is said of configurations that would copy records twice or for ever: one wording for `check`
and for the start, each with the way out.
"""

from __future__ import annotations

from collections.abc import Sequence

from twinlog.config.flow.schema import FlowConfig
from twinlog.errors import Fate, FlowError, PartitionError, TwinlogError
from twinlog.mirror.names.naming import STATE_TOPIC
from twinlog.mirror.state.copies import CopyRow


def same_cluster(flow: FlowConfig, cluster_id: str) -> FlowError:
    """Source and target are one."""
    source, target = flow.flow.source, flow.flow.target
    return FlowError(
        f"{source} and {target} are the same cluster ({cluster_id}): every copy would "
        "be copied again, or every record onto itself; correct "
        f"{target}.bootstrap.servers or {source}.bootstrap.servers",
        flow=flow.flow,
        code="SAME_CLUSTER",
    )


def same_clusters(flow: FlowConfig, topic: str, other: FlowConfig) -> PartitionError:
    """Two flows of the configuration are one by other aliases, and both take the topic."""
    return PartitionError(
        f"{other.flow} leads from the same cluster to the same cluster under other "
        f"aliases, and would copy topic {topic} a second time; correct bootstrap.servers, or leave "
        f"the topic out of one of them ({other.flow}.topics.exclude)",
        flow=flow.flow,
        code="SAME_CLUSTER",
        fate=Fate.RETRIABLE,
    )


def clusters_swapped(flow: FlowConfig) -> FlowError:
    """The flow's own claim is on what is now its source, and names what is now its target."""
    source, target = flow.flow.source, flow.flow.target
    return FlowError(
        f"this flow has copied from the cluster that is now {target} to the one that "
        f"is now {source}: their addresses were swapped, and every copy would be appended to its "
        f"original; swap {source}.bootstrap.servers and {target}.bootstrap.servers back; if it is "
        "another flow, that of the other direction, give its clusters other aliases",
        flow=flow.flow,
        code="CLUSTERS_SWAPPED",
    )


def copied_back(flow: FlowConfig, topic: str, row: CopyRow, target_id: str) -> PartitionError:
    """A topic whose records have been on the target already."""
    source, target = flow.flow.source, flow.flow.target
    what = f"a copy of {row.source_topic} of {target}"
    if row.source_cluster_id != target_id:
        what = f"a copy of records that were on {target} before, by way of others"
    return PartitionError(
        f"topic {topic} of {source} is {what} (written by {row.flow}): copied back, "
        "its records would be there twice, or for ever; leave it out with "
        f"{flow.flow}.topics.exclude, or turn one of these flows off",
        flow=flow.flow,
        code="COPIED_BACK",
        fate=Fate.RETRIABLE,
    )


def would_come_back(flow: FlowConfig, topic: str, way: Sequence[str]) -> PartitionError:
    """The flows of the configuration lead in a circle."""
    return PartitionError(
        f"topic {topic} would come back to where it is copied from, by "
        f"{', '.join(way)}, and every record of it for ever again; leave it out of one of these "
        f"flows ({way[-1]}.topics.exclude), or turn one off",
        flow=flow.flow,
        code="COPIED_BACK",
        fate=Fate.RETRIABLE,
    )


def copied_already(flow: FlowConfig, topic: str, row: CopyRow, remote: str) -> PartitionError:
    """The same source topic is copied to the same cluster by a flow of another name."""
    source, target = flow.flow.source, flow.flow.target
    return PartitionError(
        f"topic {topic} of {source} is copied to {remote} of {target} already, by "
        f"{row.flow}: these are the same clusters under other aliases, and all of it would be "
        f"copied again; use the aliases of {row.flow}, and its copy resumes where it stands",
        flow=flow.flow,
        code="COPIED_TWICE",
        fate=Fate.RETRIABLE,
    )


def rename_changed(flow: FlowConfig, topic: str, old: str, new: str) -> PartitionError:
    """The rules give a topic another name than the one under which it was copied."""
    target = flow.flow.target
    return PartitionError(
        f"topic {topic} of {flow.flow.source} was copied to {old} of {target}, and "
        f"twinlog.rename now makes it {new}: nothing of it is copied, since a new topic would "
        "begin with what the source still has, and readers of the old one would wait for ever; "
        f"give it its name back, and the copy resumes where it stands; or leave it out here "
        f"({flow.flow}.topics.exclude), and {old} stays as it is",
        flow=flow.flow,
        code="RENAME_CHANGED",
        fate=Fate.RETRIABLE,
    )


def rename_taken(flow: FlowConfig, topic: str, remote: str, other: str) -> PartitionError:
    """The topic of the new name holds what was copied from another topic."""
    return PartitionError(
        f"topic {topic} of {flow.flow.source} would be {remote} on "
        f"{flow.flow.target}, which holds the copy of topic {other}: nothing of {topic} is copied, "
        f"since one topic cannot hold both; give {topic} another name with twinlog.rename, or "
        f"leave it out with {flow.flow}.topics.exclude",
        flow=flow.flow,
        code="RENAME_CLASH",
        fate=Fate.RETRIABLE,
    )


def nothing_left(flow: FlowConfig, first: TwinlogError, others: int) -> FlowError:
    """No topic of the flow may be copied: it does not begin at all."""
    more = f" (and {others} more of its topics)" if others else ""
    return FlowError(f"nothing is begun{more}: {first.what}", flow=flow.flow, code=first.code)


def not_copied_back(flow: FlowConfig, topic: str, row: CopyRow) -> str:
    """A note: names of the default policy would have hidden it, ids do not."""
    return (
        f"{flow.flow}: topic {topic} of {flow.flow.source} holds records of {flow.flow.target} "
        f"(copied by {row.flow} under another alias or separator): it is not copied back"
    )


def unseen_origins(flow: FlowConfig) -> str:
    """A note: the source's state may not be read."""
    source = flow.flow.source
    return (
        f"{flow.flow}: whether topics of {source} are copies that came from {flow.flow.target} is "
        "not known, and their names do not tell: make sure that no flow leads the other way, or "
        f"grant READ on topic {STATE_TOPIC} of {source}"
    )


def unknown_ids(flow: FlowConfig, aliases: Sequence[str]) -> str:
    """A note: without ids nobody knows whether two addresses are one cluster."""
    return (
        f"{flow.flow}: {' and '.join(aliases)} tell no cluster id, so it is not known whether "
        "addresses were swapped or two aliases lead to one cluster: compare bootstrap.servers"
    )
