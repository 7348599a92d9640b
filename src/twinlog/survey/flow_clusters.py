"""Checks that a flow's source and target are the clusters that its newest claim names.

An address may lead to another cluster than before: the address moved, a variable came from another
shell, or a cluster was re-created with empty disks. So cluster IDs are compared, never addresses.
If an ID is empty, of a cluster or in a claim, no error is reported.
"""

from __future__ import annotations

from twinlog.config.flow.schema import FlowConfig
from twinlog.errors import FlowError
from twinlog.mirror.state.generations import Claim


def source_changed(flow: FlowConfig, claim: Claim | None, cluster_id: str) -> FlowError | None:
    """Return the error if the source is not the cluster that the claim names, else None."""
    before = "" if claim is None else claim.source_cluster_id
    return _changed(flow, flow.flow.source, before, cluster_id)


def target_changed(flow: FlowConfig, claim: Claim | None, cluster_id: str) -> FlowError | None:
    """Return the error if the target is not the cluster that the claim names, else None."""
    before = "" if claim is None else claim.target_cluster_id
    return _changed(flow, flow.flow.target, before, cluster_id)


def never_led(flow: FlowConfig) -> FlowError:
    """Return the error for a flow without a claim on the target."""
    target = flow.flow.target
    return FlowError(
        f"no mirror has ever copied this flow to {target}: nothing was changed; correct "
        f"{target}.bootstrap.servers, or start the flow with twinlog mirror FILE first",
        flow=flow.flow,
        code="NOT_COPIED",
    )


def _changed(flow: FlowConfig, alias: str, before: str, now: str) -> FlowError | None:
    if "" in (before, now) or before == now:
        return None
    return FlowError(
        f"the state on {flow.flow.target} was written with cluster {before} as {alias}, but "
        f"{alias} is now cluster {now}: correct {alias}.bootstrap.servers; if it is another "
        "cluster, or was re-created, give it another alias; copied records are not changed",
        flow=flow.flow,
        code="CLUSTER_CHANGED",
    )
