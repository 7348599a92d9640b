"""Warnings about keys that have no effect: unknown, deprecated, or written in the wrong place.

Connect ignores such keys. Twinlog ignores them too, but warns. Unknown `twinlog.*` keys are errors,
because only Twinlog can have been meant.

A key can be read in up to three ways (`A->B.x` of a flow, `A.x` of a cluster, `x` for everything).
It is accepted if one of them is known.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from twinlog.config.advice.effects import (
    KeyEffect,
    judge_cluster,
    judge_flow,
    judge_general,
    why_no_plugin,
    why_without_effect,
)
from twinlog.config.files.properties import DuplicateKey
from twinlog.config.files.providers import has_variable, provider_key
from twinlog.config.flow.precedence import candidate_flows
from twinlog.config.flow.switches import enabled
from twinlog.config.keys.client_keys import is_connection_key
from twinlog.config.keys.key_table import OWN_FLOW_NAMES, OWN_PROCESS_NAMES, RENAMED
from twinlog.config.keys.key_types import OWN_PREFIX
from twinlog.config.strimzi.secrets import UNGIVEN, UNREAD
from twinlog.config.values.nearest import nearest
from twinlog.config.values.origin import Setting, Settings, has_comment, refuse, shown_key
from twinlog.config.values.warnings import ConfigWarning, WarningCode, warning
from twinlog.model import Flow

_ARROW = "->"
_LOSING_ROLES = ("consumer.", "admin.")
_CLIENTS_OF = {
    "source": ("source.consumer", "source.admin"),
    "target": ("producer.override", "target.admin", "target.consumer"),
}
"""Prefixes of all clients that a flow opens to a side."""


@dataclass(frozen=True, slots=True)
class _Reading:
    """One way to read a key."""

    prefix: str
    judgement: KeyEffect


def check_flow_keys(raw: Settings) -> None:
    """Raise ConfigError for a key with a blank before its arrow, because the key would end at the
    blank.
    """
    for setting in raw.values():
        if setting.value.startswith(_ARROW):
            raise refuse(
                setting,
                "a key ends at the first blank",
                f"write it without blanks: {setting.key}->...",
            )


def _of_no_flow(key: str, aliases: Collection[str]) -> KeyEffect:
    """Judge a line of a flow that `clusters` does not have, such as one of a removed cluster."""
    source, _, rest = key.partition(_ARROW)
    target = next((alias for alias in aliases if rest.startswith(f"{alias}.")), rest.split(".")[0])
    if source == target and source in aliases:
        return KeyEffect(
            dead=True,
            reason="source and target are the same cluster, so nothing reads this line",
            instead="name two clusters",
        )
    unknown, other = (target, source) if source in aliases else (source, target)
    near = nearest(unknown, [alias for alias in aliases if alias != other])
    hint = f"did you mean {near}? " if near else ""
    return KeyEffect(
        dead=True,
        reason=f"{unknown or 'an empty name'} is not a cluster",
        instead=f"{hint}`clusters` has {', '.join(aliases)}, so nothing reads this line",
    )


def check_own_keys(raw: Settings, aliases: Collection[str]) -> None:
    """Raise ConfigError for unknown `twinlog.*` keys and for those in a place where they are not
    read.
    """
    for setting in raw.values():
        for prefix, name in _readings(setting.key, aliases):
            if not name.startswith(OWN_PREFIX):
                continue
            judgement = _judge(prefix, name, aliases)
            if judgement.known:
                break
            near = nearest(name, OWN_FLOW_NAMES | OWN_PROCESS_NAMES) or name
            better = _judge(prefix, near, aliases)
            todo = better.instead or f"did you mean {prefix}{near}?"
            if near == name:
                todo = "see the list of keys"
            raise refuse(setting, judgement.reason, judgement.instead or todo)


def audit_keys(raw: Settings, aliases: Collection[str]) -> Iterator[ConfigWarning]:
    """Yield warnings about keys without effect and deprecated names."""
    for setting in raw.values():
        readings = [
            _Reading(prefix, _judge(prefix, name, aliases))
            for prefix, name in _readings(setting.key, aliases)
        ]
        if any(reading.judgement.known for reading in readings):
            yield from _audit_known(raw, setting, readings)
            continue
        judgement = readings[0].judgement
        name = setting.key[len(readings[0].prefix) :]
        reason = why_without_effect(name) or why_no_plugin(name, setting.value)
        if reason:
            judgement = KeyEffect(dead=True, reason=reason)
        code = WarningCode.DEAD_KEY if judgement.dead else WarningCode.UNKNOWN_KEY
        near = _nearest_alias(setting.key, aliases) if not judgement.dead else None
        instead = near or judgement.instead
        yield warning(code, setting, judgement.reason + (f"; {instead}" if instead else ""))


def _audit_known(
    raw: Settings, setting: Setting, readings: list[_Reading]
) -> Iterator[ConfigWarning]:
    for reading in readings:
        name = setting.key[len(reading.prefix) :]
        if reading.judgement.known and name in RENAMED:
            message = f"deprecated name; write {reading.prefix}{RENAMED[name]}"
            yield warning(WarningCode.DEPRECATED_KEY, setting, message)
        why = why_without_effect(name) or why_no_plugin(name, setting.value)
        if reading.judgement.known and why and setting.value.strip():
            yield warning(WarningCode.DEAD_KEY, setting, why)
        source, arrow, _ = reading.prefix.partition(_ARROW)
        winner = raw.get(f"{source}.{name}")
        if arrow and winner and name.startswith(_LOSING_ROLES):
            message = (
                f"{winner.key} on line {winner.line} takes precedence; write "
                f"{reading.prefix}source.{name}"
            )
            yield warning(WarningCode.DEAD_KEY, setting, message)
        if arrow:
            yield from _audit_connection(raw, setting, reading.prefix, name)


def _audit_connection(
    raw: Settings, setting: Setting, prefix: str, name: str
) -> Iterator[ConfigWarning]:
    """Yield warnings about `A->B.target.cluster.x`, which rarely has an effect in MirrorMaker 2.

    Settings of a cluster (`B.x`, or `x` alone) are passed to each of its clients by role, and take
    precedence. The producer of the records belongs to the worker, which does not read this key.
    """
    side, _, key = name.partition(".cluster.")
    if side not in _CLIENTS_OF or not is_connection_key(key):
        return
    source, _, target = prefix.removesuffix(".").partition(_ARROW)
    alias = source if side == "source" else target
    winner = raw.get(f"{alias}.{key}") or raw.get(key)
    if winner is None and side == "source":
        return
    roles = [f"{prefix}{role}.{key}" for role in _CLIENTS_OF[side]]
    instead = f"write {alias}.{key}, or only for this flow {', '.join(roles)}"
    reason = "does not reach the producer of the copied records"
    if winner is not None:
        location = "" if winner.line is None else f" on line {winner.line}"
        reason = f"{winner.key}{location} takes precedence"
    yield warning(WarningCode.DEAD_KEY, setting, f"{reason}; {instead}")


def audit_values(raw: Settings) -> Iterator[ConfigWarning]:
    """Yield warnings about values that differ from what they suggest."""
    for setting in raw.values():
        if not setting.secret and has_comment(setting.value):
            message = "what looks like a comment is part of the value; put it on a line of its own"
            yield warning(WarningCode.COMMENT_IN_VALUE, setting, message)
        if not setting.from_provider and has_variable(setting.value):
            message = "${..} is not resolved: no provider of config.providers has a value for it"
            if "${strimzienv:" in setting.value:
                message += (
                    "; set it in the environment, or set the folder of secrets with --secrets"
                )
            if f":{UNGIVEN}/" in setting.value:
                continue  # it is an error already
            if f":{UNREAD}/" in setting.value:
                message = (
                    f"not read, because --secrets is not given: {UNREAD} is shown as its folder"
                )
            yield warning(WarningCode.UNRESOLVED, setting, message)
        elif setting.has_placeholder:
            message = (
                "a placeholder was not replaced, and is part of the value; write the value here"
            )
            yield warning(WarningCode.UNRESOLVED, setting, message)


def _readings(key: str, aliases: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield (prefix, rest), the most specific reading first."""
    for flow in candidate_flows(aliases):
        if key.startswith(f"{flow}."):
            yield f"{flow}.", key[len(f"{flow}.") :]
    for alias in aliases:
        if key.startswith(f"{alias}."):
            yield f"{alias}.", key[len(alias) + 1 :]
    yield "", key


