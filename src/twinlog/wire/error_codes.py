"""Kafka's error codes in one table: name, whether a retry can help, and Twinlog's error.

A broker's response contains an error number. `error_for` turns the number into the exception that
callers catch. The class of the exception is the kind of error. Its `fate` shows whether the same
request may succeed later, and its `code` is the stable name for scripts and alerts. Names,
`retriable` and `stale` are those of Java's `Errors`, `RetriableException` and
`InvalidMetadataException` (Kafka 4.3); a test compares them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from twinlog.errors import (
    AuthenticationFailed,
    BrokerRefused,
    ClusterError,
    Fate,
    Unauthorized,
    Unsupported,
)

NONE: Final = 0
OFFSET_OUT_OF_RANGE: Final = 1
CORRUPT_MESSAGE: Final = 2
UNKNOWN_TOPIC_OR_PARTITION: Final = 3
LEADER_NOT_AVAILABLE: Final = 5
BROKER_NOT_AVAILABLE: Final = 8
MESSAGE_TOO_LARGE: Final = 10
COORDINATOR_LOAD_IN_PROGRESS: Final = 14
COORDINATOR_NOT_AVAILABLE: Final = 15
NOT_COORDINATOR: Final = 16
RECORD_LIST_TOO_LARGE: Final = 18
NOT_ENOUGH_REPLICAS: Final = 19
NOT_ENOUGH_REPLICAS_AFTER_APPEND: Final = 20
ILLEGAL_GENERATION: Final = 22
UNKNOWN_MEMBER_ID: Final = 25
REBALANCE_IN_PROGRESS: Final = 27
TOPIC_AUTHORIZATION_FAILED: Final = 29
GROUP_AUTHORIZATION_FAILED: Final = 30
CLUSTER_AUTHORIZATION_FAILED: Final = 31
INVALID_TIMESTAMP: Final = 32
TOPIC_ALREADY_EXISTS: Final = 36
INVALID_REPLICATION_FACTOR: Final = 38
OUT_OF_ORDER_SEQUENCE_NUMBER: Final = 45
DUPLICATE_SEQUENCE_NUMBER: Final = 46
INVALID_PRODUCER_EPOCH: Final = 47
UNKNOWN_PRODUCER_ID: Final = 59
GROUP_ID_NOT_FOUND: Final = 69
FENCED_LEADER_EPOCH: Final = 74
UNKNOWN_LEADER_EPOCH: Final = 75
UNSUPPORTED_COMPRESSION_TYPE: Final = 76
OFFSET_NOT_AVAILABLE: Final = 78
MEMBER_ID_REQUIRED: Final = 79
INVALID_RECORD: Final = 87
UNSTABLE_OFFSET_COMMIT: Final = 88
THROTTLING_QUOTA_EXCEEDED: Final = 89
UNKNOWN_TOPIC_ID: Final = 100
REBOOTSTRAP_REQUIRED: Final = 129


@dataclass(frozen=True, slots=True)
class KafkaError:
    """One error code of the protocol."""

    number: int
    name: str
    retriable: bool = False
    stale: bool = False
    """True if the error shows outdated metadata of leaders or topics (Java: invalid metadata)."""
    kind: type[ClusterError] = BrokerRefused
    own_code: str = ""
    """The stable code, if it is neither the name (BrokerRefused) nor that of the class."""
    advice: str = ""

    @property
    def code(self) -> str:
        """The stable code of Twinlog's error."""
        return self.own_code or (self.name if self.kind is BrokerRefused else self.kind.code)


