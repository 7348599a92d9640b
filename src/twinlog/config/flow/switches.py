"""Which flows are enabled, by MirrorMaker 2's two interpretations of `enabled`."""

from __future__ import annotations

from twinlog.config.values.origin import Settings
from twinlog.config.values.types import parse_boolean, trimmed
from twinlog.model import Flow

_EMIT_HEARTBEATS = "emit.heartbeats.enabled"


def enabled(raw: Settings, flow: Flow) -> tuple[bool, str]:
    """Return whether MirrorMaker 2 would run a flow. If not although a line seems to enable it,
    also return why.

    Two interpretations of `enabled` must agree. The herder of a pair exists if Boolean.parseBoolean
    (strict, not trimmed) returns true, or if the pair emits heartbeats (the default). Its
    connectors run if ConfigDef (trimmed, only true and false are valid) returns true, with a
    top-level `enabled` as default.
    """
    own = raw.get(f"{flow}.enabled")
    setting = own or raw.get("enabled")
    if setting is None:
        return False, ""
    text = trimmed(setting.value).lower()
    if text == "false":
        return False, ""
    if text != "true":
        what = f"{setting.shown} is not exactly true, so the flow is disabled{setting.hint}"
        meant = "false" if text.split()[:1] == ["false"] else "true"  # a comment may follow
        return False, f"{what}; write: {flow}.enabled = {meant}"
    heartbeats = raw.get(f"{flow}.{_EMIT_HEARTBEATS}") or raw.get(_EMIT_HEARTBEATS)
    herder = (own is not None and parse_boolean(own.value)) or (
        heartbeats is None or parse_boolean(heartbeats.value)
    )
    if not herder:
        blank = (
            "a blank at the end of the value" if own else "without heartbeats a top-level `enabled`"
        )
        return False, f"{blank} does not enable the flow; write: {flow}.enabled = true"
    return True, ""