def _judge(prefix: str, name: str, aliases: Collection[str]) -> KeyEffect:
    if provider_key(name):
        return KeyEffect(known=True)
    if not prefix:
        return _of_no_flow(name, aliases) if _ARROW in name else judge_general(name)
    scope = prefix[:-1]
    if scope in aliases:
        return judge_cluster(scope, name)
    source, _, target = scope.partition(_ARROW)
    return judge_flow(Flow(source, target), name)


def _nearest_alias(key: str, aliases: Collection[str]) -> str | None:
    """Return a hint if a key starts with a misspelt alias, and the rest is a key of a cluster."""
    first, _, rest = key.partition(".")
    near = nearest(first, aliases) if rest and first not in aliases else None
    if near and judge_cluster(near, rest).known:
        return f"did you mean {near}.{rest}?"
    return None


def audit_switches(raw: Settings, flows: Collection[Flow]) -> Iterator[ConfigWarning]:
    """Yield warnings about flows that a line seems to enable, but does not."""
    for flow in flows:
        on, reason = enabled(raw, flow)
        setting = raw.get(f"{flow}.enabled") or raw.get("enabled")
        if not on and reason and setting is not None:
            yield warning(WarningCode.FLOW_OFF, setting, reason)


def audit_duplicates(duplicates: Collection[DuplicateKey]) -> Iterator[ConfigWarning]:
    for duplicate in duplicates:
        yield ConfigWarning(
            code=WarningCode.DUPLICATE_KEY,
            file=duplicate.file,
            line=duplicate.line,
            key=shown_key(duplicate.key),
            message=f"overrides line {duplicate.earlier_line}; remove one of them",
        )