_row = KafkaError
_ROWS: Final = (
    _row(-1, "UNKNOWN_SERVER_ERROR"),
    _row(1, "OFFSET_OUT_OF_RANGE"),
    _row(2, "CORRUPT_MESSAGE", retriable=True),
    _row(3, "UNKNOWN_TOPIC_OR_PARTITION", retriable=True, stale=True, own_code="TOPIC_MISSING"),
    _row(4, "INVALID_FETCH_SIZE"),
    _row(5, "LEADER_NOT_AVAILABLE", retriable=True, stale=True),
    _row(6, "NOT_LEADER_OR_FOLLOWER", retriable=True, stale=True),
    _row(7, "REQUEST_TIMED_OUT", retriable=True),
    _row(8, "BROKER_NOT_AVAILABLE"),
    _row(9, "REPLICA_NOT_AVAILABLE", retriable=True, stale=True),
    _row(
        10,
        "MESSAGE_TOO_LARGE",
        advice="raise max.message.bytes of the topic (or message.max.bytes of the brokers)",
    ),
    _row(11, "STALE_CONTROLLER_EPOCH"),
    _row(12, "OFFSET_METADATA_TOO_LARGE"),
    _row(13, "NETWORK_EXCEPTION", retriable=True, stale=True),
    _row(14, "COORDINATOR_LOAD_IN_PROGRESS", retriable=True),
    _row(15, "COORDINATOR_NOT_AVAILABLE", retriable=True),
    _row(16, "NOT_COORDINATOR", retriable=True),
    _row(
        17,
        "INVALID_TOPIC_EXCEPTION",
        advice="topic names have 1 to 249 of the characters a-z A-Z 0-9 . _ -",
    ),
    _row(18, "RECORD_LIST_TOO_LARGE", advice="raise segment.bytes of the topic"),
    _row(
        19,
        "NOT_ENOUGH_REPLICAS",
        retriable=True,
        advice="fewer replicas are in sync than min.insync.replicas requires: check the brokers",
    ),
    _row(
        20,
        "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
        retriable=True,
        advice="fewer replicas are in sync than min.insync.replicas requires: check the brokers",
    ),
    _row(21, "INVALID_REQUIRED_ACKS"),
    _row(22, "ILLEGAL_GENERATION"),
    _row(
        23,
        "INCONSISTENT_GROUP_PROTOCOL",
        advice="members of another protocol type already use this group ID",
    ),
    _row(24, "INVALID_GROUP_ID"),
    _row(25, "UNKNOWN_MEMBER_ID"),
    _row(
        26,
        "INVALID_SESSION_TIMEOUT",
        advice="Twinlog's session timeout is outside the brokers' limits "
        "(group.min.session.timeout.ms, group.max.session.timeout.ms)",
    ),
    _row(27, "REBALANCE_IN_PROGRESS"),
    _row(28, "INVALID_COMMIT_OFFSET_SIZE"),
    _row(29, "TOPIC_AUTHORIZATION_FAILED", kind=Unauthorized, own_code="TOPIC_UNAUTHORIZED"),
    _row(30, "GROUP_AUTHORIZATION_FAILED", kind=Unauthorized, own_code="GROUP_UNAUTHORIZED"),
    _row(31, "CLUSTER_AUTHORIZATION_FAILED", kind=Unauthorized, own_code="CLUSTER_UNAUTHORIZED"),
    _row(32, "INVALID_TIMESTAMP"),
    _row(33, "UNSUPPORTED_SASL_MECHANISM", kind=AuthenticationFailed),
    _row(34, "ILLEGAL_SASL_STATE", kind=AuthenticationFailed),
    _row(35, "UNSUPPORTED_VERSION", kind=Unsupported),
    _row(36, "TOPIC_ALREADY_EXISTS"),
    _row(37, "INVALID_PARTITIONS"),
    _row(
        38,
        "INVALID_REPLICATION_FACTOR",
        own_code="REPLICATION_FACTOR",
        advice="set replication.factor to at most the number of live brokers",
    ),
    _row(39, "INVALID_REPLICA_ASSIGNMENT"),
    _row(40, "INVALID_CONFIG"),
    _row(41, "NOT_CONTROLLER", retriable=True),
    _row(42, "INVALID_REQUEST"),
    _row(43, "UNSUPPORTED_FOR_MESSAGE_FORMAT", kind=Unsupported),
    _row(
        44,
        "POLICY_VIOLATION",
        advice="a policy class of the brokers does not allow this request "
        "(create.topic.policy.class.name, alter.config.policy.class.name)",
    ),
    _row(45, "OUT_OF_ORDER_SEQUENCE_NUMBER"),
    _row(46, "DUPLICATE_SEQUENCE_NUMBER"),
    _row(47, "INVALID_PRODUCER_EPOCH"),
    _row(48, "INVALID_TXN_STATE"),
    _row(49, "INVALID_PRODUCER_ID_MAPPING"),
    _row(
        50,
        "INVALID_TRANSACTION_TIMEOUT",
        advice="the transaction timeout is above the brokers' transaction.max.timeout.ms: use a "
        "shorter transaction timeout, or raise transaction.max.timeout.ms",
    ),
    _row(51, "CONCURRENT_TRANSACTIONS", retriable=True),
    _row(52, "TRANSACTION_COORDINATOR_FENCED"),
    _row(
        53,
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
        kind=Unauthorized,
        own_code="TRANSACTIONAL_ID_UNAUTHORIZED",
    ),
    _row(54, "SECURITY_DISABLED", advice="the brokers have no authorizer (authorizer.class.name)"),
    _row(55, "OPERATION_NOT_ATTEMPTED"),
    _row(
        56,
        "KAFKA_STORAGE_ERROR",
        retriable=True,
        stale=True,
        advice="a disk of the broker has failed: check the broker's server log",
    ),
    _row(57, "LOG_DIR_NOT_FOUND"),
    _row(58, "SASL_AUTHENTICATION_FAILED", kind=AuthenticationFailed),
    _row(59, "UNKNOWN_PRODUCER_ID"),
    _row(60, "REASSIGNMENT_IN_PROGRESS"),
    _row(61, "DELEGATION_TOKEN_AUTH_DISABLED"),
    _row(62, "DELEGATION_TOKEN_NOT_FOUND"),
    _row(63, "DELEGATION_TOKEN_OWNER_MISMATCH"),
    _row(64, "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED"),
    _row(65, "DELEGATION_TOKEN_AUTHORIZATION_FAILED", kind=Unauthorized),
    _row(66, "DELEGATION_TOKEN_EXPIRED"),
    _row(67, "INVALID_PRINCIPAL_TYPE"),
    _row(68, "NON_EMPTY_GROUP"),
    _row(69, "GROUP_ID_NOT_FOUND"),
    _row(70, "FETCH_SESSION_ID_NOT_FOUND", retriable=True),
    _row(71, "INVALID_FETCH_SESSION_EPOCH", retriable=True),
    _row(72, "LISTENER_NOT_FOUND", retriable=True, stale=True),
    _row(73, "TOPIC_DELETION_DISABLED", advice="the brokers have delete.topic.enable=false"),
    _row(74, "FENCED_LEADER_EPOCH", retriable=True, stale=True),
    _row(75, "UNKNOWN_LEADER_EPOCH", retriable=True),
    _row(76, "UNSUPPORTED_COMPRESSION_TYPE", kind=Unsupported),
    _row(77, "STALE_BROKER_EPOCH"),
    _row(78, "OFFSET_NOT_AVAILABLE", retriable=True),
    _row(79, "MEMBER_ID_REQUIRED"),
    _row(80, "PREFERRED_LEADER_NOT_AVAILABLE", retriable=True, stale=True),
    _row(81, "GROUP_MAX_SIZE_REACHED", advice="the group has group.max.size members already"),
    _row(82, "FENCED_INSTANCE_ID"),
    _row(83, "ELIGIBLE_LEADERS_NOT_AVAILABLE", retriable=True, stale=True),
    _row(84, "ELECTION_NOT_NEEDED", retriable=True, stale=True),
    _row(85, "NO_REASSIGNMENT_IN_PROGRESS"),
    _row(86, "GROUP_SUBSCRIBED_TO_TOPIC"),
    _row(87, "INVALID_RECORD"),
    _row(
        UNSTABLE_OFFSET_COMMIT,
        "UNSTABLE_OFFSET_COMMIT",
        retriable=True,
        advice="a transaction that commits offsets of the group is still open: retry after it has "
        "ended; kafka-transactions.sh find-hanging lists hanging transactions",
    ),
    _row(
        THROTTLING_QUOTA_EXCEEDED,
        "THROTTLING_QUOTA_EXCEEDED",
        retriable=True,
        advice="a broker quota is exceeded",
    ),
    _row(90, "PRODUCER_FENCED"),
    _row(91, "RESOURCE_NOT_FOUND"),
    _row(92, "DUPLICATE_RESOURCE"),
    _row(93, "UNACCEPTABLE_CREDENTIAL"),
    _row(94, "INCONSISTENT_VOTER_SET"),
    _row(95, "INVALID_UPDATE_VERSION"),
    _row(96, "FEATURE_UPDATE_FAILED"),
    _row(97, "PRINCIPAL_DESERIALIZATION_FAILURE"),
    _row(98, "SNAPSHOT_NOT_FOUND"),
    _row(99, "POSITION_OUT_OF_RANGE"),
    _row(100, "UNKNOWN_TOPIC_ID", retriable=True, stale=True),
    _row(101, "DUPLICATE_BROKER_REGISTRATION"),
    _row(102, "BROKER_ID_NOT_REGISTERED"),
    _row(103, "INCONSISTENT_TOPIC_ID", retriable=True, stale=True),
    _row(104, "INCONSISTENT_CLUSTER_ID"),
    _row(105, "TRANSACTIONAL_ID_NOT_FOUND"),
    _row(106, "FETCH_SESSION_TOPIC_ID_ERROR", retriable=True),
    _row(107, "INELIGIBLE_REPLICA"),
    _row(108, "NEW_LEADER_ELECTED"),
    _row(109, "OFFSET_MOVED_TO_TIERED_STORAGE"),
    _row(110, "FENCED_MEMBER_EPOCH"),
    _row(111, "UNRELEASED_INSTANCE_ID"),
    _row(112, "UNSUPPORTED_ASSIGNOR"),
    _row(113, "STALE_MEMBER_EPOCH"),
    _row(114, "MISMATCHED_ENDPOINT_TYPE"),
    _row(115, "UNSUPPORTED_ENDPOINT_TYPE"),
    _row(116, "UNKNOWN_CONTROLLER_ID"),
    _row(117, "UNKNOWN_SUBSCRIPTION_ID"),
    _row(118, "TELEMETRY_TOO_LARGE"),
    _row(119, "INVALID_REGISTRATION"),
    _row(120, "TRANSACTION_ABORTABLE"),
    _row(121, "INVALID_RECORD_STATE"),
    _row(122, "SHARE_SESSION_NOT_FOUND", retriable=True),
    _row(123, "INVALID_SHARE_SESSION_EPOCH", retriable=True),
    _row(124, "FENCED_STATE_EPOCH"),
    _row(125, "INVALID_VOTER_KEY"),
    _row(126, "DUPLICATE_VOTER"),
    _row(127, "VOTER_NOT_FOUND"),
    _row(128, "INVALID_REGULAR_EXPRESSION"),
    _row(129, "REBOOTSTRAP_REQUIRED"),
    _row(130, "STREAMS_INVALID_TOPOLOGY"),
    _row(131, "STREAMS_INVALID_TOPOLOGY_EPOCH"),
    _row(132, "STREAMS_TOPOLOGY_FENCED"),
    _row(133, "SHARE_SESSION_LIMIT_REACHED", retriable=True),
)


