"""Settings for the sandbox's clusters."""

from __future__ import annotations

from twinlog.cluster.retry import Backoff, Patience
from twinlog.cluster.settings import ClusterSettings, parse_bootstrap

HURRIED = Patience(backoff=Backoff(initial_ms=20, cap_ms=200))
"""Local brokers are back within seconds; a test need not wait longer than they do."""


def settings_for(bootstrap: str, alias: str = "A") -> ClusterSettings:
    """Plain text settings for an address list."""
    return ClusterSettings(alias=alias, bootstrap=parse_bootstrap(bootstrap))
