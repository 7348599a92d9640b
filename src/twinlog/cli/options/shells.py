"""How each shell asks what may follow on a line, and is answered.

The shell says in the environment what stands on the line, and takes what is offered each in its
own manner. Loaded only when one asks: it is no part of the way to `--help`.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from typing import Final

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
)

VARIABLE: Final = "_TWINLOG_COMPLETE"
"""By it the shell asks: `bash_complete`."""

_QUOTES: Final = ("'", '"')


class Bash(BashComplete):
    """Bash takes what is offered as it is, and `A->B` would write into a file named B.

    Nor may a regular expression become the files that it matches, or lose its backslashes.
    """

    source_template = BashComplete.source_template.replace(
        "COMPREPLY+=($value)", 'COMPREPLY+=("$value")'
    ).replace("read type", "read -r type")

    def format_completion(self, item: CompletionItem) -> str:
        value = item.value
        if item.type == "plain" and not _open_quote(os.environ):
            value = shlex.quote(value)
        return f"{item.type},{value}"

    @staticmethod
    def _check_version() -> None:
        """Whichever bash reads the script is not always the one on the PATH of this process."""


class Fish(FishComplete):
    """What is offered may have commas: a list of topics."""

    source_template = FishComplete.source_template.replace(
        'string split ","', 'string split --max 1 ","'
    )


SHELLS: Final[Mapping[str, type[ShellComplete]]] = {
    "bash": Bash,
    "zsh": ZshComplete,
    "fish": Fish,
}


def script(root: click.Command, shell: str) -> str:
    """What the shell is to run once, so that it asks from then on."""
    return SHELLS[shell](root, {}, "twinlog", VARIABLE).source()


def answer(root: click.Command, question: str) -> int:
    """Print what may follow on the line; the exit code is 1 for a question of no known shell."""
    shell, _, what = question.partition("_")
    if shell not in SHELLS or what != "complete":
        return 1
    defaults = {"auto_envvar_prefix": None}  # what a variable says is not on the line
    offered = SHELLS[shell](root, defaults, "twinlog", VARIABLE).complete()
    if offered:
        click.echo(offered)
    return 0


def _open_quote(environment: Mapping[str, str]) -> bool:
    """Whether the word at the cursor began with a quote, which the shell closes itself."""
    words = environment["COMP_WORDS"].split("\n")
    at = int(environment["COMP_CWORD"])
    return at < len(words) and words[at].startswith(_QUOTES)
