"""What is written as options: names in any case, and `kafka.*`, the keys of Java's clients.

Reader and writer share it. What Spark's own source and sink know and nothing here does is taken and
said, so that a job changes one word; what neither knows is an error that names the nearest.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.net.settings import (
    DEFAULT_REQUEST_TIMEOUT_MS,
    ClusterSettings,
    parse_bootstrap,
)
from twinlog.cluster.security.security_keys import load_security
from twinlog.config.files.providers import provider_key, resolve_providers
from twinlog.config.keys.client_keys import BOOTSTRAP_SERVERS, CLIENT_KEYS, Role, is_connection_key
from twinlog.config.values.nearest import suggestion
from twinlog.config.values.origin import ClientProperties, Setting, Settings
from twinlog.errors import ClusterError, TwinlogError
from twinlog.records.bounds import wrong

log = logging.getLogger(__name__)

_PREFIX: Final = "kafka."
_WHERE: Final = 'format("twinlog")'

TOPIC_MISSING: Final = "TOPIC_MISSING"

READER: Final = "twinlog-reader"
"""The client id of reading, where none is given."""


def named(
    given: Mapping[str, str], known: Sequence[str], ignored: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    """Options by the names that we write, and properties of the client, without their prefix.

    Raises ConfigError for an option that is not known; those without effect are said.
    """
    own = {name.lower(): value for name, value in given.items()}
    properties = {
        name.removeprefix(_PREFIX): own.pop(name) for name in list(own) if name.startswith(_PREFIX)
    }
    names = {name.lower(): name for name in known}
    unknown = sorted(own.keys() - names.keys())
    if unknown:
        # the nearest by its letters, whatever their case
        hint = suggestion(unknown[0], names)
        for low, name in names.items():
            hint = hint.replace(f"mean {low}?", f"mean {name}?")
        raise wrong(unknown[0], "it is not known", hint or "remove it")
    options = {names[name]: value for name, value in own.items()}
    for name in sorted(options.keys() & ignored.keys()):
        log.warning("%s: option %s has no effect: %s", _WHERE, name, ignored[name])
    return options, properties


def client_of(
    properties: Mapping[str, str], role: Role, refused: Mapping[str, str]
) -> ClientProperties:
    """Properties of Java's client of that role, checked. Raises ConfigError."""
    known = CLIENT_KEYS[role]
    for key in sorted(properties):
        if key in refused:
            raise wrong(_PREFIX + key, "it cannot be set", refused[key])
        if key not in known and not is_connection_key(key) and not provider_key(key):
            hint = suggestion(key, known)
            raise wrong(
                _PREFIX + key,
                f"Kafka's {role}s do not have this key",
                hint.replace("mean ", f"mean {_PREFIX}") or "remove it",
            )
    if not properties.get(BOOTSTRAP_SERVERS, "").strip():
        raise wrong(_PREFIX + BOOTSTRAP_SERVERS, "missing", "add it, as in kafka1:9092")
    parse_bootstrap(properties[BOOTSTRAP_SERVERS], _PREFIX + BOOTSTRAP_SERVERS)
    return ClientProperties(
        {key: Setting(key=key, value=value, file=_WHERE) for key, value in properties.items()}
    )


def settings_of(properties: ClientProperties, client_id: str) -> ClusterSettings:
    """How to reach the brokers; reads the key files, and looks up what config providers have, so
    every process has what is there now, where it runs.

    Raises ConfigError.
    """
    given = Settings({key: properties.origin(key) for key in properties})
    properties = ClientProperties(resolve_providers(given, os.environ))
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
    """The number of an option. Raises ConfigError."""
    word = text.strip()
    if not word.isascii() or not word.isdigit() or not 0 < int(word) < 1 << 63:
        raise wrong(name, f"{word!r} is no positive number", "write one, as in 1000")
    return int(word)


def no_topic(
    client: ClusterClient, names: Iterable[str], error: TwinlogError, advice: str
) -> ClusterError:
    """The error in place of a broker's, which said that one of these is missing: with the cluster's
    addresses, the topic of nearly that name, if there is one, and what to do.
    """
    try:
        # all that we may see; internal ones are nobody's misspelling
        known = {one.name for one in client.metadata().topics.values() if not one.error}
    except TwinlogError:
        known = set()  # what was asked for is missing all the same
    missing = [name for name in names if name not in known]
    name = missing[0] if missing else next(iter(names))
    meant = suggestion(name, known)
    return ClusterError(
        f"the cluster at {client.settings.addresses} has no topic {name}, or our user may not see "
        f"it{f': {meant}' if meant else ', and none of a name like it'}; look at its spelling and "
        f"at the addresses; {advice}",
        code=TOPIC_MISSING,
        fate=error.fate,
    )
