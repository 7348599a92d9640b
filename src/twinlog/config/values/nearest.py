"""Finds the known name that a misspelt name was probably meant to be."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_CUTOFF = 0.75
_CUTOFF_OF_PARTS = 0.5
_MOST = 3
"""Number of close names to check. The first one that differs only by misspelt words is used."""
_USUAL_ENDINGS = (".enabled", ".ms", ".seconds")


def nearest(name: str, known_names: Iterable[str]) -> str | None:
    """Return the closest known name, or None if none is close."""
    candidates = sorted(known_names)
    in_other_case = [candidate for candidate in candidates if candidate.lower() == name.lower()]
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
    for plain_name, candidate in by_plain.items():
        if sorted(plain_name.split(".")) == sorted(plain.split(".")):
            return candidate
    close = difflib.get_close_matches(plain, by_plain, n=_MOST, cutoff=_CUTOFF)
    return next((by_plain[near] for near in close if _differs_by_spelling(plain, near)), None)


def _differs_by_spelling(name: str, known: str) -> bool:
    """Return True if each differing part of the names is only a misspelling. Two long names can be
    similar as a whole although one part is another word.
    """
    parts, others = name.split("."), known.split(".")
    return all(
        difflib.SequenceMatcher(None, ".".join(parts[a:b]), ".".join(others[c:d])).ratio()
        >= _CUTOFF_OF_PARTS
        for kind, a, b, c, d in difflib.SequenceMatcher(None, parts, others).get_opcodes()
        if kind == "replace"
    )


def suggestion(name: str, known_names: Iterable[str]) -> str:
    """Return `did you mean X?`, or an empty text if no name is close."""
    known_name = nearest(name, known_names)
    return f"did you mean {known_name}?" if known_name else ""
