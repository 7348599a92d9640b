"""Runs a program on a terminal of a given width and returns its screen. Only the escape sequences
that Twinlog uses are supported.
"""

from __future__ import annotations

import codecs
import errno
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Self
from xml.sax.saxutils import escape

from tests.support.command import ENTRY
from tests.support.eventually import PATIENCE_S

__all__ = ["Screen", "Terminal", "svg"]

ROWS: Final = 40
PARTS: Final = re.compile(
    r"\x1b\[([?0-9;]*)([A-Za-z])|\x1b\][^\x07]*\x07|\x1b.|[\r\n\x08]|[^\x1b\r\n\x08]+"
)
CUT: Final = re.compile(r"\x1b(\[[?0-9;]*)?$")
"""Pattern of an incomplete escape sequence at the end of the output."""
COLOURS: Final = {
    **{1: "#e06c75", 2: "#7ec98f", 3: "#e5c07b"},
    **{4: "#61afef", 6: "#56b6c2", 7: "#dcdfe4"},
}
DIM: Final = "#8a93a6"
USUAL: Final = "#dcdfe4"
GREY: Final = "#4b5263"


@dataclass(slots=True)
class Screen:
    """The lines of cells of a terminal. A cell is a character with its color, and True if it is
    bold.
    """

    columns: int
    lines: list[list[tuple[str, str, bool]]] = field(default_factory=lambda: [[]])
    row: int = 0
    column: int = 0
    is_cursor_shown: bool = True
    _colour: str = USUAL
    _is_bold: bool = False
    _kept: tuple[list[list[tuple[str, str, bool]]], int, int] | None = None

    @property
    def text(self) -> str:
        return "\n".join("".join(cell[0] for cell in line).rstrip() for line in self.lines)

    def feed(self, data: str) -> None:
        """Process output up to its last complete escape sequence."""
        for part in PARTS.finditer(data):
            if part[2] is not None:
                self._obey(part[1], part[2])
            elif part[0] == "\n":
                self._to(self.row + 1)
            elif part[0] == "\r":
                self.column = 0
            elif part[0] == "\x08":
                self.column = max(0, self.column - 1)
            elif not part[0].startswith("\x1b"):
                for each in part[0]:
                    self._put(each)

    def _put(self, character: str) -> None:
        if self.column >= self.columns:
            self._to(self.row + 1)
            self.column = 0
        line = self.lines[self.row]
        line += [(" ", USUAL, False)] * (self.column + 1 - len(line))
        line[self.column] = (character, self._colour, self._is_bold)
        self.column += 1

    def _to(self, row: int) -> None:
        self.row = max(0, row)
        self.lines += [[] for _ in range(self.row + 1 - len(self.lines))]

    def _obey(self, stdin: str, what: str) -> None:
        numbers = [int(one) for one in stdin.strip("?").split(";") if one]
        if what == "m":
            self._paint(numbers or [0])
        elif stdin.startswith("?"):
            self._switch(stdin, is_on=what == "h")
        elif what in "KJ":
            self._erase(what, is_all=stdin == "2")
        else:
            self._move(what, numbers)

    def _move(self, what: str, numbers: list[int]) -> None:
        number = numbers[0] if numbers else 1
        if what in "AB":
            self._to(self.row + (number if what == "B" else -number))
        elif what == "C":
            self.column += number
        elif what == "G":
            self.column = number - 1
        elif what == "H":
            self._to(number - 1)
            self.column = numbers[1] - 1 if len(numbers) > 1 else 0

    def _erase(self, what: str, *, is_all: bool) -> None:
        line = self.lines[self.row]
        del line[0 if is_all else self.column :]
        if what == "J":
            del self.lines[self.row + 1 :]
            if is_all:
                self.lines[: self.row] = [[] for _ in range(self.row)]

    def _switch(self, given: str, *, is_on: bool) -> None:
        if given == "?25":
            self.is_cursor_shown = is_on
        elif given == "?1049" and is_on:
            self._kept = (self.lines, self.row, self.column)
            self.lines, self.row, self.column = [[]], 0, 0
        elif given == "?1049" and self._kept is not None:
            (self.lines, self.row, self.column), self._kept = self._kept, None

    def _paint(self, numbers: list[int]) -> None:
        left = iter(numbers)
        for number in left:
            if number in (0, 39):
                self._colour = USUAL
                self._is_bold = self._is_bold and number != 0
            elif number in (1, 22):
                self._is_bold = number == 1
            elif number == 2:
                self._colour = DIM
            elif number == 38 and next(left, 5) == 5:
                code = next(left, 7)
                self._colour = COLOURS.get(code % 8, USUAL) if code < 16 else GREY
            elif 30 <= number % 60 <= 37:
                self._colour = COLOURS.get(number % 10, USUAL)


