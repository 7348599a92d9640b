"""Restricts access to this process's Spark to its own executors.

Spark's ports are critical for a copy, because the block manager distributes the tasks' code and the
scheduler receives results. Without a secret, these ports accept every client that connects, for
example any user of the same machine. So authentication and encryption are always enabled. Local
masters, YARN and Kubernetes create a secret for each application. The daemons of a standalone
cluster share one secret, which an operator sets; a master without a secret is rejected
(docs/adr/0011).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from twinlog.errors import ConfigError
from twinlog.spark.options import is_local

LOOPBACK: Final = "127.0.0.1"
SECRET: Final = "spark.authenticate.secret"  # noqa: S105 (the name of the key)
FLAG: Final = "--allow-unauthenticated-spark"

AUTHENTICATED: Final = {
    "spark.authenticate": "true",
    "spark.network.crypto.enabled": "true",
    # otherwise Spark would accept unencrypted connections of a peer that claims not to support
    # encryption
    "spark.network.crypto.saslFallback": "false",
}
OPEN: Final = {"spark.authenticate": "false", "spark.network.crypto.enabled": "false"}

PINNED: Final = {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}
"""Binds a local master to the loopback interface, even if SPARK_LOCAL_IP has another address."""

NEEDED_BECAUSE: Final = (
    "without authentication, every client that reaches Spark's ports can read the lanes' tasks, "
    "including the credentials of both clusters"
)


def security_settings(
    master: str | None, configured: Mapping[str, str], *, may_be_open: bool
) -> dict[str, str]:
    """Return Spark's security settings. `configured`: the settings in Spark's own files.

    If neither Spark nor the operator provides a secret, authentication is disabled if `may_be_open`
    is True, else ConfigError is raised.
    """
    if is_local(master):
        return {**AUTHENTICATED, **PINNED}
    creates_secret = master == "yarn" or str(master).startswith("k8s://")
    if creates_secret or configured.get(SECRET):
        return dict(AUTHENTICATED)
    if may_be_open:
        return dict(OPEN)
    raise ConfigError(
        f"{master} creates no secret of its own, and {SECRET} is not set, but {NEEDED_BECAUSE}. "
        "Set `spark.authenticate true`, `spark.network.crypto.enabled true` and one long random "
        f"`{SECRET}` in conf/spark-defaults.conf of the master, of every worker and of this host "
        f"(SPARK_CONF_DIR). If no other client can reach Spark's ports, pass {FLAG} instead",
        code="SPARK_UNAUTHENTICATED",
    )
