"""Chains of Kafka Connect's transforms, and records that Java, Python and Spark must transform
alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from twinlog.config.flow.connect import ConnectStep
from twinlog.wire.records import Headers, Record

__all__ = [
    "BAD_REPLACEMENTS",
    "CHAINS",
    "KAFKAS",
    "RECORDS",
    "ROUTED_TOPICS",
    "ROUTES",
    "after",
    "chain_lines",
    "router",
]

KAFKAS: Final = "org.apache.kafka.connect.transforms."
TIMESTAMP: Final = 1_764_460_800_123

_PREDICATES: Final = (
    "predicates = isTombstone, hasTrace, hasOdd, isOrders",
    f"predicates.isTombstone.type = {KAFKAS}predicates.RecordIsTombstone",
    f"predicates.hasTrace.type = {KAFKAS}predicates.HasHeaderKey",
    "predicates.hasTrace.name = trace",
    "predicates.hasOdd.type = HasHeaderKey",
    r"predicates.hasOdd.name = it's \\ ${x}",
    f"predicates.isOrders.type = {KAFKAS}predicates.TopicNameMatches",
    r"predicates.isOrders.pattern = A\\.ord.*|other",
)


def chain_lines(*steps: Sequence[str]) -> tuple[str, ...]:
    """Return the configuration lines of a chain, without the flow's prefix. A step has a class, and
    options as `name = value`.
    """
    names = [f"s{number}" for number in range(len(steps))]
    lines = [f"transforms = {', '.join(names)}"]
    for name, (kind, *options) in zip(names, steps, strict=True):
        lines.append(f"transforms.{name}.type = {kind}")
        lines += (f"transforms.{name}.{option}" for option in options)
    return (*lines, *_PREDICATES)


_FILTER: Final = f"{KAFKAS}Filter"
_INSERT: Final = (f"{KAFKAS}InsertHeader", "header = trace", "value.literal = by privacy")
_DROP: Final = (f"{KAFKAS}DropHeaders", "headers = trace, user")

CHAINS: Final = {
    "tombstones are filtered": chain_lines((_FILTER, "predicate = isTombstone")),
    "all others are filtered": chain_lines((_FILTER, "predicate = isTombstone", "negate = TRUE")),
    "negated by a word with a blank": chain_lines(
        (_FILTER, "predicate = isTombstone", "negate = true ")
    ),
    "records with a header are filtered": chain_lines((_FILTER, "predicate = hasTrace")),
    "records without a header are filtered": chain_lines(
        (_FILTER, "predicate = hasTrace", "negate = true")
    ),
    "an odd name": chain_lines(
        (_FILTER, "predicate = hasOdd"),
        (KAFKAS + "InsertHeader", r"header = it's \\ ${x}", r"value.literal = it's \\ ${x}"),
    ),
    "everything is filtered": chain_lines((_FILTER,)),
    "a topic is filtered": chain_lines((_FILTER, "predicate = isOrders")),
    "all other topics are filtered": chain_lines(
        (_FILTER, "predicate = isOrders", "negate = true")
    ),
    "a header is added": chain_lines(_INSERT),
    "a header without a value is added": chain_lines((*_INSERT[:2], "value.literal = null")),
    "an empty header is added": chain_lines((*_INSERT[:2], "value.literal =")),
    "a number is added": chain_lines((*_INSERT[:2], "value.literal = 007.0")),
    "headers are removed": chain_lines(_DROP),
    "by a class without its package": chain_lines(("DropHeaders", *_DROP[1:])),
    "headers of tombstones are removed": chain_lines((*_DROP, "predicate = isTombstone")),
    "a header is added where it is missing": chain_lines(
        (*_INSERT, "predicate = hasTrace", "negate = true")
    ),
    "a later step sees what an earlier one did": chain_lines(
        _DROP, (_FILTER, "predicate = hasTrace"), _INSERT, (*_INSERT, "predicate = hasTrace")
    ),
    "headers of a topic are replaced": chain_lines(
        (*_DROP, "predicate = isOrders"), (*_INSERT, "predicate = isOrders")
    ),
}
"""Configuration lines of chains without the flow's prefix, by a description of the chain."""


