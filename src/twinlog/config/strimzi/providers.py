"""Strimzi's own config provider: `${name:namespace/secret:key}` of Kubernetes becomes a file of
`--secrets`, like the secrets that fields name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from twinlog.config.strimzi.secrets import Secrets
from twinlog.config.values.origin import Setting, refuse
from twinlog.errors import ConfigError

PROVIDERS: Final = "config.providers"
SECRET_PROVIDERS: Final = frozenset(
    ("io.strimzi.kafka.KubernetesSecretConfigProvider", "KubernetesSecretConfigProvider")
)


@dataclass(frozen=True, slots=True)
class _Named:
    """A name that stands inside a value."""

    setting: Setting
    name: str

    def text(self) -> str:
        return self.name

    def refuse(self, what: str, todo: str) -> ConfigError:
        return refuse(self.setting, what, todo)


def with_secrets(settings: Mapping[str, Setting], secrets: Secrets) -> dict[str, Setting]:
    """The settings without such providers; what they looked up is looked up in the folder."""
    listed = settings.get(PROVIDERS)
    names = [name.strip() for name in listed.value.split(",")] if listed else []
    ours = [
        name
        for name in names
        if (kind := settings.get(f"{PROVIDERS}.{name}.class"))
        and kind.value.strip() in SECRET_PROVIDERS
    ]
    if listed is None or not ours:
        return dict(settings)
    rest = [name for name in names if name not in ours]
    out = {
        key: _resolved(one, ours, secrets)
        for key, one in settings.items()
        if not key.startswith(tuple(f"{PROVIDERS}.{name}." for name in ours))
    }
    out[PROVIDERS] = replace(listed, value=", ".join(rest))
    if not rest:
        del out[PROVIDERS]
    return out


def _resolved(one: Setting, names: list[str], secrets: Secrets) -> Setting:
    variable = re.compile(rf"\$\{{(?:{'|'.join(map(re.escape, names))}):([^}}:]*):([^}}]*)\}}")
    reads = secrets.jaas_text if one.key.endswith("sasl.jaas.config") else secrets.text

    def found(match: re.Match[str]) -> str:
        # the namespace is Kubernetes' business
        secret = match[1].rpartition("/")[2]
        return reads(_Named(one, secret), _Named(one, match[2]))

    return replace(one, value=variable.sub(found, one.value))
