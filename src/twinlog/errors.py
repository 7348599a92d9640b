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
    |-- DriverSilent                a lane must stop, because its driver was silent for too long
    |-- CorruptData                 invalid bytes                                   corrupt
    |-- RecordsLost                 the log no longer has the requested records
    |-- PartitionError              one partition of one flow stops, all others continue
    `-- FlowError                   one flow cannot run
        |-- NotLeader               another process leads the flow
        `-- AdoptionRefused         MirrorMaker 2 cannot be taken over now          exit code 2

A code is part of the interface: scripts and alerts match it, so its meaning never changes. The code
is in brackets at the end of the message, so that it is not lost if only the text is passed on
(errors of Spark's workers).

The fate is independent of the class, because it depends on the broker's error code. For example,
the reason of a `BrokerRefused` may be a moved leader, which is retriable, or an invalid
configuration, which is not. Retries depend on the fate (`cluster.net.retry`), and reports on the
class and the code.
"""

from __future__ import annotations

from copy import copy
from enum import StrEnum
from typing import Any, Self, TypeVar

from twinlog.model import TopicPartition
from twinlog.shown import without_secrets


class Fate(StrEnum):
    """Says if a retry can help."""

    RETRIABLE = "retriable"
    """The same request may succeed later: a leader has moved, or a broker restarts."""
    FATAL = "fatal"
    """The same request fails again until something else changes, such as a setting or an ACL."""
    CORRUPT = "corrupt"
    """Bytes failed a check. Calls do not retry, because they would probably read the same bytes."""


class TwinlogError(Exception):
    """Base class of all errors. `code` identifies the problem, `fate` says if a retry can help."""

    code = "INTERNAL"
    fate = Fate.FATAL
    exit_code = 1
    poison: tuple[int, int] | None = None
    """The upstream offsets [first, next) of the records that cause the error. None unless they are
    known exactly, and skipping these records would resolve the error.
    """

    flow = ""
    """Name of the flow, with which the message begins. Empty if unknown."""
    partition: TopicPartition | None = None
    """The partition that the error is about, or None if it is not about a single partition."""

    def __init__(
        self,
        what: str,
        *,
        code: str | None = None,
        fate: Fate | None = None,
        flow: object = "",
        partition: TopicPartition | None = None,
    ) -> None:
        self.what = what = without_secrets(what)  # once, not in each output
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
        """Return a copy without the flow in its message, for callers that add the flow."""
        if not self.flow:
            return self
        error = copy(self)
        error.message, error.flow = self.what, ""
        return error

    def with_addition(self, more: str) -> Self:
        """Return a copy of the error with `more` appended to the message."""
        error = copy(self)
        error.what, error.message = f"{self.what}; {more}", f"{self.message}; {more}"
        return error

    def __reduce__(self) -> tuple[Any, ...]:
        # pickle the state, because keyword arguments such as the code are not in `args`
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
    """A key or value of the configuration is wrong. The message contains file, line and key."""

    code = "CONFIG_INVALID"
    exit_code = 2
    more: tuple[ConfigError, ...] = ()
    """All other errors in the file, in the order of its lines."""
    warnings: tuple[Any, ...] = ()
    """Warnings about the file in which the error is (ConfigWarning)."""
    missing_key = ""
    """The missing key or field, or an empty text if nothing is missing."""

    def __init__(
        self,
        what: str,
        *,
        file: str | None = None,
        line: int | None = None,
        key: str | None = None,
        missing_key: str = "",
        **details: Any,
    ) -> None:
        location = file if line is None else f"{file}:{line}"
        super().__init__(": ".join(part for part in (location, key, what) if part), **details)
        self.what, self.file, self.line, self.key = without_secrets(what), file, line, key
        if missing_key:
            self.missing_key = missing_key

    def __str__(self) -> str:
        if not self.more:
            return super().__str__()
        errors = "error" if len(self.more) == 1 else "errors"
        return f"{self.message}; and {len(self.more)} more {errors} of the file [{self.code}]"

    @property
    def each(self) -> tuple[ConfigError, ...]:
        """This error (without `more`) and the errors in `more`."""
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
    """The message without cluster and address, for callers that add these themselves. An empty text
    if `message` contains neither.
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

    Hosts and resolvers report this immediately, whereas an address that does not respond times out.
    """


class EndpointAway(Unreachable):
    """The endpoint that issues OAuth tokens does not respond."""


class Disconnected(ClusterError):
    """A connection broke or timed out during a request. The request's outcome is unknown."""

    code = "DISCONNECTED"
    fate = Fate.RETRIABLE


class AuthenticationFailed(ClusterError):
    """The TLS handshake or SASL exchange was rejected."""

    code = "AUTHENTICATION_FAILED"


class Unauthorized(ClusterError):
    """The brokers' authorizer denied an operation. The message names the missing permission."""

    code = "UNAUTHORIZED"


class BrokerRefused(ClusterError):
    """A broker responded with an error code of Kafka's protocol (`kafka_error`)."""

    code = "BROKER_REFUSED"

    def __init__(self, message: str, *, kafka_error: int = -1, **details: Any) -> None:
        super().__init__(message, **details)
        self.kafka_error = kafka_error


class Unsupported(ClusterError):
    """The broker does not offer a required API or version."""

    code = "UNSUPPORTED"


class DriverSilent(TwinlogError):
    """A lane's driver was silent for so long that another lane may own the lane's partitions."""

    code = "CHANNEL_SILENT"


class CorruptData(TwinlogError):
    """Bytes failed a check of CRC, length or structure."""

    code = "CORRUPT_BATCH"
    fate = Fate.CORRUPT


class RecordsLost(TwinlogError):
    """Requested records are no longer in the log. Codes: RETENTION, TRUNCATED, LOG_GAP."""

    code = "RETENTION"

    def __init__(self, message: str, *, lost: tuple[int, int] = (-1, -1), **details: Any) -> None:
        super().__init__(message, **details)
        self.lost = lost
        """The missing offsets [first, end), or (-1, -1) if unknown."""


class PartitionError(TwinlogError):
    """One partition of a flow stops with this code, and is retried later. Other partitions are
    copied.

    The codes are in table `partition` of `codes/codes.toml`. Codes of a rebuild are in table
    `command`, and the code for two aliases of one cluster is in table `flow`.
    """

    code = "PARTITION"
    lost: tuple[int, int] | None = None
    """For SOURCE_DIVERGED: the copied upstream offsets [first, next) that the source has lost."""
    finding: Any = None
    """The `twinlog.mirror.findings.LogFinding` from which the message was created, or None."""


class FlowError(TwinlogError):
    """A whole flow cannot run."""

    code = "FLOW"


class NotLeader(FlowError):
    """Another process leads this flow."""

    code = "NOT_LEADER"


class AdoptionRefused(FlowError):
    """MirrorMaker 2 cannot be taken over now. Codes: MM2_RUNNING, MM2_NOT_FOUND."""

    code = "MM2_RUNNING"
    exit_code = 2


FoundT = TypeVar("FoundT")


def or_raise(answer: FoundT | TwinlogError) -> FoundT:
    """Return a result, or raise it if it is an error. Queries about many partitions or groups
    return either a result or an error for each.
    """
    if isinstance(answer, TwinlogError):
        raise answer
    return answer
