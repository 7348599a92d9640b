"""Reads `transforms` and `predicates` of Kafka Connect if they work on bytes.

    A->B.transforms = noTombstones
    A->B.transforms.noTombstones.type = org.apache.kafka.connect.transforms.Filter
    A->B.transforms.noTombstones.predicate = isTombstone
    A->B.predicates = isTombstone
    A->B.predicates.isTombstone.type = RecordIsTombstone

MirrorMaker 2 passes keys, values and headers as bytes without a schema, so only some of Kafka's
classes can work. Twinlog runs these as Spark queries. It refuses all other classes by name, because
the copy would differ. Options are read as in Connect, with one exception: if a class lacks an
option that it needs, the file is invalid, whereas in Connect the task fails.

`TopicNameMatches` compares the name of the remote topic, such as `A.orders`, because MirrorMaker 2
names a record's topic before Connect transforms the record. The predicate selects whole topics, so
all other topics are copied without Spark.

`RegexRouter` moves all records of a remote topic to another topic. It is therefore read as a rule
for the names of remote topics (`config.values.renames`), not as a step, and needs no Spark. Later
steps compare the new name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from decimal import Decimal
from enum import StrEnum
from typing import Final

from twinlog.config.flow.precedence import setting_of
from twinlog.config.keys.client_keys import class_name
from twinlog.config.regex.patterns import EVERYTHING, NamePattern, compile_names
from twinlog.config.values.nearest import suggestion
from twinlog.config.values.origin import Setting, Settings, refuse
from twinlog.config.values.renames import RemoteName, Router, to_router
from twinlog.config.values.types import parse_boolean, to_boolean, to_list, to_pattern, trimmed
from twinlog.errors import ConfigError
from twinlog.model import Flow

CHAIN: Final = "transforms"
PREDICATES: Final = "predicates"
CONNECT_PREFIXES: Final = (f"{CHAIN}.", f"{PREDICATES}.")
IN_PYTHON: Final = (
    "write it in Python with twinlog.transforms (docs/transforms.md#a-connect-file-with-smts), and "
    "remove the line"
)

Headers = tuple[tuple[str, bytes | None], ...]

_KAFKAS: Final = "org.apache.kafka.connect.transforms."
_KAFKAS_PREDICATES: Final = f"{_KAFKAS}predicates."
_ROUTER: Final = "RegexRouter"
_BY_TIME: Final = "TimestampRouter"
_WITH_SCHEMA: Final = (
    *("Cast", "ExtractField", "Flatten", "HeaderFrom", "HoistField", "InsertField", "MaskField"),
    *("ReplaceField", "SetSchemaMetadata", "TimestampConverter", "ValueToKey"),
)
_EXAMPLES: Final = {
    "header": "masked-by",
    "value.literal": "privacy",
    "headers": "trace-id, user",
    "name": "trace-id",
    "pattern": r"A\\.orders.*",
    "regex": r"A\\.(.*)",
    "replacement": "$1",
}


class Action(StrEnum):
    """What a step of the chain does. Each value is the name of Kafka's class."""

    FILTER = "Filter"
    INSERT = "InsertHeader"
    DROP = "DropHeaders"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordCondition:
    """Selects the records to which a step applies: all, tombstones, or those with a header."""

    is_tombstone: bool = False
    header: str = ""
    """If set, the condition is that a record has this header."""
    is_negated: bool = False

    def is_met(self, value: bytes | None, headers: Headers) -> bool:
        """Return True if a step with this condition applies to the record."""
        found = True
        if self.is_tombstone:
            found = value is None
        elif self.header:
            found = any(key == self.header for key, _ in headers)
        return found is not self.is_negated

    @property
    def sql(self) -> str:
        """Return the condition as an expression of Spark SQL that is never NULL."""
        found = "true"
        if self.is_tombstone:
            found = "value IS NULL"
        elif self.header:
            found = f"coalesce(exists(headers, one -> one.key = {_text(self.header)}), false)"
        return f"NOT ({found})" if self.is_negated else found


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectStep:
    """One transform of Kafka Connect's `transforms`."""

    name: str
    topics: NamePattern
    """Topics to which the transform applies."""
    compares: RemoteName
    """Which name of a topic is compared with `topics`: its name after the preceding routers."""
    action: Action
    headers: tuple[str, ...] = ()
    """Names of the headers that the transform adds or removes."""
    value: bytes | None = None
    """The value of the header that the transform adds."""
    condition: RecordCondition = RecordCondition()
    origin: Setting = field(repr=False, compare=False)
    """The line that names the transform's class."""

    def headers_of(self, value: bytes | None, headers: Headers) -> Headers | None:
        """Return the headers of a record after this step, or None if the step drops the record."""
        if not self.condition.is_met(value, headers):
            return headers
        match self.action:
            case Action.FILTER:
                return None
            case Action.INSERT:
                return (*headers, *((name, self.value) for name in self.headers))
            case Action.DROP:
                return tuple(header for header in headers if header[0] not in self.headers)

    @property
    def sql(self) -> str:
        """Return a query on the view `records` that does the same as this step."""
        applies, names = self.condition.sql, ", ".join(map(_text, self.headers))
        match self.action:
            case Action.FILTER:
                return f"SELECT * FROM records WHERE NOT ({applies})"  # noqa: S608 (quoted)
            case Action.INSERT:
                value = "NULL" if self.value is None else f"X'{self.value.hex()}'"
                new = f"array(named_struct('key', {names}, 'value', CAST({value} AS BINARY)))"
                changed = f"concat(coalesce(headers, array()), {new})"
            case Action.DROP:
                changed = f"filter(headers, one -> one.key NOT IN ({names}))"
        kind = "array<struct<key:string,value:binary>>"
        found = f"CAST(CASE WHEN {applies} THEN {changed} ELSE headers END AS {kind})"
        return f"SELECT * EXCEPT (headers), {found} AS headers FROM records"  # noqa: S608 (quoted)


