"""Every error that Twinlog raises, as one tree with stable codes and fates.

    TwinlogError
    |-- UsageError                  wrong command line                              exit code 2
    |-- ConfigError                 a key of the configuration is wrong             exit code 2
    |-- EnvironmentMissing          Java, Python or a jar is missing                exit code 1
    |-- ClusterError                one Kafka cluster
    |   |-- Unreachable             no broker responds                              retriable
    |   |   |-- Refused             no process listens at any of its addresses      retriable
    |   |   `-- EndpointAway        the endpoint of OAuth tokens does not respond   retriable
    |   |-- Disconnected            a connection broke during a request             retriable
    |   |-- AuthenticationFailed    TLS or SASL authentication failed
    |   |-- Unauthorized            an ACL is missing
    |   |-- BrokerRefused           any other error code in a response
    |   `-- Unsupported             the broker lacks an API
    |-- DriverSilent                a lane must stop: its driver relies on it
    |-- CorruptData                 invalid bytes                                   corrupt
    |-- RecordsLost                 the log no longer has the requested records
    |-- PartitionError              one partition of one flow stops, the rest continues
    `-- FlowError                   one flow cannot run
        |-- NotLeader               another process leads the flow
        `-- AdoptionRefused         MirrorMaker 2 cannot be taken over now          exit code 2

A code is part of the interface: scripts and alerts match it, so its meaning never changes. It is in
brackets at the end of the message, and so is kept where only text is passed on (errors of Spark's
workers).

The fate is separate from the class, because it depends on the error code of the broker: a
`BrokerRefused` may be a leader that has moved, or a configuration that is invalid. Code that
retries decides by the fate (`cluster.net.retry`), code that reports by the class and the code.
"""

from __future__ import annotations

from copy import copy
from enum import StrEnum
from typing import Any, Self, TypeVar

from twinlog.model import TopicPartition
from twinlog.shown import without_secrets


class Fate(StrEnum):
    """Whether a retry can help."""

    RETRIABLE = "retriable"
    """The same request may succeed later: a leader has moved, or a broker restarts."""
    FATAL = "fatal"
    """The same request fails again until something else changes, such as a setting or an ACL."""
    CORRUPT = "corrupt"
    """Bytes failed a check. A call does not retry, because it would probably read them again."""


class TwinlogError(Exception):
    """Base of all errors. `code` names the condition, and `fate` whether a retry can help."""

    code = "INTERNAL"
    fate = Fate.FATAL
    exit_code = 1
    poison: tuple[int, int] | None = None
    """Upstream offsets [first, next) that cause the error, if they are known exactly and skipping
    them would resolve it.
    """

    flow = ""
    """The flow, if known; the message begins with it."""
    partition: TopicPartition | None = None
    """The partition, if the error concerns a single one."""

    def __init__(
        self,
        what: str,
        *,
        code: str | None = None,
        fate: Fate | None = None,
        flow: object = "",
        partition: TopicPartition | None = None,
    ) -> None:
        self.what = what = without_secrets(what)  # once, not each time the error is shown
        self.flow = str(flow)
        self.message = f"{flow}: {what}" if self.flow else what
        super().__init__(self.message)
        if partition is not None:
            self.partition = partition
        if code is not None:
            self.code = code
        if fate is not None:
            self.fate = fate

    def __str__(self) -> str:
        return f"{self.message} [{self.code}]"

    def without_flow(self) -> Self:
        """Return the error without the flow in its message, for callers that add it themselves."""
        if not self.flow:
            return self
        error = copy(self)
        error.message, error.flow = self.what, ""
        return error

    def and_also(self, more: str) -> Self:
        """Return the error with more text appended to its message."""
        error = copy(self)
        error.what, error.message = f"{self.what}; {more}", f"{self.message}; {more}"
        return error

    def __reduce__(self) -> tuple[Any, ...]:
        # keyword arguments are not in `args`, so pickling would lose the code
        return _unpickled, (type(self), self.__dict__)


def _unpickled(kind: type[TwinlogError], state: dict[str, Any]) -> TwinlogError:
    error = kind.__new__(kind, state["message"])
    error.__dict__.update(state)
    return error


class UsageError(TwinlogError):
    """The command line is invalid."""

    code = "USAGE"
    exit_code = 2