def router(regex: str, replacement: str, *options: str) -> tuple[str, ...]:
    """Return a RegexRouter step. Both texts are written as in Java, not as in a properties file."""
    values = (f"regex = {regex}", f"replacement = {replacement}")
    return (f"{KAFKAS}RegexRouter", *(one.replace("\\", "\\\\") for one in values), *options)


_STRIP: Final = router(r"A\.(.*)", "$1")

ROUTES: Final = {
    "the alias is removed": chain_lines(_STRIP),
    "names without a match are kept": chain_lines(router(r"A\.ord.*", "x")),
    "the whole name must match": chain_lines(router("A", "x"), router("orders", "x")),
    "the first match is replaced": chain_lines(router(r"A\.(?:a|ab)", "x")),
    "a lazy match is replaced": chain_lines(router(r"A\.(.*?)", "eu-$1.")),
    "an empty replacement": chain_lines(router(r"A\.|A\.(.*)", "")),
    "groups by number": chain_lines(router(r"(A)\.(.*)", r"$2.$01-$10_$2\1")),
    "groups by name": chain_lines(router(r"A\.(?<first>[^.-]*)(?<rest>.*)", "${first}${rest}.x")),
    "a group that matches nothing": chain_lines(router(r"A\.(b)?(.*)", "x$1-$2")),
    "flags": chain_lines(router(r"(?i)a\.ORDERS(.*)", "o$1")),
    "one router after another": chain_lines(_STRIP, router("(.*)s", "$1"), router("order", "o")),
    "a valid name after an invalid one": chain_lines(
        router(r"A\.(.*)", "$1 by A"), router("(.*) by A", "by-A.$1")
    ),
    "some topics": chain_lines((*_STRIP, "predicate = isOrders")),
    "all other topics": chain_lines((*_STRIP, "predicate = isOrders", "negate = true")),
    "a predicate sees the new name": chain_lines(
        router(r"A\.pay(.*)", "A.ord$1"),
        (*_STRIP, "predicate = isOrders"),
        (_FILTER, "predicate = isOrders"),
    ),
    "a filter before it sees the old name": chain_lines((_FILTER, "predicate = isOrders"), _STRIP),
    "a filter after it sees the new name": chain_lines(_STRIP, (_FILTER, "predicate = isOrders")),
}
"""Configuration lines of chains with routers, by a description of the chain."""

ROUTED_TOPICS: Final = (
    *("orders", "orders-2024", "ordX", "payments", "pay-in", "a", "ab", "abc", "b", "bx", "other"),
    *("A.x", "C.A.orders", "x.A.orders", "a-b.c_d", "heartbeat"),
)
BAD_REPLACEMENTS: Final = ("$2", "$", "x$", "x\\", "$x", "${nope}", "${first", "${1}", "$-1")
"""Replacements that Java refuses at the first record, with the expression `A\\.(?<name>.*)`."""

_HEADERS: Final[tuple[Headers, ...]] = (
    (),
    (("trace", b"1"),),
    (("trace", None), ("user", b"u"), ("other", b"\x00\xff")),
    (("other", b"1"), ("trace", b"2"), ("other", b""), ("trace", b"3"), ("Trace", b"4")),
    (("it's \\ ${x}", b"odd"),),
    (("größe", b"5"),),
)
RECORDS: Final = tuple(
    Record(offset, TIMESTAMP + offset, key, value, headers)
    for offset, (headers, (key, value)) in enumerate(
        (headers, pair)
        for headers in _HEADERS
        for pair in ((b"k", b"v"), (None, b"v"), (b"k", None), (b"", b""))
    )
)
"""Records with and without keys, values and headers, with duplicate headers and headers without a
value.
"""


def after(record: Record, steps: Sequence[ConnectStep]) -> Record | None:
    """Return the record after the steps, or None if a step filters it out."""
    headers: Headers | None = record.headers
    for step in steps:
        headers = None if headers is None else step.headers_of(record.value, headers)
    return None if headers is None else record._replace(headers=headers)
