"""Warnings about keys without effect (unknown, deprecated, or written in the wrong place), and
about insecure settings, which take effect as in Java.

*No effect.* Connect ignores such keys. Twinlog ignores them too, but warns. Unknown `twinlog.*`
keys are errors, because only Twinlog can have been meant.

A key can be read in up to three ways (`A->B.x` of a flow, `A.x` of a cluster, `x` for everything).
The key is accepted if it is known in at least one of these ways.

*Insecure.* The checks do not connect to the clusters, and messages never show values of config
providers.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Final
from urllib.parse import urlsplit

from twinlog.config.advice.effects import (
    KeyEffect,
    dead,
    judge_cluster,
    judge_flow,
    judge_general,
    why_without_effect,
)
from twinlog.config.files.providers import VARIABLE, provider_key
from twinlog.config.flow.custom_classes import METHODS, SEPARATES
from twinlog.config.flow.policies import IDENTITY_CLASS, SEPARATOR, SOURCE_ALIAS, is_blank
from twinlog.config.flow.precedence import cluster_settings, enabled_or_why_not, prefixes
from twinlog.config.flow.schema import FlowConfig, PolicyKind
from twinlog.config.keys.client_keys import SECURITY_PROTOCOL, is_connection_key
from twinlog.config.keys.key_table import OWN_FLOW_NAMES, OWN_PREFIX, OWN_PROCESS_NAMES, RENAMED
from twinlog.config.regex.patterns import LONE_STAR, compile_java
from twinlog.config.regex.reader import RegexProblem
from twinlog.config.strimzi.secrets import UNGIVEN, UNREAD
from twinlog.config.values.nearest import nearest, suggestion
from twinlog.config.values.origin import (
    ClientProperties,
    Setting,
    Settings,
    has_comment,
    refuse,
)
from twinlog.config.values.types import to_list, trimmed
from twinlog.config.values.warnings import ConfigWarning, WarningCode, warning
from twinlog.model import Flow

_MECHANISM: Final = "sasl.mechanism"
_ENDPOINTS: Final = (
    "sasl.oauthbearer.token.endpoint.url",
    "sasl.oauthbearer.jwks.endpoint.url",
)
_IDENTIFICATION: Final = "ssl.endpoint.identification.algorithm"
_IN_CLEAR: Final = {"PLAIN": "the password", "OAUTHBEARER": "the token"}
_JAAS: Final = "sasl.jaas.config"
_NEED_A_PROTOCOL: Final = {
    _JAAS: "SASL_SSL",
    _MECHANISM: "SASL_SSL",
    "ssl.truststore.location": "SSL",
    "ssl.truststore.certificates": "SSL",
    "ssl.keystore.location": "SSL",
}
_SECRET_OF_JAAS: Final = re.compile(
    r"(password|clientSecret|oauth\.client\.secret)\s*=\s*[\"']?[^\"'\s;]", re.IGNORECASE
)
_ENDPOINT_OF_JAAS: Final = re.compile(
    r"oauth\.token\.endpoint\.uri\s*=\s*[\"']?http:", re.IGNORECASE
)
_SECRETS: Final = ("ssl.key.password", "ssl.keystore.password", "ssl.keystore.key")
"""Keys of secrets. A truststore's password is not one: the content of a truststore is public."""
_POLICY: Final = "replication.policy.class"


def audit_security(flows: Collection[FlowConfig]) -> Iterator[ConfigWarning]:
    """Yield warnings about settings that an attacker on the network, or the author of the file,
    could exploit. Each line is reported once.
    """
    yield from dict.fromkeys(found for flow in flows for found in _flow_warnings(flow))


def _flow_warnings(flow: FlowConfig) -> Iterator[ConfigWarning]:
    clients = flow.clients
    for client in (*clients.of_source(), clients.target_producer, clients.target_admin):
        yield from _client_secrets(client)
        yield from _without_protocol(client)
    for key in (_POLICY, *METHODS):
        custom = flow.settings.get(key)
        if custom is not None and SEPARATES in custom.value:
            message = (
                "this module is executed as the current user whenever the file is read, also by "
                "`check`, `convert` and `--explain`"
            )
            yield warning(WarningCode.CUSTOM_CODE, custom, message)


