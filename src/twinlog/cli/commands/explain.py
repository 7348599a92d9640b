"""`twinlog explain CODE`: print what a code means and what to do about it."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import click
from rich.console import RenderableType

from twinlog.cli.options.candidates import codes as known_codes
from twinlog.cli.options.command import Command
from twinlog.cli.options.format_option import format_option
from twinlog.cli.terminal.output import Answer
from twinlog.cli.terminal.tables import text
from twinlog.codes import AtRisk, Condition, Retry, conditions, without_markdown
from twinlog.encoded import encoded_fields
from twinlog.errors import UsageError

RETRIES: Final = {
    Retry.SOON: "retried automatically, with increasing pauses",
    Retry.LATER: "retried automatically within 30 s, once the cause is gone",
}
AT_RISK: Final = {
    AtRisk.SOURCE: "records on the source: save them before you delete anything there",
    AtRisk.TARGET: "records on the target: save them before you delete anything there",
    AtRisk.BOTH: "records on both clusters: save them before you delete anything",
}


@click.command("explain", cls=Command)
@click.argument("codes", nargs=-1, required=True, metavar="CODE...", shell_complete=known_codes)
@format_option
def explain(codes: tuple[str, ...]) -> Answer:
    """Print what a code means and what to do about it. Messages end with their code in brackets.

    The command does not connect to any cluster. docs/codes.md has the same texts.

    \b
    twinlog explain SOURCE_TRUNCATED
    twinlog explain GAP_WRITTEN DIVERGED
    twinlog explain NO_LEADER --format json
    """
    conditions_of = {
        code: _condition(code) for code in (code.strip("[]").upper() for code in codes)
    }
    names = "meaning advice retry fault at_risk"
    rows = [
        {"code": code, **encoded_fields(condition, names)}
        for code, condition in conditions_of.items()
    ]
    return Answer({"codes": rows}, _condition_parts(conditions_of))


def _condition(code: str) -> Condition:
    condition = conditions().get(code)
    if condition is None:
        near = difflib.get_close_matches(code, conditions(), n=3, cutoff=0.5)
        hint = f"; similar codes are {', '.join(near)}" if near else ""
        raise UsageError(f"{code} is not a Twinlog code{hint}; docs/codes.md lists all")
    meaning, advice = map(without_markdown, (condition.meaning, condition.advice))
    return replace(condition, meaning=meaning, advice=advice)


def _condition_parts(conditions_of: dict[str, Condition]) -> Iterator[RenderableType]:
    for number, (code, condition) in enumerate(conditions_of.items()):
        if number:
            yield text()
        yield text((code, "bold"))
        yield text(f"  what happened: {condition.meaning}")
        yield text(f"  what to do:    {condition.advice or 'see the message'}")
        yield text(f"  fault:         {condition.fault}")
        if condition.at_risk:
            yield text(f"  at risk:       {AT_RISK[condition.at_risk]}")
        if condition.retry is not Retry.NO:
            yield text(f"  resumes:       {RETRIES[condition.retry]}")
