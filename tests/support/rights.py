"""Two secured clusters whose users have exactly the rights that a test grants.

user = pair.source_user(grant("READ", topic=topic))
config = pair.config(folder, source_user, target_user, topics=topic)
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.sandbox_security import SandboxSecurity
from tests.support.topics import allow
from twinlog.sandbox import QUICK_JVM, LocalCluster

__all__ = ["CLUSTER", "USERS", "Grant", "SecuredPair", "guarded", "secured_pair"]

USERS = tuple(f"user{number}" for number in range(40))
SECRET = "a-secret-of-"
CLUSTER = "the cluster"


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """One ACL: an operation on the cluster, a topic or a group. In `name`, `*` stands for all, and
    `name*` for a prefix.
    """

    operation: str
    kind: str
    """Kind of the resource: `topic`, `group` or `cluster`."""
    name: str = ""

    def give(self, cluster: LocalCluster, user: str) -> None:
        prefixed = self.name.endswith("*") and self.name != "*"
        name = self.name.rstrip("*") if prefixed else self.name
        resource = {} if self.kind == "cluster" else {self.kind: name}
        allow(cluster, user, [self.operation], prefixed=prefixed, **resource)


@dataclass(kw_only=True)
class SecuredPair:
    """A source and a target with ACLs. Each test uses new users."""

    source: LocalCluster
    target: LocalCluster
    _free: dict[str, Iterator[str]] = field(default_factory=dict)

    def user(self, cluster: LocalCluster, grants: Iterable[Grant]) -> str:
        """Return a new user with exactly these rights."""
        name = next(self._free.setdefault(cluster.name, itertools.chain(USERS)))
        for grant in grants:
            grant.give(cluster, name)
        return name

    def config(
        self,
        path: Path,
        users: tuple[str, str],
        lines: Iterable[str],
        *,
        listener: str = "SASL_PLAINTEXT",
        mechanism: str | None = "PLAIN",
        aliases: tuple[str, str] = ("A", "B"),
    ) -> Path:
        """Write the configuration of one flow, with the same way of authentication for both
        clusters, and return its path.
        """
        flow = "->".join(aliases)
        text = [f"clusters = {', '.join(aliases)}", f"{flow}.enabled = true"]
        text.append("replication.factor = 1")
        sides = zip(aliases, (self.source, self.target), users, strict=True)
        for alias, cluster, user in sides:
            properties: Mapping[str, str] = cluster.client_properties(
                listener, user, mechanism=mechanism
            )
            for key, value in properties.items():
                escaped = value.replace("\\", "\\\\").replace("\n", "\\n")
                text.append(f"{alias}.{key} = {escaped}")
        path.write_text("\n".join([*text, *lines]) + "\n")
        return path


def guarded(name: str, config: Mapping[str, str] | None = None) -> LocalCluster:
    """Return a cluster of one broker with TLS, SASL and the standard authorizer. It is not started
    yet.
    """
    security = SandboxSecurity(
        listeners=("SASL_SSL", "SASL_PLAINTEXT", "SSL"),
        mechanisms=("PLAIN", "SCRAM-SHA-512"),
        users={user: SECRET + user for user in USERS},
        client_certificates=True,
        authorizer=True,
    )
    return LocalCluster(name, security=security, config=config or {}, jvm_flags=QUICK_JVM)


@contextmanager
def secured_pair(name: str) -> Iterator[SecuredPair]:
    """Run a source and a target created by `guarded` until the block ends."""
    with ExitStack() as stack:
        source = stack.enter_context(guarded(f"{name}-source"))
        target = stack.enter_context(guarded(f"{name}-target"))
        yield SecuredPair(source=source, target=target)
