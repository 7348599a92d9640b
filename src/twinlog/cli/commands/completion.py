"""`twinlog completion SHELL`: print the completion script of a shell, and answer its requests.

The shell passes the line in the environment, and each shell needs its own output format.
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
"""The variable by which a shell requests completion, with a value like `bash_complete`."""

_QUOTES: Final = ("'", '"')


class Bash(BashComplete):
    """Output for bash, which inserts candidates unchanged, so an unquoted `A->B` would write into a
    file named B.

    Quoting also keeps regular expressions from being expanded to file names or losing backslashes.
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
        """Skip the check: the bash on the PATH may not be the one that reads the script."""


class Fish(FishComplete):
    """Output for fish. It splits only at the first comma, because candidates such as topic lists
    may have commas.
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
    """Print the candidates for the line; return exit code 1 if the shell or request is unknown."""
    shell, _, what = question.partition("_")
    if shell not in SHELLS or what != "complete":
        return 1
    defaults = {"auto_envvar_prefix": None}  # values of variables are not on the line
    offered = SHELLS[shell](root, defaults, "twinlog", VARIABLE).complete()
    if offered:
        click.echo(offered)
    return 0


def _open_quote(environment: Mapping[str, str]) -> bool:
    """Return whether the word at the cursor starts with a quote, which the shell closes itself."""
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
