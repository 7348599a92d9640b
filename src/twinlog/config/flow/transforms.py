"""`twinlog.transforms`: functions on DataFrames that change the records of some topics.

    A->B.twinlog.transforms = mask, cut
    A->B.twinlog.transforms.mask.topics = orders, pay.*
    A->B.twinlog.transforms.mask.function = company.privacy:mask_cards
    A->B.twinlog.transforms.cut.topics = clicks
    A->B.twinlog.transforms.cut.sql = SELECT * FROM records WHERE value IS NOT NULL

A line that would have no effect is an error. Otherwise, records that should be masked could be
copied unchanged. Functions are imported by `twinlog.transforms`, not here.

Transforms of Kafka Connect (`connect`) are applied before those of `twinlog.transforms`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from twinlog.config.flow.connect import CHAIN, ConnectChain, ConnectStep
from twinlog.config.flow.precedence import setting_of
from twinlog.config.keys.key_table import (
    DEFINITIONS,
    OWN_KEYS,
    TRANSFORMS,
    TRANSFORMS_ENVIRONMENT,
    TRANSFORMS_MEMORY,
    TRANSFORMS_ON_ERROR,
    TRANSFORMS_QUARANTINE,
    TRANSFORMS_REMOVED,
)
from twinlog.config.regex.patterns import NamePattern, compile_names
from twinlog.config.values.nearest import suggestion
from twinlog.config.values.origin import Setting, Settings, refuse
from twinlog.config.values.renames import SOURCE_NAME, RemoteName
from twinlog.config.values.types import to_choice, to_list, to_names, trimmed

TRANSFORMS_PREFIX: Final = f"{TRANSFORMS}."
_OTHERS: Final = tuple(
    key.name.removeprefix(TRANSFORMS_PREFIX)
    for key in OWN_KEYS
    if key.name.startswith(TRANSFORMS_PREFIX)
)
"""Keys, without their prefix, that apply to all transforms of a flow."""
_TOPICS: Final = "topics"
_FUNCTION: Final = "function"
_SQL: Final = "sql"
TRANSFORM_KEYS: Final = {
    _TOPICS: "source topics whose records it changes",
    _FUNCTION: "a function of a DataFrame that returns a DataFrame: `package.module:function`",
    _SQL: "a query of the view `records`: SELECT ... FROM records",
}
"""Last part of each key that configures a single transform, and its meaning."""

_NAME: Final = re.compile(r"[A-Za-z0-9_-]+")
_DOTTED: Final = r"[^\W\d]\w*(?:\.[^\W\d]\w*)*"
_MODULE_AND_FUNCTION: Final = re.compile(f"{_DOTTED}:{_DOTTED}")
_NOT_MIRRORED: Final = re.compile(
    r"__(?!(?:consumer_offsets|transaction_state|share_group_state|cluster_metadata)$)"
    r"[A-Za-z0-9._-]{1,247}"
)
# only SELECT is accepted, because Spark executes other statements immediately, even after WITH
_SELECT: Final = re.compile(r"select\b.*", re.IGNORECASE | re.DOTALL)


NO_NAMES: Final = compile_names(())


class OnError(StrEnum):
    """What happens to a record on which a transform fails."""

    STOP = "stop"
    """The partition stops at the record."""
    SKIP = "skip"
    """The record is left out and counted."""
    QUARANTINE = "quarantine"
    """The record is written to a dead-letter topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformConfig:
    """One transform. Exactly one of `function` and `sql` is set."""

    name: str
    topics: NamePattern
    function: str = ""
    """The function as `package.module:function`, or empty if `sql` is set."""
    sql: str = ""
    compares: RemoteName = SOURCE_NAME
    """Which name of a topic is compared with `topics`: the source name, or a remote name."""
    connect: ConnectStep | None = None
    """The transform of Kafka Connect from which `sql` is generated, or None."""
    origin: Setting = field(repr=False, compare=False)
    """The setting that defines the transform: its `function` or `sql`, or the class of a transform
    of Kafka Connect.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformsConfig:
    """The transforms of a flow, in the order in which they are applied."""

    entries: tuple[TransformConfig, ...] = ()
    on_error: OnError = OnError.STOP
    quarantine_topic: str = ""
    """Name of the dead-letter topic, or empty for the default name."""
    environment: tuple[str, ...] = ()
    """Names of environment variables that are passed to functions."""
    removed: NamePattern = NO_NAMES
    """Topics whose transforms were removed on purpose, which permits copying them unchanged."""
    memory_bytes: int = int(DEFINITIONS[TRANSFORMS_MEMORY].default or 0)
    """Maximum memory of the processes that run the transforms, including their JVM."""
    unread: tuple[Setting, ...] = field(default=(), repr=False, compare=False)
    """Lines of Kafka Connect's `transforms` and `predicates` that no listed transform reads."""

    def of_topic(self, topic: str) -> tuple[TransformConfig, ...]:
        """Return the transforms of a source topic, in the order in which they are applied."""
        return tuple(
            transform
            for transform in self.entries
            if transform.topics.matches(transform.compares.of(topic))
        )

    def connect_steps(self, topic: str) -> tuple[ConnectStep, ...]:
        """Return the topic's transforms of Kafka Connect, which MirrorMaker 2 applies as well."""
        return tuple(
            transform.connect for transform in self.of_topic(topic) if transform.connect is not None
        )

    def digest_of(self, topic: str) -> str:
        """Return a digest of a source topic's transforms, in hex, or an empty text if it has none.

        The digest depends on functions, queries, their order and `on_error`, but not on the code of
        the functions.
        """
        chain = [(transform.function, transform.sql) for transform in self.of_topic(topic)]
        return _digest([self.on_error.value, chain]) if chain else ""

    @property
    def digest(self) -> str:
        """Digest in hex of `on_error` and all transforms with their topics, empty without any."""
        chain = [
            (str(entry.topics), entry.function, entry.sql, *map(repr, entry.compares.routers))
            for entry in self.entries
        ]
        return _digest([self.on_error.value, chain]) if chain else ""


