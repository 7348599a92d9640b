"""Options that select the configuration to run: files, `--clusters`, `--set`, and a flag for each
of Twinlog's keys. They are the same for every command that reads a configuration.

The flags of keys are generated from the key table, so that each new key has a flag.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from twinlog.cli.options.candidates import aliases
from twinlog.cli.options.command import Command
from twinlog.cli.options.option import F, Option, Section, option, options
from twinlog.config.files.overrides import Override
from twinlog.config.keys.key_table import OWN_KEYS, OWN_PREFIX, KeyDefinition, KeyKind
from twinlog.errors import UsageError

if TYPE_CHECKING:
    from twinlog.config.flow.offset_storage import OffsetStorage
    from twinlog.config.flow.schema import FlowConfig, MirrorConfig
    from twinlog.spark.options import SparkOptions

_META: Final = "twinlog.overrides"
_SECRETS: Final = "twinlog.secrets"
_CLUSTERS: Final = "--clusters"

GIVES_UP_S: Final = 60.0

timeout_option = option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0.1),
    default=GIVES_UP_S,
    metavar="SECONDS",
    help="How long to wait for a cluster that does not respond (60). Refused connections and "
    "unknown host names fail within a second.",
)
"""Add `--timeout`: the maximum wait for a cluster that does not respond, in seconds."""

_spark: Final = partial(option, section=Section.SPARK)
spark_options = options(
    _spark("--master", metavar="URL", help="Spark master; default: this machine."),
    _spark(
        "--archive",
        type=click.Path(path_type=Path, dir_okay=False),
        help="The archive of `twinlog pack`, for executors of --master that lack Twinlog.",
    ),
    _spark(
        "--allow-unauthenticated-spark",
        "may_be_open",
        is_flag=True,
        help="Use a --master without spark.authenticate.secret: any client that reaches its ports "
        "can read the credentials of both clusters.",
    ),
    _spark(
        "--conf",
        multiple=True,
        metavar="KEY=VALUE",
        help="A Spark property, with the syntax of spark-submit; may be given several times.",
    ),
    _spark(
        "--properties-file",
        type=click.Path(path_type=Path, dir_okay=False, exists=True),
        help="A file with Spark properties, which is read instead of spark-defaults.conf.",
    ),
    _spark(
        "--name",
        metavar="NAME",
        help="Name of the Spark application; default: twinlog and the flows.",
    ),
    _spark(
        "--deploy-mode",
        metavar="client",
        help="Deploy mode, as in spark-submit. Only `client` is possible, because this process is "
        "the driver.",
    ),
)
"""Add the options of Spark to a command. `take_spark_options` reads their values."""
SPARK_NAMES: Final = (
    *("master", "archive", "may_be_open", "conf", "properties_file", "name", "deploy_mode"),
)


def take_spark_options(values: dict[str, Any]) -> SparkOptions:
    """Return Spark's options, and remove them from `values`. If `spark-submit` runs this command,
    its options are returned. Raises TwinlogError if lanes could not run with these options, so
    that the command fails before it claims a flow.
    """
    from twinlog.spark.authentication import security_settings

    chosen = _chosen_spark({name: values.pop(name) for name in SPARK_NAMES})
    if chosen.archive is not None and not chosen.archive.is_file():
        raise UsageError(f"--archive {chosen.archive}: no such file; create it with `twinlog pack`")
    security_settings(chosen.master, chosen.user_settings, may_be_open=chosen.may_be_open)
    return chosen


def _chosen_spark(options: dict[str, Any]) -> SparkOptions:
    from twinlog.spark import options as spark

    if not spark.is_submitted():
        return spark.spark_options(**options)
    from twinlog.spark.session import submitted_options

    archive, may_be_open = options.pop("archive"), options.pop("may_be_open")
    if any(options.values()):
        raise UsageError(
            "--master, --conf, --properties-file, --name and --deploy-mode are options of the "
            "`spark-submit` that runs this command: write them before its file"
        )
    return replace(submitted_options(), archive=archive, may_be_open=may_be_open)


SHORT: Final = {"--lease-seconds": ("--lease",)}
"""Additional short flags of some keys, by the flag that is derived from the key."""


class SpreadClusters(Command):
    """A command that accepts `--clusters west-1 west-2`, too, as MirrorMaker 2's script does."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Join the words after --clusters by commas, up to the next option or file, then parse."""
        return super().parse_args(ctx, list(_with_joined_values(args)))


def _with_joined_values(args: Sequence[str]) -> Iterator[str]:
    words = iter(args)
    for word in words:
        yield word
        if word != _CLUSTERS:
            continue
        aliases: list[str] = []
        for alias in words:
            if alias.startswith("-") or (aliases and Path(alias).is_file()):
                yield from (",".join(aliases), alias) if aliases else (alias,)
                break
            aliases.append(alias)
        else:
            yield from [",".join(aliases)] if aliases else []


def flag_of(definition: KeyDefinition) -> str:
    """Return the flag for a key of Twinlog, such as `--source-loss` for twinlog.source.loss."""
    return "--" + definition.name.removeprefix(OWN_PREFIX).replace(".", "-")


