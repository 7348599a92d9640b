"""The effective configuration as text: what was decided for every flow, each value with its line.

Secrets are hidden: under keys that name one, and whatever a config provider returned.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields

from twinlog.config.flow.schema import FlowConfig, FlowProperties, MirrorConfig
from twinlog.config.values.origin import ClientProperties, Setting, Settings, shown_key
from twinlog.control.support.secret_scrubber import HIDDEN


def effective_config(config: MirrorConfig) -> str:
    """All clusters and flows, a section each."""
    return "\n".join(_lines(config)) + "\n"


def _lines(config: MirrorConfig) -> Iterator[str]:
    yield f"# {config.file}"
    for warning in config.warnings:
        yield f"# warning: {warning}"
    for cluster in config.clusters:
        yield f"\n[cluster {cluster.alias}]"
        yield from _settings(cluster.settings.items())
    for flow in config.flows:
        yield from _flow(flow)


def _flow(flow: FlowConfig) -> Iterator[str]:
    yield f"\n[flow {flow.flow}]"
    for field in fields(flow):
        value = getattr(flow, field.name)
        if not isinstance(value, (Settings, FlowProperties)):
            yield f"{field.name} = {value}"
    yield f"\n[flow {flow.flow}: settings]"
    yield from _settings(flow.settings.items())
    for field in fields(flow.clients):
        client: ClientProperties = getattr(flow.clients, field.name)
        yield f"\n[flow {flow.flow}: {field.name}]"
        yield from _settings((key, client.origin(key)) for key in client)


def _settings(settings: Iterable[tuple[str, Setting]]) -> Iterator[str]:
    for name, setting in sorted(settings, key=lambda item: item[0]):
        value = HIDDEN if setting.secret else setting.value
        origin = f"line {setting.line}" if setting.line is not None else setting.location
        yield f"{shown_key(name)} = {value}  # {origin}"