def _without_protocol(client: ClientProperties) -> Iterator[ConfigWarning]:
    """Without security.protocol, yield a warning about the first TLS or SASL setting."""
    if SECURITY_PROTOCOL in client:
        return
    for key, protocol in _NEED_A_PROTOCOL.items():
        if key in client and trimmed(client[key]):
            setting = client.origin(key)
            wanted = setting.key.removesuffix(key) + SECURITY_PROTOCOL
            message = (
                f"has no effect: {wanted} is not set, so connections are PLAINTEXT; write "
                f"{wanted} = {protocol}"
            )
            yield warning(WarningCode.NO_PROTOCOL, setting, message)
            return


def audit_secrets(raw: Settings) -> Iterator[ConfigWarning]:
    """Yield one warning for all passwords in the file itself, on the line of the first password."""
    secrets = [
        setting for setting in raw.values() if setting.line is not None and _holds_secret(setting)
    ]
    if not secrets:
        return
    others = sorted({setting.line for setting in secrets[1:] if setting.line is not None})
    also = f" (also on line {', '.join(map(str, others))})" if others else ""
    yield warning(
        WarningCode.SECRET_IN_FILE,
        secrets[0],
        f"the file contains a secret{also}, which everyone who can read the file can see; "
        "write ${env:NAME} in its place, and add these two lines: config.providers = env, and "
        "config.providers.env.class = "
        "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
    )


def _holds_secret(setting: Setting) -> bool:
    if setting.from_provider:
        return False
    written = VARIABLE.sub("", setting.without_placeholders)
    if setting.key.endswith(_JAAS):
        return _SECRET_OF_JAAS.search(written) is not None
    return setting.key.endswith(_SECRETS) and bool(written)


def _client_secrets(client: ClientProperties) -> Iterator[ConfigWarning]:
    protocol = trimmed(client.get(SECURITY_PROTOCOL, "")).upper()
    mechanism = trimmed(client.get(_MECHANISM, "")).upper()
    if protocol == "SASL_PLAINTEXT" and mechanism in _IN_CLEAR:
        exposed = _IN_CLEAR[mechanism]
        message = f"{mechanism} over SASL_PLAINTEXT sends {exposed} unencrypted; use SASL_SSL"
        yield warning(WarningCode.INSECURE, client.origin(SECURITY_PROTOCOL), message)
    if protocol.startswith("SASL_") and mechanism == "OAUTHBEARER":
        in_clear = [
            key
            for key in _ENDPOINTS
            if urlsplit(trimmed(client.get(key, ""))).scheme.lower() == "http"
        ]
        if _ENDPOINT_OF_JAAS.search(client.get(_JAAS, "")):
            in_clear.append(_JAAS)
        for key in in_clear:
            message = "over http the client's secret and the token are sent unencrypted; use https"
            yield warning(WarningCode.INSECURE, client.origin(key), message)
    if protocol in ("SSL", "SASL_SSL") and not trimmed(client.get(_IDENTIFICATION, "https")):
        message = (
            "empty, so any certificate of a trusted issuer is accepted as the broker's; remove the "
            "line"
        )
        yield warning(WarningCode.INSECURE, client.origin(_IDENTIFICATION), message)


_ARROW = "->"
_LOSING_ROLES = ("consumer.", "admin.")
_CLIENTS_OF = {
    "source": ("source.consumer", "source.admin"),
    "target": ("producer.override", "target.admin", "target.consumer"),
}
"""Key prefixes of all clients that a flow opens to its source and to its target."""


def check_flow_keys(raw: Settings) -> None:
    """Raise ConfigError for a key with a blank before `->`, because a blank ends a key."""
    for setting in raw.values():
        if setting.value.startswith(_ARROW):
            raise refuse(
                setting,
                "a key ends at the first blank",
                f"write it without blanks: {setting.key}->...",
            )


def _effect_of_unknown_flow(key: str, aliases: Collection[str]) -> KeyEffect:
    """Return the effect of a line for a flow with an unknown cluster, such as one that was removed
    from `clusters`.
    """
    source, _, rest = key.partition(_ARROW)
    target = next((alias for alias in aliases if rest.startswith(f"{alias}.")), rest.split(".")[0])
    if source == target and source in aliases:
        reason = "source and target are the same cluster, so nothing reads this line"
        return dead(reason, "name two clusters")
    unknown, other = (target, source) if source in aliases else (source, target)
    hint = suggestion(unknown, [alias for alias in aliases if alias != other])
    todo = f"{hint} `clusters` has {', '.join(aliases)}, so nothing reads this line".lstrip()
    return dead(f"{unknown or 'an empty name'} is not a cluster", todo)