def _by_commas(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    """Return aliases that are separated by blanks or commas as a list with commas."""
    return value and (",".join(value.replace(",", " ").split()) or value)


def secrets_folder(context: click.Context | None = None) -> Path | None:
    """Return the folder given by --secrets. If it is not given, return None, or UNREAD after
    `leave_secrets_unread`. `context`: by default that of the running command.
    """
    folder: Path | None = (context or click.get_current_context()).meta.get(_SECRETS)
    return folder


def leave_secrets_unread() -> None:
    """Read no secrets' values unless --secrets is given, for commands that contact no cluster."""
    from twinlog.config.strimzi.secrets import UNREAD

    meta = click.get_current_context().meta
    meta[_SECRETS] = meta.get(_SECRETS) or UNREAD


def _own_option(definition: KeyDefinition) -> Callable[[F], F]:
    flag = flag_of(definition)

    def keep(ctx: click.Context, parameter: Option, value: str | None) -> None:
        if value is not None:
            flag = parameter.name_used(ctx)
            _keep(ctx, Override(flag=flag, key=definition.name, value=value, everywhere=True))

    values = definition.choices or (("true", "false") if definition.kind is KeyKind.BOOLEAN else ())

    def offer(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
        return [value for value in values if value.startswith(incomplete)]

    first, blank, rest = definition.meaning.partition(" ")
    # capitalize the first word, unless it is a value or a key
    start = first if {"`", "."} & {*first} else f"{first[0].upper()}{first[1:]}"
    meaning = f"{start}{blank}{rest}".replace("`", "")
    return option(
        flag,
        *SHORT.get(flag, ()),
        *(f"--{old.removeprefix(OWN_PREFIX).replace('.', '-')}" for old in definition.replaces),
        metavar="|".join(definition.choices).upper() or definition.kind.value.upper(),
        expose_value=False,
        callback=keep,
        shell_complete=offer,
        section=Section.KEYS,
        help=f"{meaning} ({definition.name}).",
    )


def _keep_set(ctx: click.Context, parameter: Option, values: Sequence[str]) -> None:
    for value in values:
        key, equals, text = value.partition("=")
        if not equals or not key.strip():
            raise click.BadParameter("write KEY=VALUE", ctx, param_hint="--set")
        _keep(ctx, Override(flag=parameter.name_used(ctx), key=key.strip(), value=text.strip()))


def _keep(ctx: click.Context, override: Override) -> None:
    ctx.meta.setdefault(_META, []).append(override)


override_options = options(
    option(
        "--set",
        multiple=True,
        metavar="KEY=VALUE",
        expose_value=False,
        callback=_keep_set,
        section=Section.CONFIGURATION,
        help="Add a line to the end of FILE; may be given several times.",
    ),
    *map(_own_option, OWN_KEYS),
)
"""Add `--set` and the flags of Twinlog's keys. `overrides()` returns their values."""


def _keep_secrets(ctx: click.Context, _parameter: click.Parameter, value: Path | None) -> None:
    ctx.meta[_SECRETS] = value


secrets_option = option(
    "--secrets",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    metavar="DIR",
    expose_value=False,
    callback=_keep_secrets,
    section=Section.CONFIGURATION,
    help="Folder of a Strimzi resource's secrets: DIR/<secretName>/<key>.",
)
"""Add `--secrets`. `secrets_folder()` returns its value."""

configuration_options = options(
    option(
        _CLUSTERS,
        metavar="ALIAS ...",
        callback=_by_commas,
        shell_complete=aliases,
        section=Section.CONFIGURATION,
        help="Only the flows into these clusters, like MirrorMaker 2's --clusters.",
    ),
    override_options,
    secrets_option,
)
"""Add `--clusters`, `--set`, `--secrets` and the flags of Twinlog's keys.

Only the value of `--clusters` is passed to the command. `configuration()` uses the other values.
"""


def overrides() -> list[Override]:
    """Return the running command's overrides of keys, from `--set` and the flags of keys."""
    overridden: list[Override] = click.get_current_context().meta.get(_META, [])
    return overridden


def configuration(files: Sequence[Path], clusters: str | None) -> Callable[[], MirrorConfig]:
    """Return a function that loads `files` with the options of the running command."""
    overridden, secrets = overrides(), secrets_folder()

    def read() -> MirrorConfig:
        from twinlog.config.load import load_all

        aliases = [] if clusters is None else [clusters]
        return load_all(files, aliases, overrides=overridden, secrets=secrets)

    return read


adoption_options = options(
    option(
        "--adopt-mm2",
        section=Section.ADOPTION,
        is_flag=True,
        help="Resume where the MirrorMaker 2 of FILE stopped, and keep its offsets up to date, so "
        "that MirrorMaker 2 can take over again. Refused while it runs.",
    ),
    option(
        "--connector",
        section=Section.ADOPTION,
        metavar="NAME",
        help="With --adopt-mm2: the source connector, if Kafka Connect runs MirrorMaker 2.",
    ),
)


def storages(
    config: MirrorConfig, *, adopt_mm2: bool, connector: str | None
) -> Callable[[FlowConfig], OffsetStorage | None]:
    """Return a function that gets a flow, and returns the offset storage of the MirrorMaker 2 that
    the flow adopts. Without --adopt-mm2 it returns None. Raises UsageError if only --connector is
    given.
    """
    from twinlog.config.flow.offset_storage import offset_storage

    if not adopt_mm2:
        if connector is not None:
            raise UsageError("--connector is only used with --adopt-mm2: give both, or neither")
        return lambda _: None
    return lambda flow: offset_storage(config, flow, connector)
