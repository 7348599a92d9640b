r"""Java's regular expressions for names, translated for Python's `re`, so that the same whole names
match.

**Lists.** The entries of a list are joined with `|` before they are compiled, as in MirrorMaker 2's
filters, so `(foo,bar)` (split at its comma) has the same meaning. A list without entries matches
nothing, not even the empty name.

**Translation**

Python's syntax is similar to Java's, but the same text can compile in both and have different
meanings. So every construct is read by Java's grammar and written again in Python's syntax.

- `.`, `$`, `\Z`, `\v` and `\h` recognise more line ends and blanks in Java;
- inline flags such as (?i) may occur anywhere and apply to the end of their group, across `|`;
- `{` that starts no repetition is an error in Java and a character in Python;
- \Q..\E, \z, \p{Alpha}, nested and intersected classes do not exist in Python.

A construct without an exact counterpart raises `RegexProblem` with its column: Unicode properties,
the flags u and U, \G, \R, \X, \N{..}, forward references, look-behind of varying width, `{2}{3}`. A
repetition that backtracks exponentially also raises it (`backtracking`).

The result must be compiled with re.ASCII, because Java folds only ASCII letters under (?i).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Self

from twinlog.config.regex.backtracking import has_exponential_ways
from twinlog.config.regex.reader import RegexProblem, RegexReader

_MAX_REPEAT = (1 << 31) - 1
_MOST_DIGITS = 999
_QUANTIFIED = re.compile(r"[*+?{|]")
"""Only an atom that contains one of these characters can match a text in several ways."""
_GROUP_NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9]*")
_LOOK_AROUND = ("(?=", "(?!", "(?<=", "(?<!", "(?>")


@lru_cache(maxsize=256)
def compile_java(pattern: str) -> re.Pattern[str]:
    """Compile Java's expression for `fullmatch`. Raises RegexProblem. Results are cached: most
    flows share a few patterns, whose translation takes most of the time of reading a flow.
    """
    translator = _Translator(pattern)
    try:
        return re.compile(translator.translate(), re.ASCII)
    except RecursionError as error:
        raise RegexProblem("its groups are nested too deeply", 1) from error
    except (re.error, OverflowError) as error:
        # the translation has checked all but the width of look-behinds, so one of them is wrong;
        # the last one is reported
        raise RegexProblem(f"cannot be translated: {error}", translator.last_look_behind) from error


class _Translator:
    """Recursive descent over one expression. Methods return the Python text of what they read."""

    def __init__(self, pattern: str) -> None:
        self._reader = RegexReader(pattern)
        self._flags = RegexFlags()
        self._groups = 0
        self._closed: set[int] = set()
        self._names: dict[str, int] = {}
        self.last_look_behind = 1

    def translate(self) -> str:
        body = self._alternation()
        if not self._reader.at_end:
            raise self._reader.problem("this ) has no opening (")
        return body

    def _alternation(self) -> str:
        choices = [self._sequence()]
        while self._reader.accept("|"):
            choices.append(self._sequence())
        return "|".join(choices)

    def _sequence(self) -> str:
        parts: list[str] = []
        while True:
            self._skip_comments()
            if self._reader.at_end or self._reader.peek() in ("|", ")"):
                return "".join(parts)
            atom = self._atom()
            if atom is not None:
                parts.append(self._repeated(atom))

    def _skip_comments(self) -> None:
        if self._flags.comments:
            self._reader.skip_comments()

    def _atom(self) -> str | None:
        """Return the next atom, or None for a group that only sets flags."""
        reader = self._reader
        special = reader.peek()
        if special == "(":
            return self._group()
        if special and special in "?*+{":
            raise reader.problem(f"{special} has nothing before it to repeat")
        if reader.accept("["):
            return self._folded(_Class(reader, comments=self._flags.comments).read())
        if reader.accept("\\"):
            return self._escape()
        anchor = self._flags.anchor(special)
        if anchor:
            reader.skip()
            return anchor
        return self._folded(quote(reader.literal()))

    def _folded(self, expression: str) -> str:
        return f"(?i:{expression})" if self._flags.ignore_case else expression

    # -- repetition

    def _repeated(self, atom: str) -> str:
        self._skip_comments()
        reader = self._reader
        column = reader.column
        quantifier = next((sign for sign in "*+?{" if reader.accept(sign)), "")
        if not quantifier:
            return atom
        if quantifier == "{":
            quantifier = self._read_count(column)
        is_endless = quantifier in ("*", "+") or len(quantifier) > len("{16}") or "," in quantifier
        self._skip_comments()
        for greed in "?+":
            if reader.accept(greed):
                quantifier += greed
                break
        repeated = f"(?:{atom}){quantifier}"
        if is_endless and _QUANTIFIED.search(atom) and has_exponential_ways(repeated):
            raise reader.problem(
                "this repetition can match a name in too many ways: write it so that there "
                "is one way only, as (a+-)* and not (a+-?)*",
                column,
            )
        return repeated

    def _read_count(self, column: int) -> str:
        reader = self._reader
        low = reader.digits()
        comma = reader.accept(",") if low else False
        high = reader.digits() if comma else low
        if not low or not reader.accept("}"):
            raise reader.problem(
                "{ must start a repetition such as {2} or {2,5}; write \\{ for the character "
                "(a comma separates the entries of a list, even here)",
                column,
            )
        if any(len(text) > _MOST_DIGITS or int(text) > _MAX_REPEAT for text in (low, high or "0")):
            raise reader.problem("the repetition is too large", column)
        if high and int(high) < int(low):
            raise reader.problem(f"the repetition {{{low},{high}}} is empty", column)
        return f"{{{low},{high}}}" if comma else f"{{{low}}}"

    # -- groups and flags

    def _group(self) -> str | None:
        reader = self._reader
        column = reader.column
        saved = self._flags
        for opening in _LOOK_AROUND:
            if reader.accept(opening):
                if opening.startswith("(?<"):
                    self.last_look_behind = column
                return f"(?:{self._close(opening, column, saved)})"
        if reader.accept("(?<"):
            return self._capture(f"(?P<{self._new_name()}>", column)
        if reader.accept("(?"):
            return self._close("(?:", column, saved) if self._set_flags() else None
        reader.skip()
        return self._capture("(", column)

    def _capture(self, opening: str, column: int) -> str:
        self._groups += 1
        number = self._groups
        group = self._close(opening, column, self._flags)
        self._closed.add(number)
        return group

    def _close(self, opening: str, column: int, saved: RegexFlags) -> str:
        body = self._alternation()
        if not self._reader.accept(")"):
            raise self._reader.problem("this ( is not closed", column)
        self._flags = saved
        return f"{opening}{body})"

    def _new_name(self) -> str:
        column = self._reader.column
        name = self._reader.until(">", "(?<")
        if not _GROUP_NAME.fullmatch(name):
            raise self._reader.problem(
                "a group's name must consist of ASCII letters and digits", column
            )
        if name in self._names:
            raise self._reader.problem(f"two groups are named {name}", column)
        self._names[name] = self._groups + 1
        return name

    def _set_flags(self) -> bool:
        """Read flags up to `)` or `:`. Return True if they apply only to the next group."""
        reader = self._reader
        on = True
        while True:
            column = reader.column
            letter = reader.literal()
            if letter in "):":
                return letter == ":"
            if letter == "-" and on:
                on = False
                continue
            changed = self._flags.changed(letter, on=on)
            if changed is None:
                what = "supported flag" if letter in "uU" else "group or flag in Java"
                raise reader.problem(f"(?{letter} is not a {what}", column)
            self._flags = changed

    # -- single atoms

    def _escape(self) -> str:
        reader = self._reader
        letter = reader.peek_literal()
        if letter and letter in CLASS_ESCAPES:
            return self._folded(escaped_class(reader))
        if letter == "k":
            return self._named_reference()
        if letter and letter in "123456789":
            return self._numbered_reference()
        anchors = {
            "A": r"(?:\A)",
            "z": r"(?:\Z)",
            "Z": self._flags.last_line_end(),
            # US-ASCII, as in Java since version 19; older versions differ only next to characters
            # that topic names cannot have
            "b": r"(?:\b)",
            # Python's own \B does not match in an empty text before version 3.14
            "B": r"(?!\b)",
        }
        if letter in anchors:
            reader.skip()
            if letter == "b" and reader.peek() == "{":
                raise reader.problem("\\b{g} is not supported")
            return anchors[letter]
        return self._folded(quote(escaped_char(reader)))

    def _numbered_reference(self) -> str:
        reader = self._reader
        column = reader.column - 1
        number = int(reader.literal())
        # Java reads another digit of the number only if a group with the longer number exists
        while reader.peek() and reader.peek() in "0123456789":
            longer = number * 10 + int(reader.peek())
            if longer > self._groups:
                break
            reader.skip()
            number = longer
        return self._reference(number, column)

    def _named_reference(self) -> str:
        reader = self._reader
        column = reader.column - 1
        reader.skip()
        if not reader.accept("<"):
            raise reader.problem("\\k must be followed by <name>", column)
        name = reader.until(">", "\\k<")
        return self._reference(self._names.get(name, 0), column)

    def _reference(self, number: int, column: int) -> str:
        if number not in self._closed:
            raise self._reader.problem("a reference must name a group that ends before it", column)
        return self._folded(f"(?:\\{number})")


_LINE_END = r"[\n\r\x85\u2028\u2029]"
_INSIDE_CRLF = r"(?<=\r)(?=\n)"
_FIELDS = {
    "i": "ignore_case",
    "m": "multi_line",
    "s": "dot_all",
    "d": "unix_lines",
    "x": "comments",
}


@dataclass(frozen=True, slots=True)
class RegexFlags:
    """The flags that apply at one point of an expression."""

    ignore_case: bool = False
    multi_line: bool = False
    dot_all: bool = False
    unix_lines: bool = False
    comments: bool = False

    def changed(self, letter: str, *, on: bool) -> Self | None:
        """Return the flags with one set or cleared, or None if the flag is not supported."""
        return replace(self, **{_FIELDS[letter]: on}) if letter in _FIELDS else None

    def anchor(self, special: str) -> str | None:
        """Return the translation of `.`, `^` or `$`, or None for other characters."""
        match special:
            case ".":
                return self._any_char()
            case "^":
                return self._line_start()
            case "$":
                return self._line_end()
        return None

    def last_line_end(self) -> str:
        r"""Return the translation of `\Z`: the end, or the line end before it."""
        if self.unix_lines:
            return r"(?=\n?\Z)"
        return rf"(?:(?!{_INSIDE_CRLF})(?=(?:\r\n|{_LINE_END})?\Z))"

    def _any_char(self) -> str:
        if self.dot_all:
            return ANY
        return r"[^\n]" if self.unix_lines else rf"[^{_LINE_END[1:]}"

    def _line_start(self) -> str:
        if not self.multi_line:
            return r"(?:\A)"
        # unlike Python's, Java's ^ does not match after a line end at the end of the text
        if self.unix_lines:
            return r"(?:(?!\Z)(?:\A|(?<=\n)))"
        return rf"(?:(?!\Z)(?:\A|(?<={_LINE_END})(?!{_INSIDE_CRLF})))"

    def _line_end(self) -> str:
        if not self.multi_line:
            return self.last_line_end()
        if self.unix_lines:
            return r"(?=\n|\Z)"
        return rf"(?:(?!{_INSIDE_CRLF})(?={_LINE_END}|\Z))"


# Character classes. Java nests them (`[a[bc]]`), intersects them (`[a-z&&[^aeiou]]`) and has
# escapes that Python lacks (`\h`, `\p{Alpha}`). A plain class remains a plain class. Other classes
# become alternations and look-aheads, which still consume one character.
#
# Three constructs are rejected, because they cannot be translated exactly. 1. Properties that need
# Unicode tables, because Java's and Python's tables differ by version. 2. Operands of && that mix
# nested classes with plain characters, because Java drops one of them. 3. White space in a class
# under (?x).

ANY = r"[\s\S]"

_BODIES = {
    "d": "0-9",
    "w": "a-zA-Z0-9_",
    "s": r" \t\n\x0b\f\r",
    "h": r" \t\xa0\u1680\u180e\u2000-\u200a\u202f\u205f\u3000",
    "v": r"\n\x0b\f\r\x85\u2028\u2029",
}
"""Predefined classes without the (?U) flag, as the body of a Python class."""

_PROPERTIES = {
    "Lower": "a-z",
    "Upper": "A-Z",
    "ASCII": r"\x00-\x7f",
    "Alpha": "a-zA-Z",
    "Digit": "0-9",
    "Alnum": "a-zA-Z0-9",
    "Punct": r"!-/:-@\[-`{-~",
    "Graph": "!-~",
    "Print": " -~",
    "Blank": r" \t",
    "Cntrl": r"\x00-\x1f\x7f",
    "XDigit": "0-9a-fA-F",
    "Space": r" \t\n\x0b\f\r",
}
"""POSIX classes, which are US-ASCII in Java."""

CLASS_ESCAPES = "dDwWsShHvVpP"

_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b"}


def quote(char: str) -> str:
    """Return a literal character in a form that Python reads literally everywhere."""
    code = ord(char)
    if char.isascii() and (char.isalnum() or char == "_"):
        return char
    if " " <= char <= "~":
        return "\\" + char
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def escaped_class(reader: RegexReader) -> str:
    """Read the class named by an escape. The reader must be after the backslash."""
    column = reader.column - 1
    letter = reader.literal()
    if letter in "pP":
        name = reader.until("}", "\\p{") if reader.accept("{") else reader.literal()
        if name not in _PROPERTIES:
            raise reader.problem(
                f"\\p{{{name}}} needs Unicode tables that differ between Java and Python; "
                "write the characters as a class such as [a-zA-Z]",
                column,
            )
        body = _PROPERTIES[name]
    else:
        body = _BODIES[letter.lower()]
    return f"[^{body}]" if letter.isupper() else f"[{body}]"


def escaped_char(reader: RegexReader) -> str:
    """Read the character named by an escape. The reader must be after the backslash."""
    column = reader.column - 1
    letter = reader.literal()
    if letter in _CONTROLS:
        return _CONTROLS[letter]
    coded = {"0": reader.octal, "x": reader.hexadecimal, "u": reader.unicode, "c": reader.control}
    if letter in coded:
        return coded[letter]()
    if letter.isascii() and letter.isalnum():
        raise reader.problem(f"\\{letter} is not a supported escape", column)
    return letter


class _Class:
    """Reads a class in brackets. The reader must be after the opening bracket."""

    def __init__(self, reader: RegexReader, *, comments: bool) -> None:
        self._reader = reader
        self._comments = comments
        self._column = reader.column - 1
        self._operands: list[str] = []
        self._start_operand()

    def _start_operand(self) -> None:
        self._body = ""
        self._escapes: list[str] = []
        self._nested: list[str] = []

    def read(self) -> str:
        negated = self._reader.accept("^")
        while not (self._reader.peek() == "]" and (self._operands or self._choices())):
            if self._reader.at_end:
                raise self._reader.problem("the character class is not closed", self._column)
            if self._reader.starts("&&"):
                self._finish_operand()
                self._reader.skip(2)
            else:
                self._read_item()
        self._finish_operand()
        self._reader.skip()
        return _negate(self._class_pattern()) if negated else self._class_pattern()

    def _choices(self) -> list[str]:
        plain = [f"[{self._body}]"] if self._body else []
        return plain + self._escapes + self._nested

    def _finish_operand(self) -> None:
        choices = self._choices()
        # in Java, plain characters of a right operand overwrite nested classes, so a mix is refused
        if not choices or (self._operands and self._nested and len(choices) > 1):
            raise self._reader.problem(
                "each side of && must be one nested class or plain characters; "
                "write both sides in brackets of their own"
            )
        self._operands.append(choices[0] if len(choices) == 1 else f"(?:{'|'.join(choices)})")
        self._start_operand()

    def _class_pattern(self) -> str:
        if len(self._operands) == 1:
            return self._operands[0]
        *conditions, last = self._operands
        return "(?:" + "".join(f"(?={condition})" for condition in conditions) + last + ")"

    def _read_item(self) -> None:
        reader = self._reader
        if self._comments and reader.peek() and reader.peek() in " \t\n\x0b\f\r#":
            raise reader.problem("white space or # in a class is ignored under (?x); escape it")
        if reader.peek() and reader.peek() in "^&" and self._operands and not self._choices():
            raise reader.problem("^ or & after && is easily misread; escape it, or write [^..]")
        if reader.accept("["):
            self._nested.append(_Class(reader, comments=self._comments).read())
        elif reader.peek() == "\\" and reader.peek(1) and reader.peek(1) in CLASS_ESCAPES:
            reader.skip()
            self._add_escape(escaped_class(reader))
        else:
            self._read_range()

    def _add_escape(self, expression: str) -> None:
        if expression.startswith("[^"):
            self._escapes.append(expression)
        else:
            self._body += expression[1:-1]

    def _read_range(self) -> None:
        reader = self._reader
        column = reader.column
        first = self._read_char()
        if reader.peek() != "-" or reader.peek(1) in ("]", "["):
            self._body += quote(first)
            return
        reader.skip()
        if reader.at_end:
            raise reader.problem("the character class is not closed", self._column)
        last = self._read_char()
        if last < first:
            raise reader.problem(f"the range {first}-{last} is empty", column)
        self._body += f"{quote(first)}-{quote(last)}"

    def _read_char(self) -> str:
        if self._reader.accept("\\"):
            return escaped_char(self._reader)
        return self._reader.literal()


def _negate(expression: str) -> str:
    if expression.startswith("[") and not expression.startswith("[^"):
        return "[^" + expression[1:]
    if expression.startswith("[^"):
        return "[" + expression[2:]
    return f"(?:(?!{expression}){ANY})"


EVERYTHING = ".*"
LONE_STAR = "*"


@dataclass(frozen=True, slots=True)
class NamePattern:
    """The names that a key such as `topics` matches."""

    entries: tuple[str, ...]
    regex: re.Pattern[str] | None = field(repr=False, compare=False)
    """The joined expression, for access to its groups, or None if there are no entries."""
    _accepts: Callable[[str], bool] | None = field(default=None, repr=False, compare=False)
    """The user's filter in Python, which replaces the list of expressions, or None."""

    is_negated: bool = False

    def matches(self, name: str) -> bool:
        if self._accepts is not None:
            return self._accepts(name)
        is_match = self.regex is not None and self.regex.fullmatch(name) is not None
        return is_match is not self.is_negated

    def __str__(self) -> str:
        return f"{'all but ' if self.is_negated else ''}{', '.join(self.entries)}"


def compile_names(entries: Sequence[str], *, is_negated: bool = False) -> NamePattern:
    """Compile a list. Raises RegexProblem, whose column refers to `joined(entries)`.

    An entry LONE_STAR is invalid in Java and always meant as `.*`, so it is read as `.*`.
    """
    regex = compile_java(joined(entries)) if entries else None
    return NamePattern(tuple(entries), regex, is_negated=is_negated)


def joined(entries: Sequence[str]) -> str:
    """Return the entries of a list as one expression, joined with `|`."""
    return "|".join(EVERYTHING if entry == LONE_STAR else entry for entry in entries)
