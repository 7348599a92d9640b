"""Lists, creates and deletes ACLs on topics.

Any broker accepts changes, but each broker applies them at its own time. So a caller that relies on
a change must list the ACLs of every broker (`node`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kafka.protocol.admin import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.net.protocol import Message
from twinlog.model import batched
from twinlog.wire.topic_settings import TopicAcl

TOPIC: Final = 2
ANY: Final = 1

WITH_PATTERNS: Final = 1
"""The first version of the ACL requests with the pattern type PREFIXED (Kafka 2.0)."""

ACLS_PER_REQUEST: Final = 500
SECURITY_DISABLED: Final = "SECURITY_DISABLED"
"""The error code that brokers without an authorizer return."""


def topic_acls(
    client: ClusterClient, *, needs: str = "DESCRIBE", node: int | None = None
) -> set[TopicAcl]:
    """Return all ACLs on topics, as known to broker `node` or to any broker (None).

    `needs` is the permission that the error names if the user is not permitted to list ACLs.
    Callers that also change ACLs pass ALTER, which includes DESCRIBE. Raises BrokerRefused with
    code SECURITY_DISABLED if the brokers have no authorizer.
    """
    request = DescribeAclsRequest(
        resource_type_filter=TOPIC,
        resource_name_filter=None,
        pattern_type_filter=ANY,
        principal_filter=None,
        host_filter=None,
        operation=ANY,
        permission_type=ANY,
    )

    def ask() -> set[TopicAcl]:
        answer = client.attempt(node, request, minimum=WITH_PATTERNS)
        client.check(answer, "listing the ACLs of topics", acl=f"{needs} on the cluster")
        return {
            TopicAcl(
                name=str(resource.resource_name),
                pattern=int(resource.pattern_type),
                principal=str(acl.principal),
                host=str(acl.host),
                operation=int(acl.operation),
                permission=int(acl.permission_type),
            )
            for resource in answer.resources
            for acl in resource.acls
        }

    return client.retrying(ask)


def create_topic_acls(client: ClusterClient, acls: Sequence[TopicAcl]) -> None:
    """Create these ACLs. An ACL that already exists is no error. Raises a broker's first error."""

    def creation(acl: TopicAcl) -> Message:
        return CreateAclsRequest.AclCreation(
            resource_type=TOPIC,
            resource_name=acl.name,
            resource_pattern_type=acl.pattern,
            principal=acl.principal,
            host=acl.host,
            operation=acl.operation,
            permission_type=acl.permission,
        )

    for part in batched(acls, ACLS_PER_REQUEST):
        request = CreateAclsRequest(creations=list(map(creation, part)))
        _carry_out(client, request, part, doing="creating")


def delete_topic_acls(client: ClusterClient, acls: Sequence[TopicAcl]) -> None:
    """Delete exactly these ACLs. A missing ACL is no error. Raises a broker's first error."""

    def chosen(acl: TopicAcl) -> Message:
        return DeleteAclsRequest.DeleteAclsFilter(
            resource_type_filter=TOPIC,
            resource_name_filter=acl.name,
            pattern_type_filter=acl.pattern,
            principal_filter=acl.principal,
            host_filter=acl.host,
            operation=acl.operation,
            permission_type=acl.permission,
        )

    for part in batched(acls, ACLS_PER_REQUEST):
        request = DeleteAclsRequest(filters=list(map(chosen, part)))
        _carry_out(client, request, part, doing="deleting")


def _carry_out(
    client: ClusterClient, request: Message, acls: Sequence[TopicAcl], *, doing: str
) -> None:
    def ask() -> None:
        answer = client.attempt(None, request, minimum=WITH_PATTERNS)
        results = answer.results if doing == "creating" else answer.filter_results
        for acl, result in zip(acls, results, strict=True):
            client.check(result, f"{doing} the ACL {acl}", acl="ALTER on the cluster")

    client.retrying(ask)
