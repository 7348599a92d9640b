"""Patterns that surely select nothing, or not what they seem to: told, never repaired.

A pattern is called hopeless only where that can be shown:

- it demands that something is *not* ahead which always is: `(?!.*(heartbeats|))` has an empty
  choice, and nothing at all is ahead of every name;
- it is plain text with a character that no topic's name can have, as in `orders payments`.

`orders*` is another matter: it means `order` and any number of `s`, where `orders.*` was meant.
"""

from __future__ import annotations

import re
from typing import Final

from twinlog.config.regex.java_regex import compile_java
from twinlog.config.regex.reader import RegexProblem

_AHEAD_NOT: Final = "(?!"
_SPECIAL: Final = frozenset("\\[](){}|^$?*+.")
_POSITIONAL: Final = re.compile(r"[\^$]|\\[bBAzZG]|\(\?")
"""What may hold at one place of a name and not at another."""

_ILLEGAL: Final = re.compile(r"[^a-zA-Z0-9._-]")
_QUOTES: Final = "\"'"
_GLOB: Final = re.compile(r"[a-zA-Z0-9_-]+\*")


def hopeless(entry: str, *, names_topics: bool) -> str | None:
    """Why this entry of a list of patterns matches no name, or None where it may match one."""
    body = _always_ahead(entry)
    if body is not None:
        return (
            f"matches no name: {_AHEAD_NOT}...) forbids `{body}`, which an empty text matches too, "
            "and that is ahead of every name"
        )
    plain = not _SPECIAL.intersection(entry)
    illegal = _ILLEGAL.search(entry) if names_topics and plain else None
    if illegal:
        what = "a blank" if illegal[0].isspace() else f"`{illegal[0]}`"
        is_quoted = illegal[0] in _QUOTES
        todo = "write it without quotes" if is_quoted else "separate names by commas"
        return f"matches no topic: no name has {what}; {todo}"
    return None


def glob_like(entry: str) -> str | None:
    """What was probably meant by an entry that ends in `*` behind a plain character."""
    return f"{entry[:-1]}.*" if _GLOB.fullmatch(entry) else None


def _always_ahead(entry: str) -> str | None:
    """The body of a look-ahead that forbids what is always there; the whole entry depends on it."""
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
        return None  # a reference to a group outside: nothing is known


def _group(text: str) -> str:
    """The group that `text` begins with, brackets included."""
    depth = 0
    for at, char in _unescaped(text):
        depth += (char == "(") - (char == ")")
        if not depth:
            return text[: at + 1]
    return text


def _has_choices(text: str) -> bool:
    """Whether a `|` stands outside of all groups."""
    depth = 0
    for _, char in _unescaped(text):
        depth += (char == "(") - (char == ")")
        if char == "|" and not depth:
            return True
    return False


def _unescaped(text: str) -> list[tuple[int, str]]:
    """Characters that may be operators; those of classes become blanks."""
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