def _digest(parts: object) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def read_transforms(
    settings: Settings, chain: ConnectChain, *, memory_bytes: int
) -> TransformsConfig:
    """Return the transforms of a flow. Raises ConfigError for the first invalid line."""
    listed = setting_of(settings, TRANSFORMS)
    names = to_list(listed)
    for name in names:
        if not _NAME.fullmatch(name) or names.count(name) > 1:
            why = "is listed twice" if names.count(name) > 1 else "is not a name"
            raise refuse(listed, f"{name!r} {why}", "write names of letters, digits, - and _")
    _refuse_unused(settings, names)
    own = (_transform(settings, name, listed) for name in names)
    return TransformsConfig(
        entries=(*map(_of_connect, chain.steps), *own),
        on_error=OnError(to_choice(setting_of(settings, TRANSFORMS_ON_ERROR), [*OnError])),
        quarantine_topic=_checked(
            settings.get(TRANSFORMS_QUARANTINE),
            _NOT_MIRRORED,
            "may be mirrored by another flow, or is not the name of a topic",
            "write a name that begins with __, such as __orders-dead-letters",
        ),
        environment=to_list(setting_of(settings, TRANSFORMS_ENVIRONMENT)),
        removed=to_names(setting_of(settings, TRANSFORMS_REMOVED)),
        memory_bytes=memory_bytes,
        unread=chain.unread,
    )


def _of_connect(step: ConnectStep) -> TransformConfig:
    return TransformConfig(
        name=f"{CHAIN}.{step.name}",
        topics=step.topics,
        compares=step.compares,
        sql=step.sql,
        connect=step,
        origin=step.origin,
    )


def _refuse_unused(settings: Settings, names: Iterable[str]) -> None:
    """Raise ConfigError for a line with an unknown key, or for a transform that is not listed."""
    for key, setting in settings.stripped(TRANSFORMS_PREFIX).items():
        name, _, part = key.rpartition(".")
        if key in _OTHERS:
            continue
        if part not in TRANSFORM_KEYS or not name:
            start = setting.key.removesuffix(key)
            known = [f"{start}{name}.{part}" for part in TRANSFORM_KEYS if name]
            hint = suggestion(setting.key, [*(f"{start}{part}" for part in _OTHERS), *known])
            raise refuse(setting, "no such key", hint or f"write {start}NAME.{_SQL}")
        if name not in names:
            hint = suggestion(name, names)
            raise refuse(
                setting,
                f"{TRANSFORMS} does not list {name}, so it would change no record",
                hint or f"add {name} to {TRANSFORMS}, or remove the line",
                missing_key=TRANSFORMS,
            )


def _transform(settings: Settings, name: str, listed: Setting) -> TransformConfig:
    given = settings.stripped(f"{TRANSFORMS_PREFIX}{name}.")
    function, sql, topics = (given.get(part) for part in (_FUNCTION, _SQL, _TOPICS))
    key = f"{listed.key}.{name}"
    if function is not None and sql is not None:
        raise refuse(
            sql, f"{name} has a function already ({function.location})", "remove one of the two"
        )
    origin = function or sql
    if origin is None:
        raise refuse(
            listed,
            f"{name} has neither a function nor a query",
            f"add {key}.{_FUNCTION} = package.module:function, or a query as {key}.{_SQL}",
            missing_key=f"{TRANSFORMS_PREFIX}{name}.",
        )
    if topics is None:
        raise refuse(
            listed,
            f"{name} has no topics",
            f"add {key}.{_TOPICS} = orders, pay.*",
            missing_key=f"{TRANSFORMS_PREFIX}{name}.",
        )
    pattern = to_names(topics)
    if not pattern.entries:
        raise refuse(topics, f"{name} has no topics", "write names or expressions, such as pay.*")
    return TransformConfig(
        name=name,
        topics=pattern,
        function=_checked(
            function,
            _MODULE_AND_FUNCTION,
            "does not name a function of a module",
            "write package.module:function",
        ),
        sql=_checked(sql, _SELECT, "is not a SELECT", "write SELECT ... FROM records"),
        origin=origin,
    )


def _checked(setting: Setting | None, valid: re.Pattern[str], problem: str, todo: str) -> str:
    """Return the value, or an empty text if the key is not set. Raises ConfigError if the whole
    value does not match `valid`.
    """
    value = "" if setting is None else trimmed(setting.value)
    if setting is not None and not valid.fullmatch(value):
        raise refuse(setting, f"{setting.shown} {problem}", todo)
    return value
