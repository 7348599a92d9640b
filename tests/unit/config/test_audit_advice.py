"""Every key or value that a message recommends is accepted."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tests.support.properties import Loader, refusal, warnings_of
from twinlog.config.advice.audit import audit_keys, check_own_keys
from twinlog.config.keys.client_keys import CLIENT_KEYS, SECURITY_KEYS, Role
from twinlog.config.keys.key_table import (
    DEFINITIONS,
    OWN_PROCESS_NAMES,
    PROCESS_KEYS,
    RENAMED,
    WORKER_KEYS,
)
from twinlog.config.values.origin import Setting, Settings
from twinlog.config.values.warnings import WarningCode
from twinlog.errors import ConfigError

ALIASES = ("A", "B")
OF_CLIENTS = {f"{role}.{key}" for role in Role for key in CLIENT_KEYS[role]}
KEYS = sorted(
    {
        *DEFINITIONS,
        *RENAMED,
        *WORKER_KEYS,
        *PROCESS_KEYS,
        *OWN_PROCESS_NAMES,
        *SECURITY_KEYS,
        "bootstrap.servers",
        *OF_CLIENTS,
        *(one.replace(".", ".override.", 1) for one in OF_CLIENTS),
        *(one.partition(".")[2] for one in OF_CLIENTS),
    }
)
PLACES = ("", "A.", "A->B.", "A->B.source.", "A->B.source.cluster.", "A->B.target.")
ADVISED = re.compile(r"(?:; write |did you mean )(.*?)\??$")
ONE_FLOW = ". To set it for this flow only, write all of these: "
STANDS_FOR = {
    "<flow>": "A->B",
    "<alias>": "A",
    "<target alias>": "B",
    "A->X": "A->B",
    "B->X": "B->A",
}


MISSPELT: tuple[Callable[[str], str], ...] = (
    lambda key: key[:-1],
    lambda key: key.replace(".", "_"),
    str.upper,
    lambda key: ".".join(reversed(key.split("."))),
)


def said(key: str) -> str | None:
    """Return the warning about a key without effect, or None if the key is accepted."""
    # a class that causes no warning under any key
    value = "org.apache.kafka.connect.converters.ByteArrayConverter"
    raw = Settings({key: Setting(key=key, value=value, file="f", line=1)})
    try:
        check_own_keys(raw, ALIASES)
    except ConfigError as error:
        return str(error).removesuffix(" [CONFIG_INVALID]")
    useless = {WarningCode.UNKNOWN_KEY, WarningCode.DEAD_KEY}
    return next((one.message for one in audit_keys(raw, ALIASES) if one.code in useless), None)


def advised(message: str) -> list[str]:
    """Return the keys that a message recommends."""
    found = ADVISED.search(message)
    if found is None:
        return []
    keys = []
    for text in re.split(rf"{re.escape(ONE_FLOW)}|,? or |, ", found[1]):
        key = text.removesuffix(" for all flows")
        for name, meant in STANDS_FOR.items():
            key = key.replace(name, meant)
        keys.append(key)
    return keys


@pytest.mark.parametrize("place", PLACES)
def test_a_key_that_is_advised_is_accepted(place: str) -> None:
    wrong, tried = [], 0
    # each way of misspelling gets other keys, because the search for the nearest name takes some
    # milliseconds
    step = 4 * len(MISSPELT)
    bad = [spell(key) for at, spell in enumerate(MISSPELT) for key in KEYS[at::step]]
    for key in (f"{place}{name}" for name in [*KEYS, *bad]):
        message = said(key)
        for better in [] if message is None else advised(message):
            tried += 1
            if said(better) is not None:
                wrong.append(f"{key}: {message}: {better}: {said(better)}")
    assert tried > 50
    assert wrong == [], f"{len(wrong)} pieces of advice lead to the next error"


@pytest.mark.parametrize(
    ("line", "advice", "followed"),
    [
        ('topics = "orders, pay"', "write it without quotes", "topics = orders, pay"),
        ("topics = 'orders'", "write it without quotes", "topics = orders"),
        ("topics = orders payments", "separate names by commas", "topics = orders, payments"),
        ("topics = orders*", "did you mean orders.*?", "topics = orders.*"),
        ("topics.exclude = a;b", "separate names by commas", "topics.exclude = a,b"),
        ("topics.blacklist = a", "write topics.exclude", "topics.exclude = a"),
        ("B->A.enabled = false # later", "write: B->A.enabled = false", "B->A.enabled = false"),
        ("A->B.topics = \\\\d+ # all", "put it on a line of its own", "A->B.topics = \\\\d+"),
    ],
)
def test_a_value_that_is_advised_is_accepted(
    read: Loader, line: str, advice: str, followed: str
) -> None:
    assert any(advice in one.message for one in read(line).warnings)
    assert read(followed).warnings == ()


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("checkpoints.topic.retention.ms", None),
        ("emit.offset-syncs.interval.seconds", None),
        ("topic.policy.class", None),
        ("offset-syncs.replication.factor", "offset-syncs.topic.replication.factor"),
        ("heartbeat.interval.seconds", "emit.heartbeats.interval.seconds"),
        ("checkpoint.topic.replication.factor", "checkpoints.topic.replication.factor"),
    ],
)
def test_a_key_with_another_word_in_it_is_not_suggested(key: str, meant: str | None) -> None:
    advice = [] if meant is None else [f"A->B.{meant}"]
    assert advised(said(f"A->B.{key}") or "") == advice


@pytest.mark.parametrize(
    ("line", "followed"),
    [
        ("refresh.topics.interval.seconds = 10m", "refresh.topics.interval.seconds = 600"),
        ("refresh.topics.enabled = yes", "refresh.topics.enabled = true"),
        ("A.bootstrap.servers = a.${REGION}.b:1", "A.bootstrap.servers = a.eu.b:1"),
        ("tasks.max = ${TASKS}", "tasks.max = 2"),
        ("A.bootstrap.servers = a", "A.bootstrap.servers = a:9092"),
        ("twinlog.rpo.enforce = quota", "twinlog.rpo.seconds = 60"),
        ("twinlog.compression = enforce", "B.producer.compression.type = zstd"),
        (
            "replication.policy.class = IdentityReplicationPolicy",
            "replication.policy.class = org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
        ),
        (
            "replication.policy.separator =",
            "replication.policy.class = org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
        ),
        ("twinlog.rename = a", "twinlog.rename = orders:eu-orders, pay-(.*):pay.$1"),
        ("replication.factor = 0", "replication.factor = -1"),
        ("twinlog.lease.seconds = 0", "twinlog.lease.seconds = 1"),
        ("A.security.protocol = TLS", "A.security.protocol = SASL_SSL"),
        ("twinlog.start = 1", "twinlog.start = 2026-01-31T12:00:00Z"),
    ],
)
def test_the_advice_of_an_error_is_accepted(read: Loader, line: str, followed: str) -> None:
    message = refusal(lambda: read(line))
    assert any(word in message for word in ("write ", "add "))
    assert "config.providers" not in message
    key = line.partition(" ")[0]
    config = read(followed) if followed.startswith(key) else read(line, followed)
    assert warnings_of(config, WarningCode.UNKNOWN_KEY) == []
