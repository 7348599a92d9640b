"""With `--help`, every command shows examples whose options exist, and describes each option."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import click
import pytest

from twinlog.cli.main import run, twinlog


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    with click.Context(group) as context:
        for name in group.list_commands(context):
            found = group.get_command(context, name)
            assert found is not None
            yield " ".join((*path, name)), found
            if isinstance(found, click.Group):
                yield from commands(found, (*path, name))


ALL = {"": twinlog, **dict(commands(twinlog))}


def examples(command: click.Command) -> list[list[str]]:
    """Return the words of each example in a command's help. A line that ends with a backslash
    continues on the next line.
    """
    text = (command.help or "").replace("\\\n", " ")
    return [shlex.split(line) for line in text.splitlines() if line.strip().startswith("twinlog ")]


@pytest.mark.parametrize("name", ALL)
def test_every_command_has_examples_that_it_understands(name: str) -> None:
    found = examples(ALL[name])
    assert found
    for words in found:
        end = next((n for n, word in enumerate(words) if word in {">", "|", "#"}), len(words))
        command = next(
            one for one in (" ".join(words[1:3]), words[1]) if one in ALL
        )  # an example may begin with another command
        known = {
            opt for param in ALL[command].params for opt in (*param.opts, *param.secondary_opts)
        }
        assert {word for word in words[1:end] if word.startswith("--")} <= known, words


@pytest.mark.parametrize("name", ALL)
def test_every_option_has_a_description(name: str) -> None:
    options = [one for one in ALL[name].params if isinstance(one, click.Option)]
    silent = [one.opts for one in options if not (one.help or one.hidden)]
    assert silent == []
    assert [one.opts for one in options if "whatever FILE says" in (one.help or "")] == []


def headings(words: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """Return the text below each heading of a command's help, by heading."""
    assert run([*words, "--help"]) == 0
    parts = re.split(r"^(\S.*):$", capsys.readouterr().out, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_options_of_a_mirror_are_grouped_by_subject(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = headings(["mirror"], capsys)
    assert list(found) == [
        "Configuration",
        "How it runs",
        "Spark",
        "Taking over from MirrorMaker 2",
        "Keys of FILE, for this run",
        "Output",
    ]
    assert "--clusters" in found["Configuration"]
    assert "--once" in found["How it runs"]
    assert "--master" in found["Spark"]
    keys = found["Keys of FILE, for this run"]
    assert "--source-loss" in keys
    assert "  --lease-seconds, --lease INT " in keys, "one option, whichever name"
    assert keys.count("--lease") == 2
    assert all(flag in found["Output"] for flag in ("--listen", "--format", "--quiet", "--help"))


def test_options_of_mirror_maker_1_do_not_hide_those_of_a_check(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = headings(["check"], capsys)
    assert "--probe" in found["Options"]
    assert "--whitelist" in found["MirrorMaker 1's flags"]
    assert "Commands" in headings(["flow"], capsys)
