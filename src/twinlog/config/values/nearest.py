"""Finds the known name that a misspelt name was probably meant to be."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_CUTOFF = 0.75
_USUAL_ENDINGS = (".enabled", ".ms", ".seconds")


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the closest known name, or None if none is close."""
    candidates = sorted(known)
    in_other_case = [one for one in candidates if one.lower() == name.lower()]
    if in_other_case:
        return in_other_case[0]
    plain = name.replace("_", ".").replace("-", ".")
    by_plain = {
        candidate.replace("_", ".").replace("-", "."): candidate for candidate in candidates
    }
    # prefer a name that lacks only its ending to any other spelling
    for ending in ("", *_USUAL_ENDINGS):
        if plain + ending in by_plain:
            return by_plain[plain + ending]
    for one, candidate in by_plain.items():
        if sorted(one.split(".")) == sorted(plain.split(".")):
            return candidate
    close = difflib.get_close_matches(plain, by_plain, n=1, cutoff=_CUTOFF)
    return by_plain[close[0]] if close else None


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return `did you mean X?`, or an empty text."""
    found = nearest(name, known)
    return f"did you mean {found}?" if found else ""
