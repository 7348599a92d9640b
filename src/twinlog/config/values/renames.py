r"""Renames topics on the target, before and after the replication policy is applied.

Before the policy, `twinlog.rename` applies, such as `orders:eu-orders, pay-(.*):pay.$1`. A rule is
a Java regular expression for a whole source name, a colon, and the new name. The last colon of a
rule separates expression and name, because an expression can contain colons but a topic name
cannot. The first rule that matches applies; topics without a match keep their names. In the new
name, `$1` to `$9` are groups (`$0`: the whole name), and `\` escapes the next character, as in
Java's replacements. The replication policy is applied to the result: `A.eu-orders` with the default
policy, `eu-orders` with the identity policy.

After the policy, each `RegexRouter` of Kafka Connect applies, in the order of `transforms`. Its
input is the name from the policy or from the router before it, such as `A.orders`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from twinlog.config.values.origin import Setting, refuse
from twinlog.config.values.types import to_list, to_names, to_pattern

KEY: Final = "twinlog.rename"
LONGEST_NAME: Final = 249
"""Kafka's limit for topic names, in characters."""
_NAME: Final = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)
_MOST_GROUPS: Final = 9
_GROUP_NAME: Final = re.compile(r"\{([a-zA-Z][a-zA-Z0-9]*)\}")
_EXAMPLE: Final = "write orders:eu-orders, pay-(.*):pay.$1"


def is_topic_name(name: str) -> bool:
    """Return True if all characters are valid in a topic name. The length is not checked."""
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
        return None if match is None else _filled(self._parts, match)

    def __str__(self) -> str:
        return f"{self.pattern}:{self.template}"


@dataclass(frozen=True, slots=True)
class Router:
    """A `RegexRouter` of Kafka Connect, which renames remote topics that match."""

    name: str
    regex: str
    replacement: str
    topics: str
    """Expression of the router's predicate `TopicNameMatches`. It is compared with the topic's name
    before this router renames the topic.
    """
    is_negated: bool = False

    def routed(self, remote: str) -> str:
        """Return the name of a remote topic after this router. A new name may be an invalid topic
        name.

        As in Java, the expression must match the whole name, but only the first match found is
        replaced: `a|ab` matches `ab`, and replaces its `a`.
        """
        is_met = _compiled(self.topics).fullmatch(remote) is not None
        regex = _compiled(self.regex)
        match = regex.search(remote) if regex.fullmatch(remote) else None
        if is_met is self.is_negated or match is None:
            return remote
        new = _filled(_parts(self.replacement, regex), match)
        return f"{remote[: match.start()]}{new}{remote[match.end() :]}"

    def __str__(self) -> str:
        return f"transforms.{self.name}"


def _compiled(expression: str) -> re.Pattern[str]:
    """Return a Java regular expression that is known to be valid, in compiled form."""
    # imported here because no lane needs it
    from twinlog.config.regex.patterns import compile_java, joined

    return compile_java(joined((expression,)))


@dataclass(frozen=True, slots=True)
class RemoteName:
    """Computes the name of a topic with which an expression is compared. This is the source topic's
    name, or, for a transform of Kafka Connect, the remote name after the routers that precede the
    transform.
    """

    prefix: str = ""
    routers: tuple[Router, ...] = ()

    def of(self, topic: str) -> str:
        return routed(self.routers, f"{self.prefix}{topic}")


SOURCE_NAME: Final = RemoteName()


def routed(routers: Iterable[Router], remote: str) -> str:
    """Return the name of a remote topic after the routers have been applied in order."""
    for router in routers:
        remote = router.routed(remote)
    return remote


@dataclass(frozen=True, slots=True)
class Renames:
    """All rules of a flow that rename topics."""

    rules: tuple[RenameRule, ...] = ()
    routers: tuple[Router, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.rules or self.routers)

    def rule(self, topic: str) -> RenameRule | None:
        """Return the first rule that matches a source topic, or None. Invalid names match none."""
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


def to_router(
    name: str, regex: Setting, replacement: Setting, topics: str, *, is_negated: bool
) -> Router:
    """Parse a router. Raises ConfigError if Connect would not start it, or if it would fail at each
    record that it matches. The new names are not checked, because a later router may make a valid
    name from an invalid one.
    """
    router = Router(name, to_pattern(regex).entries[0], replacement.value, topics, is_negated)
    _checked_parts(replacement, replacement.shown, router.replacement, _compiled(router.regex))
    return router


def _rule(setting: Setting, entry: str) -> RenameRule:
    pattern, colon, template = (part.strip() for part in entry.rpartition(":"))
    if not colon or not pattern or not template:
        todo = f"{_EXAMPLE}; a comma ends a rule, even inside an expression"
        raise refuse(setting, f'"{entry}" is not pattern:name', todo)
    regex = _compiled(to_names(replace(setting, value=pattern)).entries[0])
    if regex.groups > _MOST_GROUPS:
        what = f'"{pattern}" has {regex.groups} groups, but the new name can only use $1 to $9'
        raise refuse(setting, what, "write (?:...) for groups that are not used")
    parts = _checked_parts(setting, f'"{entry}"', template, regex)
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


class _TemplateProblem(ValueError):
    """Raised if a replacement is invalid in Java. Its arguments are the problem and what to do."""


def _checked_parts(
    setting: Setting, shown: str, template: str, regex: re.Pattern[str]
) -> tuple[str | int, ...]:
    """Return the parts of a replacement. Raises ConfigError if it would fail in Java."""
    try:
        return _parts(template, regex)
    except _TemplateProblem as problem:
        what, todo = problem.args
        raise refuse(setting, f"{shown} {what}", todo) from None


def _parts(template: str, regex: re.Pattern[str]) -> tuple[str | int, ...]:
    """Split a replacement of Java into single characters and group numbers. Raises _TemplateProblem
    if the replacement is invalid.
    """
    out: list[str | int] = []
    rest = template
    while rest:
        char, rest = rest[0], rest[1:]
        if char == "\\":
            if not rest:
                raise _TemplateProblem("ends with a single \\", "remove it, or double it")
            char, rest = rest[0], rest[1:]
        elif char == "$":
            group, used = _group(rest, regex)
            rest = rest[used:]
            out.append(group)
            continue
        out.append(char)
    return tuple(out)


def _group(text: str, regex: re.Pattern[str]) -> tuple[int, int]:
    """Return the number of the group that `text` (after `$`) names, and the characters used."""
    named = _GROUP_NAME.match(text)
    if named and named[1] in regex.groupindex:
        return regex.groupindex[named[1]], named.end()
    digits = len(text) - len(text.lstrip("0123456789"))
    # Java reads another digit of the number only if a group with the longer number exists
    fits = [n for n in range(1, digits + 1) if int(text[:n]) <= regex.groups]
    if fits:
        return int(text[: fits[-1]]), fits[-1]
    what = f"uses ${text[:1]}, but its expression has {regex.groups} groups"
    raise _TemplateProblem(what, "write $1 for the text matched by the first ( )")


def _filled(parts: Iterable[str | int], match: re.Match[str]) -> str:
    """Return a replacement with the text of each group. A group that matched nothing is empty."""
    return "".join(part if isinstance(part, str) else (match.group(part) or "") for part in parts)
