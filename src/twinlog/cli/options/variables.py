"""Variables of the environment that were meant for an option and name none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import click

from twinlog.cli.options.option import Option


def misspelt_variables(
    context: click.Context, environment: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """Names that are near those of the command that runs, each with the one that it is near.

    Others that begin as they do may be anybody's, and a value may be a secret: it is not checked.
    """
    prefix = f"{context.auto_envvar_prefix}_"
    ours = {str(one.variable(context)) for one in context.command.params if isinstance(one, Option)}
    others = tuple(_of_longer_names(context, prefix))
    for name in sorted(environment):
        if name.startswith(prefix) and name not in ours and not name.startswith(others):
            from twinlog.config.values.nearest import nearest

            # what all of them begin with would make any two alike
            near = nearest(name.removeprefix(prefix), {one.removeprefix(prefix) for one in ours})
            if near is not None:
                yield name, prefix + near


def _of_longer_names(context: click.Context, prefix: str) -> Iterator[str]:
    """TWINLOG_MIRROR_MAKER_ beside TWINLOG_MIRROR_."""
    parent = context.parent
    if parent is not None and isinstance(parent.command, click.Group):
        for name in parent.command.list_commands(parent):
            words = f"{parent.auto_envvar_prefix}_{name.upper().replace('-', '_')}_"
            if words.startswith(prefix) and words != prefix:
                yield words
