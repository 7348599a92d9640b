"""The report of a drill: JSON, an HTML page, their checksums, and a signature.

`drill-ID.json`, `drill-ID.html`, `drill-ID.sha256` (as `sha256sum --check` reads it) and, with a
key, `drill-ID.sha256.sig`: Ed25519 (RFC 8032) over the bytes of the checksums.
"""

from __future__ import annotations

import hashlib
import html
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from twinlog.control.drill.drill import DrillResult
from twinlog.control.drill.rehearsal import Measured
from twinlog.errors import UsageError
from twinlog.quantities import count, duration

_STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; width: 100% }
th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid #8886 }
.green, .red { display: inline-block; padding: .2rem .8rem; border-radius: .4rem; color: #fff }
.green { background: #17692f } .red { background: #a11 }
pre { overflow-x: auto; padding: .6rem; border: 1px solid #8886 }
"""


def signing_key(path: Path) -> Ed25519PrivateKey:
    """Return an unencrypted private key from PEM. Raises UsageError if the file has none."""
    try:
        key = load_pem_private_key(path.read_bytes(), None)
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise UsageError(
            f"--sign {path}: no private key in PEM without a passphrase ({type(error).__name__}); "
            "create one with openssl genpkey -algorithm ed25519 -out FILE"
        ) from error
    if not isinstance(key, Ed25519PrivateKey):
        raise UsageError(f"--sign {path}: not an Ed25519 key")
    return key


def write_report(result: DrillResult, folder: Path, key: Ed25519PrivateKey | None) -> list[Path]:
    """Write the files, and return them in that order. Raises UsageError if that fails."""
    stem = folder / f"drill-{result.mark.rpartition('-')[2]}"
    data = {"v": 1, **result.as_json()}
    files = {
        stem.with_suffix(".json"): json.dumps(data, indent=2) + "\n",
        stem.with_suffix(".html"): page(result),
    }
    sums = "".join(
        f"{hashlib.sha256(text.encode()).hexdigest()}  {path.name}\n"
        for path, text in files.items()
    )
    written = {path: text.encode() for path, text in files.items()}
    written[stem.with_suffix(".sha256")] = sums.encode()
    if key is not None:
        written[stem.with_suffix(".sha256.sig")] = key.sign(sums.encode())
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, content in written.items():
            path.write_bytes(content)
    except OSError as error:
        raise UsageError(f"--report {folder}: {error.strerror}; name another folder") from error
    return [*written]


def page(result: DrillResult) -> str:
    """Return a self-contained HTML page."""
    verdict = "green" if result.is_green else "red"
    began = datetime.fromtimestamp(result.began_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8>",
        "<meta name=viewport content='width=device-width, initial-scale=1'>",
        f"<title>Drill of {_text(result.plan.flow)}: {verdict}</title><style>{_STYLE}</style>",
        f"<h1>Drill of {_text(result.plan.flow)} <span class={verdict}>{verdict}</span></h1>",
        f"<p>{began}, {_text(duration(result.seconds))}, {_text(result.mark)}</p>",
        _table(["", *(one.part.value for one in result.outcomes)], _rows(result.outcomes)),
        "<h2>Findings</h2>",
        _list([*map(str, result.findings), *([result.problem] if result.problem else [])]),
        "<h2>Rehearsed with</h2>",
        _list(list(result.plan.lines())),
        "<h2>Evidence</h2>",
        f"<pre>{_text(chr(10).join(result.evidence))}</pre></html>",
    ]
    return "\n".join(parts) + "\n"


def _rows(outcomes: list[Measured]) -> Iterator[list[str]]:
    yield ["producers were interrupted for", *(duration(one.interruption_s) for one in outcomes)]
    yield ["records written", *(count(one.written) for one in outcomes)]
    yield ["records lost", *(count(one.lost) for one in outcomes)]
    yield ["seconds lost", *(f"{one.lost_s:.1f}" for one in outcomes)]
    said = ("" if one.said_lost is None else count(one.said_lost) for one in outcomes)
    yield ["offsets lost, by the plan", *said]
    yield ["records read twice", *(count(one.read_again) for one in outcomes)]


def _table(head: list[str], rows: Iterator[list[str]]) -> str:
    lines = ["<table><tr>" + "".join(f"<th>{_text(one)}" for one in head)]
    for first, *rest in rows:
        lines.append(f"<tr><th>{_text(first)}" + "".join(f"<td>{_text(one)}" for one in rest))
    return "\n".join([*lines, "</table>"])


def _list(lines: list[str]) -> str:
    return "<ul>" + "".join(f"<li>{_text(one)}" for one in lines or ["none"]) + "</ul>"


def _text(value: Any) -> str:
    return html.escape(str(value))
