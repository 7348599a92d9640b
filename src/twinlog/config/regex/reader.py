r"""A cursor over a Java regular expression that tracks which characters \Q..\E quotes."""

from __future__ import annotations

_HEX = frozenset("0123456789abcdefABCDEF")
_OCTAL = frozenset("01234567")
_MAX_CODE_POINT = 0x10FFFF
_BLANKS = " \t\n\x0b\f\r"
LINE_ENDS = "\n\r\x85\u2028\u2029"


class RegexProblem(ValueError):
    """Raised if an expression is invalid, or cannot be translated exactly. `column` starts at 1."""

    def __init__(self, reason: str, column: int) -> None:
        super().__init__(reason)
        self.reason = reason
        self.column = column


class RegexReader:
    """Reads the characters of an expression one by one.

    `peek` returns "" at the end and for quoted characters, so that callers cannot mistake a quoted
    `*` for a quantifier. `literal` returns any character.
    """

    def __init__(self, pattern: str) -> None:
        self._chars, self._columns, self._quoted = _without_quotes(pattern)
        self._position = 0
        self._end_column = len(pattern) + 1

    @property
    def at_end(self) -> bool:
        return self._position >= len(self._chars)

    @property
    def column(self) -> int:
        return self._end_column if self.at_end else self._columns[self._position]

    def problem(self, reason: str, column: int | None = None) -> RegexProblem:
        return RegexProblem(reason, self.column if column is None else column)

    def peek(self, ahead: int = 0) -> str:
        position = self._position + ahead
        if position >= len(self._chars) or self._quoted[position]:
            return ""
        return self._chars[position]

    def peek_literal(self) -> str:
        return "" if self.at_end else self._chars[self._position]

    def starts(self, text: str) -> bool:
        return all(self.peek(ahead) == char for ahead, char in enumerate(text))

    def skip(self, count: int = 1) -> None:
        self._position += count

    def accept(self, text: str) -> bool:
        """Skip `text` if it is next and unquoted. Return True if it was skipped."""
        if not self.starts(text):
            return False
        self._position += len(text)
        return True

    def literal(self) -> str:
        """Return the next character, quoted or not."""
        if self.at_end:
            raise self.problem("the pattern ends too early")
        char = self._chars[self._position]
        self._position += 1
        return char

    def skip_comments(self) -> None:
        """Skip white space and `# ...` in (?x) mode."""
        while self.peek() and self.peek() in _BLANKS + "#":
            if self.peek() == "#":
                while not self.at_end and self._chars[self._position] not in LINE_ENDS:
                    self._position += 1
            else:
                self._position += 1

    def digits(self) -> str:
        text = ""
        while self.peek() and self.peek() in "0123456789":
            text += self.literal()
        return text

    def until(self, end: str, what: str) -> str:
        """Return the text before `end`, and skip the text and `end`."""
        column = self.column
        text = ""
        while not self.starts(end):
            if self.at_end:
                raise self.problem(f"{what} is not closed", column)
            text += self.literal()
        self._position += len(end)
        return text

    def octal(self) -> str:
        r"""Read the octal digits after \0: up to three, at most 377."""
        column = self.column
        digits = ""
        while len(digits) < 3 and self.peek() and self.peek() in _OCTAL:
            if len(digits) == 2 and digits[0] > "3":
                break
            digits += self.literal()
        if not digits:
            raise self.problem("\\0 must be followed by octal digits", column)
        return chr(int(digits, 8))

    def hexadecimal(self) -> str:
        r"""Read the digits after \x: two, or any number in braces."""
        column = self.column
        if self.accept("{"):
            digits = self.until("}", "\\x{")
            if not digits or not _HEX.issuperset(digits) or int(digits, 16) > _MAX_CODE_POINT:
                raise self.problem("\\x{..} must contain a hexadecimal code point", column)
            return chr(int(digits, 16))
        return chr(self._fixed_hex(2, "\\x", column))

    def unicode(self) -> str:
        r"""Read the four digits after \u. Two escapes can form one character, as in Java."""
        column = self.column
        unit = self._fixed_hex(4, "\\u", column)
        if 0xD800 <= unit <= 0xDBFF and self.starts("\\u"):
            before = self._position
            self.skip(2)
            low = self._fixed_hex(4, "\\u", self.column)
            if 0xDC00 <= low <= 0xDFFF:
                return chr(0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00))
            self._position = before
        return chr(unit)

    def control(self) -> str:
        r"""Return the character after \c with its bit 64 flipped."""
        return chr(ord(self.literal()) ^ 64)

    def _fixed_hex(self, count: int, what: str, column: int) -> int:
        digits = "".join(self.peek(ahead) for ahead in range(count))
        if len(digits) != count or not _HEX.issuperset(digits):
            raise self.problem(f"{what} must be followed by {count} hexadecimal digits", column)
        self.skip(count)
        return int(digits, 16)


def _without_quotes(pattern: str) -> tuple[list[str], list[int], list[bool]]:
    chars: list[str] = []
    columns: list[int] = []
    quoted: list[bool] = []
    position = 0
    inside = False
    while position < len(pattern):
        pair = pattern[position : position + 2]
        if not inside and pair == "\\Q":
            inside, position = True, position + 2
        elif inside and pair == "\\E":
            inside, position = False, position + 2
        else:
            # an escaped pair stays together, so \\Q after an escaped backslash starts no quotation
            taken = pair if not inside and pair[0] == "\\" else pattern[position]
            for offset, char in enumerate(taken):
                chars.append(char)
                columns.append(position + offset + 1)
                quoted.append(inside)
            position += len(taken)
    return chars, columns, quoted
