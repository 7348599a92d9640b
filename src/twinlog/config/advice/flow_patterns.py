"""Warnings about enabled flows: patterns and names whose meaning differs from what they suggest."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Final

from twinlog.config.flow.policies import IDENTITY_CLASS, SEPARATOR, SOURCE_ALIAS, is_blank
from twinlog.config.flow.schema import FlowConfig, PolicyKind
from twinlog.config.regex.java_regex import compile_java
from twinlog.config.regex.patterns import has_lone_star
from twinlog.config.regex.reader import RegexProblem
from twinlog.config.values.origin import Setting
from twinlog.config.values.types import to_list
from twinlog.config.values.warnings import ConfigWarning, WarningCode, warning

_FILTERS = ("topics", "topics.exclude", "groups", "groups.exclude", "config.properties.exclude")
_OF_TOPICS = ("topics", "topics.exclude")


def audit_patterns(flows: Collection[FlowConfig]) -> Iterator[ConfigWarning]:
    """Yield warnings about patterns that differ from what they suggest. A line of many flows is
    reported once.
    """
    seen: set[Setting] = set()
    for flow in flows:
        for name in _FILTERS:
            setting = flow.settings.get(name)
            if setting is not None and setting not in seen:
                seen.add(setting)
                yield from _of_pattern(name, setting)


def _of_pattern(name: str, setting: Setting) -> Iterator[ConfigWarning]:
    entries = to_list(setting)
    if has_lone_star(entries):
        message = (
            "`*` is not a regular expression; it is read as `.*`, but MirrorMaker 2 rejects it"
        )
        yield warning(WarningCode.STAR_PATTERN, setting, message)
    for entry in entries:
        shown = "a value of a config provider" if setting.secret else f"`{entry}`"
        why = hopeless(entry, names_topics=name in _OF_TOPICS)
        if why:
            why = "matches nothing" if setting.secret else why
            yield warning(WarningCode.MATCHES_NOTHING, setting, f"{shown} {why}")
        meant = glob_like(entry)
        if meant and not setting.secret:
            message = f"{shown} means any number of `{entry[-2]}` at the end; did you mean {meant}?"
            yield warning(WarningCode.STAR_PATTERN, setting, message)


def audit_names(flows: Collection[FlowConfig]) -> Iterator[ConfigWarning]:
    """Yield warnings about a blank alias or separator: their meaning depends on each other."""
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
# excludes what precedes every name: `(?!.*(heartbeats|))` has an empty choice. `orders*` matches
# `order` and any number of `s`; `orders.*` was probably meant.

_AHEAD_NOT: Final = "(?!"
_SPECIAL: Final = frozenset("\\[](){}|^$?*+.")
_POSITIONAL: Final = re.compile(r"[\^$]|\\[bBAzZG]|\(\?")
"""Expressions that can match at one position of a name and not at another."""

_ILLEGAL: Final = re.compile(r"[^a-zA-Z0-9._-]")
_QUOTES: Final = "\"'"
_GLOB: Final = re.compile(r"[a-zA-Z0-9_-]+\*")


def hopeless(entry: str, *, names_topics: bool) -> str | None:
    """Return why this entry of a list of patterns matches no name, or None if it may match one."""
    body = _always_ahead(entry)
    if body is not None:
        return (
            f"matches no name: {_AHEAD_NOT}...) forbids `{body}`, which also matches an empty "
            "text, and every name starts with one"
        )
    plain = not _SPECIAL.intersection(entry)
    illegal = _ILLEGAL.search(entry) if names_topics and plain else None
    if illegal:
        what = "a blank" if illegal[0].isspace() else f"`{illegal[0]}`"
        is_quoted = illegal[0] in _QUOTES
        todo = "write it without quotes" if is_quoted else "separate names by commas"
        return f"matches no topic: topic names cannot have {what}; {todo}"
    return None


def glob_like(entry: str) -> str | None:
    """Return what an entry that ends with `*` after a plain character was probably meant to be."""
    return f"{entry[:-1]}.*" if _GLOB.fullmatch(entry) else None


def _always_ahead(entry: str) -> str | None:
    """Return the body of a negative look-ahead that every name satisfies, if the whole entry
    depends on it.
    """
    start = entry.removeprefix("^")
    if not start.startswith(_AHEAD_NOT) or _has_choices(entry):
        return None
    body = _group(start)[len(_AHEAD_NOT) : -1]
    behind = start[len(_AHEAD_NOT) + len(body) + 1 :]
    if _POSITIONAL.search(body) or behind[:1] in ("?", "*", "{"):
        return None
    try:
        return body if compile_java(body).match("") else None
    except RegexProblem:
        return None  # it refers to a group outside, so the result is unknown


def _group(text: str) -> str:
    """Return the group at the start of `text`, including brackets."""
    depth = 0
    for at, char in _unescaped(text):
        depth += (char == "(") - (char == ")")
        if not depth:
            return text[: at + 1]
    return text


def _has_choices(text: str) -> bool:
    """Return True if there is a `|` outside of all groups."""
    depth = 0
    for _, char in _unescaped(text):
        depth += (char == "(") - (char == ")")
        if char == "|" and not depth:
            return True
    return False


def _unescaped(text: str) -> list[tuple[int, str]]:
    """Return the characters that may be operators; those of classes are replaced with blanks."""
    found: list[tuple[int, str]] = []
    at = classes = 0
    while at < len(text):
        char = text[at]
        if char == "\\":
            at += 2
            continue
        classes += (char == "[") - (char == "]" and classes > 0)
        found.append((at, " " if classes else char))
        at += 1
    return found
