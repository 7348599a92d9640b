"""Java's MirrorClientConfig: properties of one cluster to a policy and the settings of clients.

Clients get what concerns the connection (`bootstrap.servers`, `security.protocol`, `ssl.*`,
`sasl.*`), overridden by the same keys behind `admin.` and `consumer.`; other keys are not read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from twinlog.cluster.net.settings import ClusterSettings, parse_bootstrap
from twinlog.cluster.security.security_keys import load_security
from twinlog.config.flow.policies import policy_config
from twinlog.config.keys.client_keys import BOOTSTRAP_SERVERS, Role, is_connection_key
from twinlog.config.values.origin import ClientProperties, Setting, Settings
from twinlog.errors import ConfigError
from twinlog.mirror.names.naming import DefaultReplicationPolicy
from twinlog.mirror.names.policies import policy_from

_WHERE: Final = "MirrorClient"
_SOURCE_ALIAS: Final = "source.cluster.alias"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """What a MirrorClient works with."""

    policy: DefaultReplicationPolicy
    admin: ClusterSettings
    consumer: ClusterSettings


def read_config(properties: Mapping[str, str]) -> ClientConfig:
    """Raises ConfigError where the cluster is not named or a value cannot be read."""
    settings = Settings(
        {key: Setting(key=key, value=value, file=_WHERE) for key, value in properties.items()}
    )
    return ClientConfig(
        policy=_policy(settings),
        admin=_cluster(settings, Role.ADMIN),
        consumer=_cluster(settings, Role.CONSUMER),
    )


def _policy(settings: Settings) -> DefaultReplicationPolicy:
    source = settings.get(_SOURCE_ALIAS)
    return policy_from(policy_config(settings), None if source is None else source.value)


def _cluster(settings: Settings, role: Role) -> ClusterSettings:
    own = settings.stripped(f"{role}.")
    found = {name: one for name, one in {**settings, **own}.items() if is_connection_key(name)}
    if BOOTSTRAP_SERVERS not in found:
        raise ConfigError(f"{_WHERE}: {BOOTSTRAP_SERVERS}: missing; add it, as in kafka1:9092")
    client = ClientProperties(found)
    return ClusterSettings(
        alias=_WHERE,
        bootstrap=parse_bootstrap(client[BOOTSTRAP_SERVERS]),
        security=load_security(client, where=_WHERE),
        client_id="twinlog-client",
    )