def check_own_keys(raw: Settings, aliases: Collection[str]) -> None:
    """Raise ConfigError for `twinlog.*` keys that are unknown, or not read with their prefix."""
    for setting in raw.values():
        for prefix in prefixes(setting.key, aliases):
            name = setting.key.removeprefix(prefix)
            if not name.startswith(OWN_PREFIX):
                continue
            judgement = _effect_of(prefix, name, aliases)
            if judgement.known:
                break
            near = nearest(name, OWN_FLOW_NAMES | OWN_PROCESS_NAMES) or name
            better = _effect_of(prefix, near, aliases)
            todo = better.instead or f"did you mean {prefix}{near}?"
            if near == name:
                todo = "docs/configuration.md lists all keys"
            raise refuse(setting, judgement.reason, judgement.instead or todo)


def audit_keys(raw: Settings, aliases: Collection[str]) -> Iterator[ConfigWarning]:
    """Yield warnings about keys without effect and deprecated names."""
    for setting in raw.values():
        readings = {
            prefix: _effect_of(prefix, setting.key.removeprefix(prefix), aliases)
            for prefix in prefixes(setting.key, aliases)
        }
        if any(judgement.known for judgement in readings.values()):
            yield from _audit_known(raw, setting, readings)
            continue
        prefix, judgement = next(iter(readings.items()))
        name = setting.key.removeprefix(prefix)
        reason = why_without_effect(name, setting.value)
        if reason:
            judgement = KeyEffect(dead=True, reason=reason)
        code = WarningCode.DEAD_KEY if judgement.dead else WarningCode.UNKNOWN_KEY
        near = _nearest_alias(setting.key, aliases) if not judgement.dead else None
        instead = near or judgement.instead
        yield warning(code, setting, judgement.reason + (f"; {instead}" if instead else ""))


def _audit_known(
    raw: Settings, setting: Setting, readings: Mapping[str, KeyEffect]
) -> Iterator[ConfigWarning]:
    for prefix, judgement in readings.items():
        name = setting.key.removeprefix(prefix)
        if judgement.known and name in RENAMED:
            message = f"deprecated name; write {prefix}{RENAMED[name]}"
            yield warning(WarningCode.DEPRECATED_KEY, setting, message)
        why = why_without_effect(name, setting.value)
        if judgement.known and why and setting.value.strip():
            yield warning(WarningCode.DEAD_KEY, setting, why)
        source, arrow, _ = prefix.partition(_ARROW)
        if arrow and name.startswith(_LOSING_ROLES):
            winner = cluster_settings(raw, source).get(name)
            if winner is not None:
                message = f"{_precedes(winner)}; write {prefix}source.{name}"
                yield warning(WarningCode.DEAD_KEY, setting, message)
        if arrow:
            yield from _audit_connection(raw, setting, prefix, name)


