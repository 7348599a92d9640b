"""Options of the reader and the writer: names in any case, and `kafka.*`, keys of Java's clients.

An option of Spark or Kafka that has no effect here causes a warning, as in Spark. So a job for
`format("kafka")` needs to change only the name of the format. Options of other formats, and keys of
Kafka's clients without `kafka.`, cause a warning, too. A reader also warns of the writer's options,
and a writer of the reader's, because jobs pass one set of options to both. Any other unknown option
is an error that suggests the nearest name. A connection's key without `kafka.` is also an error,
because the connection would be less secure without the key.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping
from typing import Final

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.net.settings import (
    DEFAULT_REQUEST_TIMEOUT_MS,
    ClusterSettings,
    parse_bootstrap,
)
from twinlog.cluster.security.security_keys import load_security
from twinlog.config.files.providers import provider_key, resolve_providers
from twinlog.config.keys.client_keys import (
    BOOTSTRAP_SERVERS,
    CLIENT_KEYS,
    Role,
    is_connection_key,
    words,
)
from twinlog.config.values.nearest import suggestion
from twinlog.config.values.origin import ClientProperties, Setting, Settings
from twinlog.errors import ClusterError, TwinlogError
from twinlog.records.bounds import option_error

log = logging.getLogger(__name__)

_PREFIX: Final = "kafka."
_WHERE: Final = 'format("twinlog")'

TOPIC_MISSING: Final = "TOPIC_MISSING"

READER: Final = "twinlog-reader"
"""The default client ID of readers."""


OPTIONS: Final = {
    Role.CONSUMER: (
        *("subscribe", "subscribePattern", "assign"),
        *("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets"),
        *("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets"),
        *("maxOffsetsPerTrigger", "maxBytesPerTrigger", "commitGroup"),
        "startingOffsetsByTimestampStrategy",
        "minPartitions",
        "failOnDataLoss",
        "pushFilters",
        "includeHeaders",
        "isolation",
        "upstream",
        *("groupIdPrefix", "kafkaConsumer.pollTimeoutMs"),
        *("fetchOffset.numRetries", "fetchOffset.retryIntervalMs"),
        *("minOffsetsPerTrigger", "maxTriggerDelay", "maxRecordsPerPartition"),
    ),
    Role.PRODUCER: (
        "topic",
        "writeId",
        "missingMark",
        "checkpointLocation",
        "queryName",
        "includeHeaders",
    ),
}
"""Names of Spark's and Twinlog's options, for a read (consumer) and for a write (producer)."""

_OF_OTHER_FORMATS: Final = words("""
    charset dateformat delimiter encoding header inferschema maxfilespertrigger mergeschema mode
    multiline numrows outputmode processingtime quote schema sep timestampformat trigger truncate
    """)
"""Options of Spark's other sources and sinks, which its Kafka source ignores, in lower case."""

_ALL_KEYS: Final = frozenset[str]().union(*CLIENT_KEYS.values())
_GROUP_OF_COMMITS: Final = "consumer.commit.groupid"
"""The key of a widely used listener that commits a query's offsets to a group."""


