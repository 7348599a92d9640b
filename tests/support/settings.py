"""Client settings for the sandbox's clusters."""

from __future__ import annotations

from dataclasses import replace

from tests.support.client import connection_of
from twinlog.cluster.net.retry import Backoff, Patience
from twinlog.cluster.net.settings import ClusterSettings, parse_bootstrap
from twinlog.cluster.security.security_settings import SecuritySettings
from twinlog.sandbox import LocalCluster

HURRIED = Patience(backoff=Backoff(initial_ms=20, cap_ms=200))
"""Retries with short pauses, because local brokers are back within seconds."""


def settings_of(cluster: LocalCluster) -> ClusterSettings:
    """Return settings of a user with all rights. A secured cluster is reached by its internal
    listener.
    """
    keys = connection_of(cluster)
    plain = settings_for(keys["bootstrap.servers"])
    if "security.protocol" not in keys:
        return plain
    security = SecuritySettings(
        protocol=keys["security.protocol"],
        sasl_mechanism=keys["sasl.mechanism"],
        username=keys["sasl.username"],
        password=keys["sasl.password"],
    )
    return replace(plain, security=security)


def settings_for(bootstrap: str, alias: str = "A") -> ClusterSettings:
    """Return settings without security for a bootstrap address list."""
    return ClusterSettings(alias=alias, bootstrap=parse_bootstrap(bootstrap))
