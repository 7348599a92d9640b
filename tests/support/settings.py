"""Settings for the sandbox's clusters."""

from __future__ import annotations

from twinlog.cluster.retry import Backoff, Patience
from twinlog.cluster.security_settings import SecuritySettings
from twinlog.cluster.settings import ClusterSettings, parse_bootstrap
from twinlog.sandbox import LocalCluster

HURRIED = Patience(backoff=Backoff(initial_ms=20, cap_ms=200))
"""Local brokers are back within seconds; a test need not wait longer than they do."""


def settings_of(cluster: LocalCluster) -> ClusterSettings:
    """Of somebody who may do everything; a secured cluster is entered by its internal listener."""
    if cluster.listeners.credentials is None:
        return settings_for(cluster.bootstrap)
    user, password = cluster.listeners.credentials
    return ClusterSettings(
        alias="A",
        bootstrap=parse_bootstrap(cluster.bootstrap_for(cluster.listeners.internal)),
        security=SecuritySettings(
            protocol="SASL_PLAINTEXT", sasl_mechanism="PLAIN", username=user, password=password
        ),
    )


def settings_for(bootstrap: str, alias: str = "A") -> ClusterSettings:
    """Plain text settings for an address list."""
    return ClusterSettings(alias=alias, bootstrap=parse_bootstrap(bootstrap))
