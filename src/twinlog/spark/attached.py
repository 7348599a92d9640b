"""Uses the Spark session of a caller, for `twinlog.run`: its JVM, its application and its settings.

Nothing in the session is changed, and it is not stopped. So what cannot be changed after its start
is only checked.
"""

from __future__ import annotations

from typing import Any, Final

from pyspark import SparkContext

from twinlog.errors import ConfigError, EnvironmentMissing
from twinlog.spark.authentication import AUTHENTICATED, NEEDED_BECAUSE
from twinlog.spark.gateway import SubmittedGateway
from twinlog.spark.options import SparkOptions
from twinlog.spark.session import Engine

SPECULATION: Final = "spark.speculation"


def session_options(spark: Any, *, may_be_open: bool) -> SparkOptions:
    """Return the options of a session or a SparkContext. Raises EnvironmentMissing and ConfigError
    if lanes cannot run there.
    """
    context = _context_of(spark)
    conf = dict(context.getConf().getAll())
    if conf.get(SPECULATION) == "true":
        raise ConfigError(
            f"this session has {SPECULATION} true, which could start a second writer for a lane: "
            f"create it with {SPECULATION} false"
        )
    missing = [f"{k} {v}" for k, v in AUTHENTICATED.items() if conf.get(k) != v]
    if missing and not may_be_open:
        raise ConfigError(
            f"this session lacks {', '.join(missing)}: {NEEDED_BECAUSE}; create it with these "
            "settings, or, if no other client reaches those ports, pass "
            "allow_unauthenticated_spark=True",
            code="SPARK_UNAUTHENTICATED",
        )
    return SparkOptions(master=context.master, given=conf, context=context)


def _context_of(spark: Any) -> SparkContext:
    if isinstance(spark, SparkContext):
        return spark
    try:
        context = spark.sparkContext
    except Exception:  # noqa: BLE001 (each version of Spark Connect raises another error)
        context = None
    if not isinstance(context, SparkContext):
        raise EnvironmentMissing(
            "this session has no SparkContext, as with Spark Connect, on which lanes do not run: "
            "use a session of the cluster's own driver, or `twinlog mirror --master`"
        )
    return context


class AttachedJvm:
    """The JVM and the application of the session."""

    def __init__(self, options: SparkOptions) -> None:
        self._context = options.context
        self.gateway = SessionGateway()

    def begin(self, _lanes: int, **_: object) -> Engine:
        """Return the session's application, which already runs."""
        return Engine(context=self._context, gateway=self.gateway, is_ours=False)


class SessionGateway(SubmittedGateway):
    """The JVM of the session."""

    @property
    def has_ended(self) -> bool:
        """Return False: calls of the context show the end."""
        return False
