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
brackets at the end of the message, so it also survives text-only paths (Spark's worker errors).
"""

from __future__ import annotations

from copy import copy
from enum import StrEnum
from typing import Any, Self, TypeVar

from twinlog.hidden import without_secrets
from twinlog.model import TopicPartition


class Fate(StrEnum):
    """How a caller may handle an error."""

    RETRIABLE = "retriable"
    FATAL = "fatal"
    CORRUPT = "corrupt"


class TwinlogError(Exception):
    """Base of all errors. `code` names the condition, and `fate` shows whether retrying
    can help.
    """

    code = "INTERNAL"
    fate = Fate.FATAL
    exit_code = 1
    poison: tuple[int, int] | None = None
    """[first, next) of the upstream offsets in question, if known exactly and if skipping them
    would resolve the error.
    """

    flow = ""
    """The flow, if known. The message begins with it."""
    partition: TopicPartition | None = None
    """The partition, if it concerns one."""

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
        """Return the error without the flow, for callers that add the flow themselves."""
        if not self.flow:
            return self
        error = copy(self)
        error.message, error.flow = self.what, ""
        return error

    def and_also(self, said: str) -> Self:
        """Return the error with more text appended."""
        error = copy(self)
        error.what, error.message = f"{self.what}; {said}", f"{self.message}; {said}"
        return error

    def __reduce__(self) -> tuple[Any, ...]:
        # keyword arguments are not in args: without this, an unpickled error would lose its code
        return _again, (type(self), self.__dict__)


def _again(kind: type[TwinlogError], state: dict[str, Any]) -> TwinlogError:
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
    """Something outside Twinlog is missing on this machine."""

    code = "ENVIRONMENT"


class ClusterError(TwinlogError):
    """A request to a Kafka cluster failed."""

    code = "CLUSTER"
    reason = ""
    """The reason, for callers that name cluster and address themselves; empty if the message is
    enough.
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
    """No process listens at any address of the cluster, or its names cannot be resolved. Hosts or
    resolver report it immediately.
    """


class EndpointAway(Unreachable):
    """The endpoint that issues tokens for the login does not respond."""


class Disconnected(ClusterError):
    """A connection ended or timed out while waiting for a response: the outcome is unknown."""

    code = "DISCONNECTED"
    fate = Fate.RETRIABLE


class AuthenticationFailed(ClusterError):
    """The TLS handshake or SASL exchange was rejected."""

    code = "AUTHENTICATION_FAILED"


class Unauthorized(ClusterError):
    """The cluster's authorizer denied an operation. The message names the missing ACL."""

    code = "UNAUTHORIZED"


class BrokerRefused(ClusterError):
    """A broker responded with an error code of the Kafka protocol, which is in `kafka_error`."""

    code = "BROKER_REFUSED"

    def __init__(self, message: str, *, kafka_error: int = -1, **details: Any) -> None:
        super().__init__(message, **details)
        self.kafka_error = kafka_error


class Unsupported(ClusterError):
    """The broker does not offer a required API or version."""

    code = "UNSUPPORTED"


class DriverSilent(TwinlogError):
    """A lane has received nothing from its driver for so long that other lanes may have its
    partitions.
    """

    code = "CHANNEL_SILENT"


class CorruptData(TwinlogError):
    """Bytes failed a check: CRC, length or structure."""

    code = "CORRUPT_BATCH"
    fate = Fate.CORRUPT


class RecordsLost(TwinlogError):
    """Requested records are not in the log: RETENTION, TRUNCATED, LOG_GAP."""

    code = "RETENTION"

    def __init__(self, message: str, *, lost: tuple[int, int] = (-1, -1), **details: Any) -> None:
        super().__init__(message, **details)
        self.lost = lost
        """[first, end) of the missing offsets."""


class PartitionError(TwinlogError):
    """One partition of a flow stops with this code. It is retried later, and the others continue.

    Its codes are in table `partition` of `codes/codes.toml`. Codes of a rebuild, and of two
    clusters that are the same one, are in tables `command` and `flow`.
    """

    code = "PARTITION"
    lost: tuple[int, int] | None = None
    """For SOURCE_DIVERGED: [first, next) of copied upstream offsets that the source lost."""
    finding: Any = None
    """A `twinlog.mirror.findings.LogFinding`, from which the message is made."""


class FlowError(TwinlogError):
    """A whole flow cannot run."""

    code = "FLOW"


class NotLeader(FlowError):
    """Another process leads this flow."""

    code = "NOT_LEADER"


class AdoptionRefused(FlowError):
    """A MirrorMaker 2 cannot be taken over in the current state: MM2_RUNNING, MM2_NOT_FOUND."""

    code = "MM2_RUNNING"
    exit_code = 2


FoundT = TypeVar("FoundT")


def or_raise(found: FoundT | TwinlogError) -> FoundT:
    """Return the result, or raise it if it is an error. For mappings that may have an error per
    key.
    """
    if isinstance(found, TwinlogError):
        raise found
    return found
