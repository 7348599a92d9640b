"""`twinlog token`: makes the tokens by which clients come in over HTTP."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from twinlog.cli.options.command import CommandGroup
from twinlog.cli.options.option import option
from twinlog.cli.terminal.output import write_line
from twinlog.config.rest import RestRole
from twinlog.errors import UsageError


@click.group("token", cls=CommandGroup)
def token() -> None:
    """Tokens by which clients come in over HTTP.

    \b
    twinlog token new tokens
    twinlog token new tokens --name grafana --role read
    """


@token.command("new")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@option(
    "--name",
    default="",
    metavar="NAME",
    help="Whose it is: stands beside what is done with it. Default: your user name.",
)
@option(
    "--role",
    type=click.Choice([one.value for one in RestRole]),
    default=RestRole.READ.value,
    show_default=True,
    help="`operate` may pause, resume, limit and release as well.",
)
@option("--dry-run", is_flag=True, help="Say what would be written, and make no token.")
def new(file: Path, name: str, role: str, dry_run: bool) -> int:
    """Make a token, and keep its salted hash in FILE, which twinlog.rest.tokens.file names.

    The token is the only line of stdout, and is shown this once. A mirror that runs knows it at
    once. To shut its client out, take its line from FILE.

    \b
    twinlog token new /etc/twinlog/tokens --name oncall --role operate
    curl -H "Authorization: Bearer $TOKEN" http://HOST:9405/api/v1/flows
    """
    from twinlog.client.steering import user_name
    from twinlog.control.web.tokens import NAME, append, new_token

    whose = name or user_name()
    if NAME.fullmatch(whose) is None:
        raise UsageError(
            f"--name: {whose!r} is no name: 1 to 64 letters, digits and any of . _ @ -"
        )
    if dry_run:
        write_line(f"{file}: a token of the role {role} for {whose} would be added")
        return 0
    made = new_token(whose, RestRole(role))
    append(file, whose, made.line)
    write_line(f"{file}: has a token of the role {role} for {whose}:", sys.stderr)
    write_line(made.token)
    return 0
