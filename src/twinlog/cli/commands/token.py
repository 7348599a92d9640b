"""`twinlog token`: create API tokens."""

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
    """Create API tokens for REST.

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
    help="The token's owner, shown with its actions; default: your user name.",
)
@option(
    "--role",
    type=click.Choice([role.value for role in RestRole]),
    default=RestRole.READ.value,
    show_default=True,
    help="`operate` may also pause, resume, limit and release.",
)
@option("--dry-run", is_flag=True, help="Print what would be written, and create no token.")
def new(file: Path, name: str, role: str, dry_run: bool) -> int:
    """Create a token, and add its salted hash to FILE, the file of twinlog.rest.tokens.file.

    The token is the only line of stdout, and is shown only once. A running mirror accepts it
    immediately. To revoke the token, delete its line from FILE.

    \b
    twinlog token new /etc/twinlog/tokens --name oncall --role operate
    curl -H "Authorization: Bearer $TOKEN" http://HOST:9405/api/v1/flows
    """
    from twinlog.client.steering import user_name
    from twinlog.control.web.tokens import NAME, append, new_token

    whose = name or user_name()
    if NAME.fullmatch(whose) is None:
        raise UsageError(
            f"--name: {whose!r} is not a valid name: use 1 to 64 letters, digits and any of . _ @ -"
        )
    if dry_run:
        write_line(f"{file}: a token of the role {role} for {whose} would be added")
        return 0
    made = new_token(whose, RestRole(role))
    append(file, whose, made.line)
    write_line(f"{file}: added a token of the role {role} for {whose}:", sys.stderr)
    write_line(made.token, sys.stdout)  # also with -q, because it is shown only once
    return 0
