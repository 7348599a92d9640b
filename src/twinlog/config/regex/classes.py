r"""Translates Java character classes to Python expressions that match exactly the same characters.

Java nests classes (`[a[bc]]`), intersects them (`[a-z&&[^aeiou]]`) and has escapes that Python
lacks (`\h`, `\p{Alpha}`). A plain class remains a plain class. Other classes become alternations
and look-aheads, which still consume one character.

Rejected, because they cannot be translated exactly: properties that need Unicode tables (Java's and
Python's differ by version), operands of && that mix nested classes with plain characters (Java
drops one of them), and white space in a class under (?x).
"""

from __future__ import annotations

from twinlog.config.regex.reader import RegexReader

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
    """Read the class named by an escape. The reader is after the backslash."""
    column = reader.column - 1
    letter = reader.literal()
    if letter in "pP":
        name = reader.until("}", "\\p{") if reader.take("{") else reader.literal()
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
    """Read the character named by an escape. The reader is after the backslash."""
    column = reader.column - 1
    letter = reader.literal()
    if letter in _CONTROLS:
        return _CONTROLS[letter]
    if letter == "0":
        return reader.octal()
    if letter == "x":
        return reader.hexadecimal()
    if letter == "u":
        return reader.unicode()
    if letter == "c":
        return reader.control()
    if letter.isascii() and letter.isalnum():
        raise reader.problem(f"\\{letter} is not a supported escape", column)
    return letter


def bracket_class(reader: RegexReader, *, comments: bool) -> str:
    """Read a class in brackets. The reader is after the opening bracket."""
    return _Class(reader, comments=comments).read()


class _Class:
    """Reads one bracketed class."""

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
        negated = self._reader.take("^")
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
        return _negate(self._whole()) if negated else self._whole()

    def _choices(self) -> list[str]:
        plain = [f"[{self._body}]"] if self._body else []
        return plain + self._escapes + self._nested

    def _finish_operand(self) -> None:
        choices = self._choices()
        # in Java, plain characters of a right operand overwrite its nested classes
        if not choices or (self._operands and self._nested and len(choices) > 1):
            raise self._reader.problem(
                "each side of && must be one nested class or plain characters; "
                "write both sides in brackets of their own"
            )
        self._operands.append(choices[0] if len(choices) == 1 else f"(?:{'|'.join(choices)})")
        self._start_operand()

    def _whole(self) -> str:
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
        if reader.take("["):
            self._nested.append(bracket_class(reader, comments=self._comments))
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
        if self._reader.take("\\"):
            return escaped_char(self._reader)
        return self._reader.literal()


def _negate(expression: str) -> str:
    if expression.startswith("[") and not expression.startswith("[^"):
        return "[^" + expression[1:]
    if expression.startswith("[^"):
        return "[" + expression[2:]
    return f"(?:(?!{expression}){ANY})"
