"""Examples of `--help`: every command has some, and they name options that it has."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import click
import pytest

from twinlog.cli.main import twinlog


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    with click.Context(group) as context:
        for name in group.list_commands(context):
            found = group.get_command(context, name)
            assert found is not None
            if isinstance(found, click.Group):
                yield from commands(found, (*path, name))
            else:
                yield " ".join((*path, name)), found


ALL = dict(commands(twinlog))


def examples(command: click.Command) -> list[list[str]]:
    """A line that ends with a backslash goes on in the next one."""
    text = (command.help or "").replace("\\\n", " ")
    return [shlex.split(line) for line in text.splitlines() if line.strip().startswith("twinlog ")]


@pytest.mark.parametrize("name", ALL)
def test_every_command_has_examples_that_it_understands(name: str) -> None:
    found = examples(ALL[name])
    if name not in {"mirror-maker", "sandbox status", "offsets rebuild"}:
        assert found
    for words in found:
        end = next((n for n, word in enumerate(words) if word in {">", "|"}), len(words))
        command = next(
            one for one in (" ".join(words[1:3]), words[1]) if one in ALL
        )  # an example may begin with another command
        known = {
            opt for param in ALL[command].params for opt in (*param.opts, *param.secondary_opts)
        }
        assert {word for word in words[1:end] if word.startswith("--")} <= known, words