def _text(text: str) -> str:
    """Return a text as an expression of Spark SQL. A text with special characters is written in
    hex, because Spark replaces `${x}` even within quotes.
    """
    if re.fullmatch(r"[\w. -]*", text, re.ASCII):
        return f"'{text}'"
    return f"CAST(X'{text.encode().hex()}' AS STRING)"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectChain:
    """The `transforms` of a flow: steps that change records, and routers that rename topics."""

    steps: tuple[ConnectStep, ...]
    routers: tuple[Router, ...]
    unread: tuple[Setting, ...]
    """Lines of `transforms` and `predicates` without effect: no listed transform reads them."""


def read_chain(settings: Settings, flow: Flow, prefix: str | None) -> ConnectChain:
    """Return the chain of a flow. Raises ConfigError for the first transform that Twinlog cannot
    run.

    `prefix` is the text that the replication policy puts before the source topic's name, or None if
    the policy names topics in another way.
    """
    reader = _ChainReader(settings, flow, prefix)
    listed = reader.option(CHAIN) or setting_of(settings, CHAIN)
    names = to_list(listed)
    for name in names:
        if not name or names.count(name) > 1:
            what = f"{name!r} is listed twice" if name else "an entry is empty"
            todo = "list each name once" if name else "remove the needless comma"
            raise refuse(listed, what, todo)
    steps = tuple(filter(None, [reader.step(name, listed) for name in names]))
    return ConnectChain(steps=steps, routers=reader.routers, unread=reader.unread)


class _ChainReader:
    def __init__(self, settings: Settings, flow: Flow, prefix: str | None) -> None:
        self._settings, self._flow, self._prefix = settings, flow, prefix
        self._read: set[str] = set()
        self.routers: tuple[Router, ...] = ()
        """The routers that have been read, in the order of `transforms`."""

    @property
    def unread(self) -> tuple[Setting, ...]:
        return tuple(
            setting
            for name, setting in self._settings.items()
            if name.startswith((PREDICATES, f"{CHAIN}."))
            and name not in self._read
            and trimmed(setting.value)
        )

    def option(self, name: str) -> Setting | None:
        self._read.add(name)
        return self._settings.get(name)

    def needed(self, key: str, part: str, owner: Setting) -> Setting:
        """Return an option that must be set. Raises ConfigError if it is missing or blank."""
        found = self.option(f"{key}.{part}")
        if found is not None and trimmed(found.value):
            return found
        kind = f"{_KAFKAS}Filter" if key.startswith(CHAIN) else f"{_KAFKAS_PREDICATES}HasHeaderKey"
        what = f"{key.partition('.')[2]} has no {part}"
        todo = f"add {self._flow}.{key}.{part} = {_EXAMPLES.get(part, kind)}"
        raise refuse(found or owner, what, todo, missing_key=f"{key}.")

    def step(self, name: str, listed: Setting) -> ConnectStep | None:
        """Read a transform. Return its step, or None for a router, which is added to `routers`."""
        key = f"{CHAIN}.{name}"
        kind = self.needed(key, "type", listed)
        short = class_name(kind.value).removeprefix(_KAFKAS)
        if short in (_ROUTER, _BY_TIME):
            self.routers += (self._router(name, key, kind, short),)
            return None
        if short not in [*Action]:
            raise _not_run_error(kind, short)
        topics, condition = self._predicate(key)
        step = ConnectStep(
            name=name,
            topics=topics,
            compares=RemoteName(self._prefix or "", self.routers),
            action=Action(short),
            condition=condition,
            origin=kind,
        )
        match step.action:
            case Action.FILTER:
                return step
            case Action.DROP:
                return replace(step, headers=to_list(self.needed(key, "headers", kind)))
            case Action.INSERT:
                header = self.needed(key, "header", kind).value
                literal = self.option(f"{key}.value.literal")
                literal = literal or self.needed(key, "value.literal", kind)
                return replace(step, headers=(header,), value=_header_value(literal))

    def _predicate(
        self, key: str, *, of_router: bool = False
    ) -> tuple[NamePattern, RecordCondition]:
        """Return the topics and the records to which a step applies."""
        every = compile_names((EVERYTHING,))
        named, negate = self.option(f"{key}.predicate"), self.option(f"{key}.negate")
        if named is None:
            if negate is not None:
                todo = f"add {self._flow}.{key}.predicate = NAME, or remove the line"
                raise refuse(negate, "there is no predicate to negate", todo, missing_key=f"{key}.")
            return every, RecordCondition()
        # Connect checks this value trimmed, but then reads it untrimmed, so `true ` does not negate
        is_negated = negate is not None and to_boolean(negate) and parse_boolean(negate.value)
        self._read.add(PREDICATES)
        name, names = trimmed(named.value), to_list(setting_of(self._settings, PREDICATES))
        if name not in names:
            todo = suggestion(name, names) or f"add {name} to {self._flow}.{PREDICATES}"
            raise refuse(named, f"{PREDICATES} does not list {name}", todo, missing_key=PREDICATES)
        key = f"{PREDICATES}.{name}"
        kind = self.needed(key, "type", named)
        match short := class_name(kind.value).removeprefix(_KAFKAS_PREDICATES):
            case "RecordIsTombstone":
                return every, RecordCondition(is_tombstone=True, is_negated=is_negated)
            case "HasHeaderKey":
                header = self.needed(key, "name", kind).value
                return every, RecordCondition(header=header, is_negated=is_negated)
            case "TopicNameMatches":
                pattern = to_pattern(self.needed(key, "pattern", kind))
                if self._prefix is None and not of_router:
                    what = f"{kind.shown} compares remote names, and this flow has custom ones"
                    todo = "use twinlog.transforms.NAME.topics, which compares source names"
                    raise refuse(kind, what, todo)
                return replace(pattern, is_negated=is_negated), RecordCondition()
            case _:
                raise _not_run_error(kind, short)

    def _router(self, name: str, key: str, kind: Setting, short: str) -> Router:
        """Return a router. Raises ConfigError if it would split a topic's records among topics."""
        topics, condition = self._predicate(key, of_router=True)
        if short == _BY_TIME:
            raise _separates_error(kind, "by their timestamps")
        regex = self.needed(key, "regex", kind)
        replacement = self.option(f"{key}.replacement") or self.needed(key, "replacement", kind)
        router = to_router(
            name, regex, replacement, topics.entries[0], is_negated=topics.is_negated
        )
        if condition != RecordCondition():
            raise _separates_error(kind, "only if its predicate is true for them")
        return router