class ConfigError(TwinlogError):
    """A key or value of the configuration is wrong. The message names file, line and key."""

    code = "CONFIG_INVALID"
    exit_code = 2
    more: tuple[ConfigError, ...] = ()
    """Further errors of the same file, in order."""
    warnings: tuple[Any, ...] = ()
    """Warnings about the file: ConfigWarnings."""
    lacks = ""
    """The missing key or field, if that is the error."""

    def __init__(
        self,
        what: str,
        *,
        file: str | None = None,
        line: int | None = None,
        key: str | None = None,
        lacks: str = "",
        **details: Any,
    ) -> None:
        location = file if line is None else f"{file}:{line}"
        super().__init__(": ".join(part for part in (location, key, what) if part), **details)
        self.what, self.file, self.line, self.key = without_secrets(what), file, line, key
        if lacks:
            self.lacks = lacks

    def __str__(self) -> str:
        if not self.more:
            return super().__str__()
        errors = "error" if len(self.more) == 1 else "errors"
        return f"{self.message}; and {len(self.more)} more {errors} of the file [{self.code}]"

    @property
    def each(self) -> tuple[ConfigError, ...]:
        """This error and the further ones, separately."""
        alone = copy(self)
        alone.more, alone.warnings = (), ()
        return (alone, *self.more)


class EnvironmentMissing(TwinlogError):
    """This machine lacks something that Twinlog needs, such as Java."""

    code = "ENVIRONMENT"


class ClusterError(TwinlogError):
    """A request to a Kafka cluster failed."""

    code = "CLUSTER"
    reason = ""
    """The reason alone, for callers that name cluster and address themselves. Empty if the message
    names neither.
    """

    def __init__(self, what: str, *, reason: str = "", **details: Any) -> None:
        super().__init__(what, **details)
        if reason:
            self.reason = reason


class Unreachable(ClusterError):
    """No broker of the cluster accepts a connection."""

    code = "UNREACHABLE"
    fate = Fate.RETRIABLE


class Refused(Unreachable):
    """No process listens at any address of the cluster, or its names cannot be resolved.

    Hosts and resolvers report this immediately, unlike an address that does not respond.
    """


class EndpointAway(Unreachable):
    """The endpoint that issues OAuth tokens does not respond."""


class Disconnected(ClusterError):
    """A connection broke or timed out during a request, whose outcome is therefore unknown."""

    code = "DISCONNECTED"
    fate = Fate.RETRIABLE


class AuthenticationFailed(ClusterError):
    """The TLS handshake or SASL exchange was rejected."""

    code = "AUTHENTICATION_FAILED"


class Unauthorized(ClusterError):
    """The brokers' authorizer denied an operation. The message names the missing permission."""

    code = "UNAUTHORIZED"


class BrokerRefused(ClusterError):
    """A broker responded with an error code of Kafka's protocol, which is in `kafka_error`."""

    code = "BROKER_REFUSED"

    def __init__(self, message: str, *, kafka_error: int = -1, **details: Any) -> None:
        super().__init__(message, **details)
        self.kafka_error = kafka_error


class Unsupported(ClusterError):
    """The broker does not offer a required API or version."""

    code = "UNSUPPORTED"


class DriverSilent(TwinlogError):
    """A lane's driver has been silent for so long that another lane may have its partitions."""

    code = "CHANNEL_SILENT"


class CorruptData(TwinlogError):
    """Bytes failed a check of CRC, length or structure."""

    code = "CORRUPT_BATCH"
    fate = Fate.CORRUPT


class RecordsLost(TwinlogError):
    """Requested records are no longer in the log: RETENTION, TRUNCATED, LOG_GAP."""

    code = "RETENTION"

    def __init__(self, message: str, *, lost: tuple[int, int] = (-1, -1), **details: Any) -> None:
        super().__init__(message, **details)
        self.lost = lost
        """[first, end) of the missing offsets."""


class PartitionError(TwinlogError):
    """One partition of a flow stops with this code. It is retried later; the others are copied.

    Its codes are in table `partition` of `codes/codes.toml`. Those of a rebuild are in table
    `command`, and that of two aliases of one cluster in table `flow`.
    """

    code = "PARTITION"
    lost: tuple[int, int] | None = None
    """For SOURCE_DIVERGED: the copied upstream offsets [first, next) that the source has lost."""
    finding: Any = None
    """The `twinlog.mirror.findings.LogFinding` from which the message was made, if any."""


class FlowError(TwinlogError):
    """A whole flow cannot run."""

    code = "FLOW"


class NotLeader(FlowError):
    """Another process leads this flow."""

    code = "NOT_LEADER"


class AdoptionRefused(FlowError):
    """MirrorMaker 2 cannot be taken over now: MM2_RUNNING, MM2_NOT_FOUND."""

    code = "MM2_RUNNING"
    exit_code = 2


FoundT = TypeVar("FoundT")


def or_raise(answer: FoundT | TwinlogError) -> FoundT:
    """Return the result, or raise it if it is an error. Queries about many partitions or groups
    return one or the other for each.
    """
    if isinstance(answer, TwinlogError):
        raise answer
    return answer
