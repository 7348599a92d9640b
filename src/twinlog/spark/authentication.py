"""Who may talk to this process's Spark: its own executors and nobody else.

Spark's ports take part in what it copies: the block manager hands out the code of tasks, the
scheduler takes results. Without a secret they serve whoever connects, and on one machine every user
can. So authentication and encryption are always on. Local masters, YARN and Kubernetes make a
secret for each application; the daemons of a standalone cluster share one that an operator sets,
and a master without it is refused: see docs/adr/0011.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from twinlog.errors import ConfigError
from twinlog.spark.masters import is_local

log = logging.getLogger(__name__)

LOOPBACK: Final = "127.0.0.1"
SECRET: Final = "spark.authenticate.secret"  # noqa: S105 (the name of the key)
FLAG: Final = "--allow-unauthenticated-spark"

AUTHENTICATED: Final = {
    "spark.authenticate": "true",
    "spark.network.crypto.enabled": "true",
    # a peer that claims to know no encryption would else be served without it
    "spark.network.crypto.saslFallback": "false",
}
OPEN: Final = {"spark.authenticate": "false", "spark.network.crypto.enabled": "false"}

PINNED: Final = {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}
"""Lanes of this machine need no network, whatever SPARK_LOCAL_IP says for other work."""

_NEEDED: Final = (
    "without authentication whoever reaches Spark's ports can read what lanes are sent, and so the "
    "credentials of both clusters"
)


def makes_its_secret(master: str | None) -> bool:
    """Whether Spark itself makes a secret for each application there."""
    return is_local(master) or master == "yarn" or str(master).startswith("k8s://")


def security_settings(
    master: str | None, configured: Mapping[str, str], *, may_be_open: bool
) -> dict[str, str]:
    """What Spark is set to; `configured` is what its own files say. Raises ConfigError.

    An operator who names the flag gets an open Spark only where no secret is configured.
    """
    if is_local(master):
        return {**AUTHENTICATED, **PINNED}
    if makes_its_secret(master) or configured.get(SECRET):
        return dict(AUTHENTICATED)
    if may_be_open:
        log.warning("%s: %s (%s)", master, _NEEDED, FLAG)
        return dict(OPEN)
    raise ConfigError(
        f"{master} makes no secret of its own, and {SECRET} is not set: {_NEEDED}; set "
        f"`spark.authenticate true`, `spark.network.crypto.enabled true` and one long random "
        f"`{SECRET}` in conf/spark-defaults.conf of the master, of every worker and here "
        f"(SPARK_CONF_DIR), or, where nobody else reaches those ports, name {FLAG}",
        code="SPARK_UNAUTHENTICATED",
    )
