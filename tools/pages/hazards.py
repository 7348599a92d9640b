"""Generates the index in docs/hazards.md from the page's headings, and from the codes in each
entry.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

HEAD: Final = "| area | fault | codes |"
_TABLE: Final = re.compile(rf"^{re.escape(HEAD)}\n(?:\|.*\n)+", re.MULTILINE)
_CODE: Final = re.compile(r"`([A-Z]+(?:_[A-Z]+)+)`")
_HEADING: Final = re.compile(r"^(##+) (.+)$", re.MULTILINE)


def with_index(page: str) -> str:
    """Return the page with its index replaced by the current one. Raises ValueError unless the page
    has exactly one index.
    """
    index = "\n".join((HEAD, "| --- | --- | --- |", *_rows(page.partition("\n## Index\n")[2])))
    found, count = _TABLE.subn(lambda _: f"{index}\n", page)
    if count != 1:
        raise ValueError(f"{count} tables begin with {HEAD}")
    return found


def _rows(entries: str) -> Iterator[str]:
    """Yield a row of the index for each entry. An area without entries is an entry itself."""
    parts = _HEADING.split(entries)[1:]
    area = ""
    for level, title, text, following in zip(
        parts[::3], parts[1::3], parts[2::3], [*parts[3::3], ""], strict=True
    ):
        if level == "##":
            area = title
        if level == "###" or following != "###":
            codes = ", ".join(f"`{code}`" for code in sorted({*_CODE.findall(text)}))
            yield f"| {area} | [{title}](#{_anchor(title)}) | {codes} |"


def _anchor(title: str) -> str:
    return re.sub(r"[^\w-]", "", title.lower().replace(" ", "-"))