def named_options(
    given: Mapping[str, str],
    role: Role,
    ignored: Mapping[str, str],
    refused: Mapping[str, str],
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the options with their names as in `OPTIONS`, and the `kafka.*` keys without prefix.

    Warns of options without effect. These are options in `ignored`, options of the other role or of
    another format, and Kafka's keys without prefix (`refused` has advice for some). All but those
    in `ignored` are left out. Raises ConfigError for an unknown option.
    """
    own = {name.lower(): value for name, value in given.items()}
    properties = {
        name.removeprefix(_PREFIX): own.pop(name) for name in list(own) if name.startswith(_PREFIX)
    }
    names = {name.lower(): name for spellings in OPTIONS.values() for name in spellings}
    for name in sorted(own.keys() - names.keys()):
        why = _why_unread(name, refused)
        if not why:
            raise option_error(name, "unknown option", _spelling_hint(name, names) or "remove it")
        warn_no_effect(name, why)
        del own[name]
    options = {names[name]: value for name, value in own.items()}
    for name in sorted(options):
        if name in ignored:
            warn_no_effect(name, ignored[name])
        elif name not in OPTIONS[role]:
            warn_no_effect(name, f"Spark's {role}s do not have this option")
            del options[name]
    return options, properties


def _why_unread(name: str, refused: Mapping[str, str]) -> str:
    """Return why Spark's Kafka source ignores an option, or an empty text for an unknown option."""
    if name in _OF_OTHER_FORMATS or name.startswith("spark."):
        return "Spark's Kafka source does not have this option"
    if name in _ALL_KEYS and not is_connection_key(name):
        todo = refused.get(name, f"write {_PREFIX}{name}")
        return f"Spark ignores Kafka's keys without the prefix {_PREFIX}; {todo}"
    return ""


def _spelling_hint(name: str, names: Mapping[str, str]) -> str:
    """Return a hint with the option that was probably meant, or an empty text."""
    if is_connection_key(name):
        return f"did you mean {_PREFIX}{name}?"
    hint = suggestion(name, names)  # the hint has the name in lower case
    for low, full in names.items():
        hint = hint.replace(f"mean {low}?", f"mean {full}?")
    return hint


def warn_no_effect(name: str, why: str) -> None:
    """Warn that an option has no effect."""
    log.warning("%s: option %s has no effect: %s", _WHERE, name, why)


def client_of(
    properties: Mapping[str, str], role: Role, refused: Mapping[str, str]
) -> ClientProperties:
    """Return the properties of a Java client with this role.

    Warns of keys of other clients, and of keys that no client has, as Kafka does. Raises
    ConfigError for a refused key, for a key that is similar to a known one, and if there are no
    servers.
    """
    for key in sorted(properties):
        if key in refused:
            raise option_error(_PREFIX + key, "it cannot be set", refused[key])
        if is_connection_key(key) or provider_key(key) or key in CLIENT_KEYS[role]:
            continue
        owners = f"Kafka's {role}s" if key in _ALL_KEYS else "Kafka's clients"
        hint = "" if key in _ALL_KEYS else suggestion(key, _ALL_KEYS)
        why = f"{owners} do not have this key"
        if hint:
            raise option_error(_PREFIX + key, why, hint.replace("mean ", f"mean {_PREFIX}"))
        if key == _GROUP_OF_COMMITS:
            why += "; write commitGroup to commit a stream's offsets"
        warn_no_effect(_PREFIX + key, why)
    if not properties.get(BOOTSTRAP_SERVERS, "").strip():
        raise option_error(
            _PREFIX + BOOTSTRAP_SERVERS, "missing", "add it, for example kafka1:9092"
        )
    parse_bootstrap(properties[BOOTSTRAP_SERVERS], _PREFIX + BOOTSTRAP_SERVERS)
    return ClientProperties(
        {key: Setting(key=key, value=value, file=_WHERE) for key, value in properties.items()}
    )


def settings_of(properties: ClientProperties, client_id: str) -> ClusterSettings:
    """Return the connection settings. Reads key files and config providers, so every process uses
    the current values of its host.

    Raises ConfigError.
    """
    settings = Settings({key: properties.origin(key) for key in properties})
    properties = ClientProperties(resolve_providers(settings, os.environ))
    bootstrap = parse_bootstrap(properties[BOOTSTRAP_SERVERS], _PREFIX + BOOTSTRAP_SERVERS)
    return ClusterSettings(
        alias=properties[BOOTSTRAP_SERVERS].split(",", maxsplit=1)[0].strip(),
        bootstrap=bootstrap,
        security=load_security(properties, where=f"{_WHERE}, options {_PREFIX}*"),
        client_id=properties.get("client.id", client_id),
        request_timeout_ms=positive(
            _PREFIX + "request.timeout.ms",
            properties.get("request.timeout.ms", str(DEFAULT_REQUEST_TIMEOUT_MS)),
        ),
    )


def positive(name: str, text: str) -> int:
    """Parse a positive number. Raises ConfigError."""
    word = text.strip()
    if not word.isascii() or not word.isdigit() or not 0 < int(word) < 1 << 63:
        raise option_error(
            name, f"{word!r} is not a positive number", "write a number, for example 1000"
        )
    return int(word)


def missing_topic_error(
    client: ClusterClient, names: Iterable[str], error: TwinlogError, advice: str
) -> ClusterError:
    """Return an error for a missing topic with more details than the broker's. It names the
    cluster's addresses, a topic with a similar name if there is one, and what to do.
    """
    try:
        # all visible topics; internal ones are not suggested
        known = {topic.name for topic in client.metadata().topics.values() if not topic.error}
    except TwinlogError:
        known = set()  # if this query fails, the message only lacks the suggestion
    missing = [name for name in names if name not in known]
    name = missing[0] if missing else next(iter(names))
    meant = suggestion(name, known)
    return ClusterError(
        f"the cluster at {client.settings.addresses} has no topic {name}, or the user may not see "
        f"it ({meant or 'no visible topic has a similar name'}); check the name and the addresses. "
        f"{advice}",
        code=TOPIC_MISSING,
        fate=error.fate,
    )