ERRORS: Final = {row.number: row for row in _ROWS}

STALE_LEADER: Final = frozenset(
    {row.number for row in _ROWS if row.stale} | {UNKNOWN_LEADER_EPOCH, OFFSET_NOT_AVAILABLE}
)
"""Errors after which the leader must be looked up again, because it changed or is not ready."""


def lookup(number: int) -> KafkaError:
    """Return the table's row for an error number. For an unknown number, this is a fatal error."""
    return ERRORS.get(number) or _row(number, f"ERROR_{number}")


def error_for(
    number: int,
    *,
    cluster: str,
    doing: str,
    acl: str | None = None,
    detail: str | None = None,
    advice: str | None = None,
) -> ClusterError:
    """Return Twinlog's error for an error code in a response.

    `doing` describes the request, for example "creating topic orders". `acl` is the permission that
    the request needs. `detail` is the broker's own text. If a denial has an `acl`, its message
    omits `detail`, because `acl` is more precise. `advice` replaces the advice in the table.
    """
    row = lookup(number)
    message = f"cluster {cluster}: {doing} failed with {row.name}"
    needed = acl if row.kind is Unauthorized else None
    if detail and not needed:
        message += f" ({detail.strip().rstrip('.')})"
    advice = f"grant {needed} to Twinlog's user" if needed else advice or row.advice
    if advice:
        message += f": {advice}"
    fate = Fate.RETRIABLE if row.retriable else None
    if row.kind is BrokerRefused:
        return BrokerRefused(message, kafka_error=number, code=row.code, fate=fate)
    return row.kind(message, code=row.code, fate=fate)
