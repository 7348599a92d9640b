"""`twinlog completion SHELL`: print the completion script of a shell, and answer its requests.

The script calls `twinlog` with the typed line in environment variables. Each shell needs its own
output format.
"""

from __future__ import annotations

import os
import shlex
import sys
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

from twinlog.cli.options.command import Command

VARIABLE: Final = "_TWINLOG_COMPLETE"
"""The environment variable of completion requests. Its value is, for example, `bash_complete`."""

_QUOTES: Final = ("'", '"')


class Bash(BashComplete):
    """Output for bash, with quoted candidates. Bash inserts candidates unchanged, so an unquoted
    `A->B` would redirect output to a file named B. Also, unquoted regular expressions would be
    expanded to file names, or lose their backslashes.
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
        """Skip click's check of bash's version, because click would check the bash on the PATH,
        which may not be the shell of the user.
        """


class Fish(FishComplete):
    """Output for fish. The script splits each line only at the first comma, because candidates such
    as lists of topics may contain commas.
    """

    source_template = FishComplete.source_template.replace(
        'string split ","', 'string split --max 1 ","'
    )


SHELLS: Final[Mapping[str, type[ShellComplete]]] = {
    "bash": Bash,
    "zsh": ZshComplete,
    "fish": Fish,
}


def answer_shell(root: click.Command, question: str) -> int:
    """Print the candidates for the line. Return 1 if the shell or request is unknown, else 0."""
    shell, _, what = question.partition("_")
    if shell not in SHELLS or what != "complete":
        return 1
    defaults = {"auto_envvar_prefix": None}  # complete by the line only, not by variables
    offered = SHELLS[shell](root, defaults, "twinlog", VARIABLE).complete()
    if offered:
        click.echo(offered)
    return 0


def _open_quote(environment: Mapping[str, str]) -> bool:
    """Return True if the word at the cursor begins with a quote, which the shell itself closes."""
    words = environment["COMP_WORDS"].split("\n")
    at = int(environment["COMP_CWORD"])
    return at < len(words) and words[at].startswith(_QUOTES)


@click.command("completion", cls=Command)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> int:
    """Print the script that completes commands, options, flows and topics in a shell.

    Flows, clusters and topics come from FILE and from mirrors that run on this machine. No broker
    is queried.

    \b
    eval "$(twinlog completion bash)"                                  # in ~/.bashrc
    eval "$(twinlog completion zsh)"                                   # in ~/.zshrc
    twinlog completion fish > ~/.config/fish/completions/twinlog.fish
    """
    root = click.get_current_context().find_root().command
    sys.stdout.write(SHELLS[shell](root, {}, "twinlog", VARIABLE).source() + "\n")
    return 0