def _audit_connection(
    raw: Settings, setting: Setting, prefix: str, name: str
) -> Iterator[ConfigWarning]:
    """Yield warnings about `A->B.target.cluster.x`, which rarely has an effect in MirrorMaker 2.

    Settings of a cluster (`B.x`, or `x` alone) are passed to each of its clients by role, and take
    precedence over `A->B.target.cluster.x`. The producer of the copied records belongs to the
    Connect worker, which ignores `A->B.target.cluster.x`.
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
    instead = (
        f"write {alias}.{key}. To set it for this flow only, write all of these: {', '.join(roles)}"
    )
    reason = "does not reach the producer of the copied records"
    if winner is not None:
        reason = _precedes(winner)
    yield warning(WarningCode.DEAD_KEY, setting, f"{reason}; {instead}")


def _precedes(winner: Setting) -> str:
    location = "" if winner.line is None else f" on line {winner.line}"
    return f"{winner.key}{location} takes precedence"


def audit_values(raw: Settings) -> Iterator[ConfigWarning]:
    """Yield warnings about values whose meaning differs from what they suggest."""
    for setting in raw.values():
        if not setting.secret and has_comment(setting.value):
            message = "what looks like a comment is part of the value; put it on a line of its own"
            yield warning(WarningCode.COMMENT_IN_VALUE, setting, message)
        if not setting.from_provider and VARIABLE.search(setting.value):
            message = "${..} is not resolved: no provider of config.providers has a value for it"
            if "${strimzienv:" in setting.value:
                message += (
                    "; set it in the environment, or set the folder of secrets with --secrets"
                )
            if f":{UNGIVEN}/" in setting.value:
                continue  # another check reports the key as an error
            if f":{UNREAD}/" in setting.value:
                message = (
                    f"the secret is not read, because --secrets is not given; {UNREAD} stands for "
                    "its folder"
                )
            yield warning(WarningCode.UNRESOLVED, setting, message)
        elif setting.has_placeholder:
            message = (
                "a placeholder was not replaced, and is part of the value; write the value here"
            )
            yield warning(WarningCode.UNRESOLVED, setting, message)


def _effect_of(prefix: str, name: str, aliases: Collection[str]) -> KeyEffect:
    if provider_key(name):
        return KeyEffect(known=True)
    if not prefix:
        return _effect_of_unknown_flow(name, aliases) if _ARROW in name else judge_general(name)
    scope = prefix[:-1]
    if scope in aliases:
        return judge_cluster(scope, name)
    source, _, target = scope.partition(_ARROW)
    return judge_flow(Flow(source, target), name)


def _nearest_alias(key: str, aliases: Collection[str]) -> str | None:
    """Return a hint for a key of a cluster that starts with a misspelt alias, or None."""
    first, _, rest = key.partition(".")
    near = nearest(first, aliases) if rest and first not in aliases else None
    if near and judge_cluster(near, rest).known:
        return f"did you mean {near}.{rest}?"
    return None


def audit_switches(raw: Settings, flows: Collection[Flow]) -> Iterator[ConfigWarning]:
    """Yield warnings about flows that a line seems to enable, but does not."""
    for flow in flows:
        on, reason = enabled_or_why_not(raw, flow)
        setting = raw.get(f"{flow}.enabled") or raw.get("enabled")
        if not on and reason and setting is not None:
            yield warning(WarningCode.FLOW_OFF, setting, reason)


_FILTERS = ("topics", "topics.exclude", "groups", "groups.exclude", "config.properties.exclude")
_OF_TOPICS = ("topics", "topics.exclude")


def audit_patterns(flows: Collection[FlowConfig]) -> Iterator[ConfigWarning]:
    """Yield warnings about patterns whose meaning differs from what they suggest. A line that
    applies to many flows is reported once.
    """
    each = ((name, flow.settings.get(name)) for flow in flows for name in _FILTERS)
    for name, setting in dict.fromkeys(each):
        if setting is not None:
            yield from _pattern_warnings(name, setting)


def _pattern_warnings(name: str, setting: Setting) -> Iterator[ConfigWarning]:
    entries = to_list(setting)
    if LONE_STAR in entries:
        message = (
            "`*` is not a regular expression; it is read as `.*` here, but MirrorMaker 2 rejects it"
        )
        yield warning(WarningCode.STAR_PATTERN, setting, message)
    for entry in entries:
        shown = "a value of a config provider" if setting.secret else f"`{entry}`"
        why = why_never_matches(entry, names_topics=name in _OF_TOPICS)
        if why:
            why = "matches nothing" if setting.secret else why
            yield warning(WarningCode.MATCHES_NOTHING, setting, f"{shown} {why}")
        meant = intended_pattern(entry)
        if meant and not setting.secret:
            message = f"{shown} means any number of `{entry[-2]}` at the end; did you mean {meant}?"
            yield warning(WarningCode.STAR_PATTERN, setting, message)


def audit_names(flows: Collection[FlowConfig]) -> Iterator[ConfigWarning]:
    """Yield warnings about a blank alias or separator. The effect of each depends on the other."""
    seen: set[Setting] = set()
    for flow in flows:
        is_kept = flow.policy.kind is PolicyKind.IDENTITY
        no_alias = is_blank(flow.settings, SOURCE_ALIAS)
        name = SEPARATOR if is_blank(flow.settings, SEPARATOR) else SOURCE_ALIAS
        setting = flow.settings.get(name)
        if setting is None or setting in seen or not is_blank(flow.settings, name):
            continue
        seen.add(setting)
        if name == SEPARATOR and no_alias:
            message = (
                "alias and separator are blank, so topics keep their names: the flow runs under "
                f"the identity policy; write replication.policy.class = {IDENTITY_CLASS}"
            )
            yield warning(WarningCode.BLANK_NAME, setting, message)
        elif name == SEPARATOR:
            message = (
                "has no effect on topics, which keep their names under the identity policy; only "
                "the names of MirrorMaker 2's internal topics are written without a separator"
            )
            yield warning(WarningCode.NO_MEANING, setting, message)
        elif not is_kept:
            message = (
                f"the alias is blank, so remote topics are called "
                f"`{flow.policy.separator}TOPIC`; write replication.policy.class = "
                f"{IDENTITY_CLASS} if topics should keep their names, or remove the line"
            )
            yield warning(WarningCode.BLANK_NAME, setting, message)


# Warnings about patterns that cannot match, or that match something else than they suggest. A
# pattern cannot match if it is plain text with a character that topic names cannot have, or if it
# forbids a text with which every name begins: `(?!.*(heartbeats|))` forbids the empty text.
# `orders*` matches `order` and any number of `s`, but `orders.*` was probably meant.

_AHEAD_NOT: Final = "(?!"
_SPECIAL: Final = frozenset("\\[](){}|^$?*+.")
_POSITIONAL: Final = re.compile(r"[\^$]|\\[bBAzZG]|\(\?")
"""Matches expressions that depend on the position in a name."""

_ILLEGAL: Final = re.compile(r"[^a-zA-Z0-9._-]")
_QUOTES: Final = "\"'"
_GLOB: Final = re.compile(r"[a-zA-Z0-9_-]+\*")


def why_never_matches(entry: str, *, names_topics: bool) -> str | None:
    """Return why this entry of a list of patterns matches no name, or None if it may match one."""
    body = _rejecting_lookahead(entry)
    if body is not None:
        return (
            f"matches no name: {_AHEAD_NOT}...) forbids `{body}`, which also matches an empty "
            "text, and every name starts with an empty text"
        )
    plain = not _SPECIAL.intersection(entry)
    illegal = _ILLEGAL.search(entry) if names_topics and plain else None
    if illegal:
        what = "a blank" if illegal[0].isspace() else f"`{illegal[0]}`"
        is_quoted = illegal[0] in _QUOTES
        todo = "write it without quotes" if is_quoted else "separate names by commas"
        return f"matches no topic: topic names cannot have {what}; {todo}"
    return None


def intended_pattern(entry: str) -> str | None:
    """Return the pattern that was probably meant by an entry that ends with `*` after a plain
    character, or None.
    """
    return f"{entry[:-1]}.*" if _GLOB.fullmatch(entry) else None


def _rejecting_lookahead(entry: str) -> str | None:
    """Return the body of a look-ahead that rejects every name, or None if there is none."""
    start = entry.removeprefix("^")
    if not start.startswith(_AHEAD_NOT) or _has_choices(entry):
        return None
    body = _group(start)[len(_AHEAD_NOT) : -1]
    rest = start[len(_AHEAD_NOT) + len(body) + 1 :]
    if _POSITIONAL.search(body) or rest[:1] in ("?", "*", "{"):
        return None
    try:
        return body if compile_java(body).match("") else None
    except RegexProblem:
        return None  # the body refers to another group, so the result is unknown


def _group(text: str) -> str:
    """Return the group at the start of `text`, including brackets."""
    end = next((at for at, _, depth in _with_depth(text) if not depth), len(text))
    return text[: end + 1]


def _has_choices(text: str) -> bool:
    """Return True if there is a `|` outside of all groups."""
    return any(char == "|" and not depth for _, char, depth in _with_depth(text))


def _with_depth(text: str) -> Iterator[tuple[int, str, int]]:
    """Yield position, character, and number of open groups after it, for each character that is not
    escaped. Characters within classes are replaced by blanks.
    """
    at = classes = depth = 0
    while at < len(text):
        char = text[at]
        if char == "\\":
            at += 2
            continue
        classes += (char == "[") - (char == "]" and classes > 0)
        char = " " if classes else char
        depth += (char == "(") - (char == ")")
        yield at, char, depth
        at += 1
