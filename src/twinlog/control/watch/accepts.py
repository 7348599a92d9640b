"""Reads the HTTP headers with which clients choose the form of a response."""

from __future__ import annotations


def asks_for(header: str, name: str) -> bool:
    """Return True if an `Accept` or `Accept-Encoding` header has the name with a weight above 0."""
    for part in header.lower().split(","):
        found, *parameters = (piece.strip() for piece in part.split(";"))
        if found == name:
            return not any(one.replace(" ", "").rstrip("0") in ("q=", "q=0.") for one in parameters)
    return False
