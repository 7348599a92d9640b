r"""`twinlog.rename`: other names for topics on the target, such as `orders:eu-orders,
pay-(.*):pay.$1`.

A rule is a Java regular expression for a whole source name, a colon, and the new name. The last
colon separates them, because an expression can contain colons but a topic name cannot. The first
rule that matches applies; topics without a match keep their names. In the new name, `$1` to `$9`
are groups (`$0`: the whole name), and `\` escapes the next character, as in Java's replacements.

The replication policy is applied to the result: `A.eu-orders` with the default policy, `eu-orders`
with the identity policy.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Final

from twinlog.config.values.origin import Setting, refuse
from twinlog.config.values.types import to_list, to_names

KEY: Final = "twinlog.rename"
LONGEST_NAME: Final = 249
"""Kafka's limit for topic names, in characters."""
_NAME: Final = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)
_MOST_GROUPS: Final = 9
_EXAMPLE: Final = "write orders:eu-orders, pay-(.*):pay.$1"


def is_topic_name(name: str) -> bool:
    """Return True if the characters are valid in a topic name; the length is not checked."""
    return _NAME.fullmatch(name) is not None and name not in {".", ".."}


@dataclass(frozen=True, slots=True)
class RenameRule:
    pattern: str
    template: str
    _regex: re.Pattern[str] = field(repr=False, compare=False)
    _parts: tuple[str | int, ...] = field(repr=False, compare=False)

    def renamed(self, topic: str) -> str | None:
        """Return the new name, which may be an invalid topic name, or None if the rule does not
        match.
        """
        match = self._regex.fullmatch(topic)
        if match is None:
            return None
        return "".join(
            part if isinstance(part, str) else (match.group(part) or "") for part in self._parts
        )

    def __str__(self) -> str:
        return f"{self.pattern}:{self.template}"


@dataclass(frozen=True, slots=True)
class Renames:
    """All rules of a flow."""

    rules: tuple[RenameRule, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.rules)

    def rule(self, topic: str) -> RenameRule | None:
        """Return the rule that applies to a source topic, or None. An invalid topic
        name has none.
        """
        if not is_topic_name(topic):
            return None
        return next((rule for rule in self.rules if rule.renamed(topic) is not None), None)

    def name(self, topic: str) -> str:
        """Return a source topic's name before the replication policy is applied."""
        rule = self.rule(topic)
        renamed = None if rule is None else rule.renamed(topic)
        return topic if renamed is None else renamed


NO_RENAMES: Final = Renames()


def to_renames(setting: Setting) -> Renames:
    """Parse the rules. Raises ConfigError for a rule that is invalid or ambiguous."""
    return Renames(tuple(_rule(setting, entry) for entry in to_list(setting)))


def _rule(setting: Setting, entry: str) -> RenameRule:
    pattern, colon, template = (part.strip() for part in entry.rpartition(":"))
    if not colon or not pattern or not template:
        todo = f"{_EXAMPLE}; a comma ends a rule, even inside an expression"
        raise refuse(setting, f'"{entry}" is not pattern:name', todo)
    regex = to_names(replace(setting, value=pattern)).regex
    if regex is None:  # pragma: no cover (an entry without a pattern was refused)
        raise AssertionError(pattern)
    if regex.groups > _MOST_GROUPS:
        what = f'"{pattern}" has {regex.groups} groups, but the new name can only use $1 to $9'
        raise refuse(setting, what, "write (?:...) for groups that are not used")
    parts = _parts(setting, entry, template, regex.groups)
    fixed = "".join(part for part in parts if isinstance(part, str))
    is_fixed = all(isinstance(part, str) for part in parts)
    if (fixed and _NAME.fullmatch(fixed) is None) or (is_fixed and not is_topic_name(fixed)):
        raise refuse(
            setting,
            f'"{entry}" gives an invalid topic name',
            "use letters, digits, `.`, `_` and `-`",
        )
    if is_fixed and len(fixed) > LONGEST_NAME:
        what = f'"{entry}" gives a name of {len(fixed)} characters'
        raise refuse(setting, what, f"use at most {LONGEST_NAME}")
    return RenameRule(pattern, template, regex, parts)


def _parts(setting: Setting, entry: str, template: str, groups: int) -> tuple[str | int, ...]:
    out: list[str | int] = []
    chars = iter(template)
    for char in chars:
        if char not in {"$", "\\"}:
            out.append(char)
            continue
        after = next(chars, "")
        if char == "\\":
            if not after:
                raise refuse(setting, f'"{entry}" ends with a single \\', "remove it, or double it")
            out.append(after)
        elif after in set("0123456789") and int(after) <= groups:
            out.append(int(after))
        else:
            what = f'"{entry}" uses ${after}, but its expression has {groups} groups'
            raise refuse(setting, what, "write $1 for the text matched by the first ( )")
    return tuple(out)