def _separates_error(kind: Setting, how: str) -> ConfigError:
    """Return the error for a router that sends records of one topic to several topics."""
    what = f"{kind.shown} sets the topic of records {how}, but a mirror copies a topic to one topic"
    todo = (
        "give each route a flow of its own with a filter (docs/transforms.md#routing), or name "
        f"remote topics with twinlog.rename or {_ROUTER} for all of their records, and remove the "
        "line"
    )
    return refuse(kind, what, todo, code="TRANSFORMS_NOT_RUN")


def _not_run_error(kind: Setting, short: str) -> ConfigError:
    """Return the error for the class of a transform or predicate that Twinlog does not run."""
    if short.partition("$")[0] in _WITH_SCHEMA:
        what = f"{kind.shown} needs a schema, and MirrorMaker 2 copies bytes without one"
    else:
        what = f"Twinlog cannot run the Java class {kind.shown}, so the copy would differ"
    return refuse(kind, what, IN_PYTHON)


_NUMBER: Final = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?")
_SHORT_DECIMAL: Final = re.compile(r"-?(?=[0-9.]{3,7}$)(?:0|[1-9][0-9]*)\.[0-9]*[1-9]")
"""Matches decimal numbers that Java parses as a float and prints in the same form."""
_LEAST: Final = Decimal("0.01")
_LONG: Final = range(-(1 << 63), 1 << 63)


def _header_value(literal: Setting) -> bytes | None:
    """Return the value of a header that Connect would write, or None for null. Connect parses the
    literal, and its SimpleHeaderConverter writes the result as text.

    Raises ConfigError for arrays, maps, times, and numbers if Connect might write another text than
    `literal`.
    """
    text, trim = literal.value, trimmed(literal.value)
    if trim in ("null", "true", "false"):
        return None if trim == "null" else trim.encode()
    is_number = _NUMBER.fullmatch(trim)
    if is_number and (number := Decimal(trim)) == number.to_integral_value():
        if int(number) in _LONG:
            return str(int(number)).encode()
    elif is_number and _SHORT_DECIMAL.fullmatch(trim) and abs(number) >= _LEAST:
        return trim.encode()
    elif not is_number and not _may_be_read(trim):
        return text.encode()
    what = f"Connect may write {literal.shown} in another form"
    raise refuse(literal, what, f"write a text or a whole number; or {IN_PYTHON}")


def _may_be_read(trim: str) -> bool:
    """Return True if Connect might read a text as an array, a map, a time, or a number before a
    delimiter.
    """
    if not re.match(r"[\d+-]", trim):
        return trim.startswith(("[", "{"))
    return bool(re.search(r"[][{}:,\"\\]", trim) or re.match(r"\d+-", trim))