class Terminal:
    """A run of `twinlog` with these arguments on its own terminal."""

    def __init__(self, columns: int, *arguments: str, command: Sequence[str] = ENTRY) -> None:
        self.screen = Screen(columns)
        self.written = ""
        """The whole output with its escape sequences, including parts that the screen no longer
        shows.
        """
        self._lock = threading.Lock()
        master, slave = pty.openpty()
        self._master = master
        self.resize(columns)
        environment = {**os.environ, "TERM": "xterm-256color"}
        environment.pop("COLUMNS", None)
        self.process = subprocess.Popen(
            # a shell that starts tests in the background makes them and their children ignore
            # Ctrl-C
            ["env", "--default-signal=INT", *command, *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            env=environment,
        )
        os.close(slave)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def resize(self, columns: int) -> None:
        """Resize the terminal, as if a window was made narrower."""
        size = struct.pack("HHHH", ROWS, columns, 0, 0)
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, size)

    def _read(self) -> None:
        rest, decoder = "", codecs.getincrementaldecoder("utf-8")("replace")
        while True:
            try:
                ready, _, _ = select.select([self._master], [], [], 0.5)
                data = os.read(self._master, 65536) if ready else b""
            except OSError as error:
                if error.errno == errno.EIO:
                    return  # the program has ended
                raise
            new = decoder.decode(data)
            self.written += new
            rest += new
            cut = CUT.search(rest)
            end = len(rest) if cut is None else cut.start()
            with self._lock:
                self.screen.feed(rest[:end])
            rest = rest[end:]

    @property
    def text(self) -> str:
        with self._lock:
            return self.screen.text

    def picture(self, title: str) -> str:
        """Return the current screen as an SVG picture."""
        with self._lock:
            return svg(self.screen, title)

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def press(self, keys: str) -> None:
        """Send keys to the terminal, which echoes them at the cursor."""
        os.write(self._master, keys.encode())

    def wait(self) -> int:
        code = self.process.wait(PATIENCE_S)
        self._thread.join(PATIENCE_S)
        return code

    def until(self, is_true: Callable[[str], bool]) -> str:
        """Wait until the screen satisfies the condition, and return its text."""
        end = time.monotonic() + PATIENCE_S
        while not is_true(text := self.text):
            assert time.monotonic() < end, text
            time.sleep(0.05)
        return text

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self._thread.join(PATIENCE_S)
        os.close(self._master)


WIDE, HIGH, EDGE, HEAD = 8.43, 18, 14, 40


def svg(screen: Screen, title: str) -> str:
    """Return the screen as a self-contained SVG picture."""
    lines = screen.lines
    while lines and not "".join(cell[0] for cell in lines[-1]).strip():
        lines = lines[:-1]
    wide, high = round(screen.columns * WIDE + 2 * EDGE), HEAD + HIGH * len(lines) + EDGE
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" width="{wide}" '
        f'height="{high}" role="img" aria-label="{escape(title)}">',
        f'<rect width="{wide}" height="{high}" rx="8" fill="#1f2430"/>',
        '<circle cx="20" cy="18" r="5" fill="#e06c75"/><circle cx="38" cy="18" r="5" '
        'fill="#e5c07b"/><circle cx="56" cy="18" r="5" fill="#7ec98f"/>',
        f'<text x="{wide / 2:.0f}" y="22" text-anchor="middle" font-family="monospace" '
        f'font-size="12" fill="{DIM}">{escape(title)}</text>',
        '<g font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, monospace" font-size="14" '
        'xml:space="preserve" style="white-space: pre">',
    ]
    for number, line in enumerate(lines):
        y = HEAD + HIGH * number + 12
        for start, text, colour, is_bold in _runs(line):
            weight = ' font-weight="bold"' if is_bold else ""
            out.append(
                f'<text x="{EDGE + start * WIDE:.1f}" y="{y}" textLength="{len(text) * WIDE:.1f}" '
                f'fill="{colour}"{weight}>{escape(text)}</text>'
            )
    return "\n".join([*out, "</g>", "</svg>", ""])


def _runs(line: list[tuple[str, str, bool]]) -> list[tuple[int, str, str, bool]]:
    """Return the runs of adjacent cells with the same style, as (column, text, color, is bold).
    Blank runs are left out.
    """
    runs: list[tuple[int, str, str, bool]] = []
    for column, (character, colour, is_bold) in enumerate(line):
        if runs and runs[-1][2:] == (colour, is_bold) and runs[-1][0] + len(runs[-1][1]) == column:
            start, text, *_ = runs[-1]
            runs[-1] = (start, text + character, colour, is_bold)
        else:
            runs.append((column, character, colour, is_bold))
    return [run for run in runs if run[1].strip()]
