"""`twinlog completion SHELL`: print the completion script of a shell."""

from __future__ import annotations

import sys

import click

from twinlog.cli.options.command import Command


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
    from twinlog.cli.options.shells import script

    root = click.get_current_context().find_root().command
    sys.stdout.write(script(root, shell) + "\n")
    return 0
