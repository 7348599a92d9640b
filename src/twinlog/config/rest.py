"""HTTP authentication and TLS: the keys `twinlog.rest.*`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from twinlog.config.keys.key_table import (
    CERTIFICATE_FILE,
    CLIENT_CA_FILE,
    CLIENT_ROLE,
    OPEN_MONITORING,
    PRIVATE_KEY_FILE,
    TOKENS_FILE,
)
from twinlog.config.values.origin import Settings, refuse
from twinlog.config.values.types import to_boolean, to_choice, trimmed


class RestRole(StrEnum):
    """Role of a client. Each role includes the ones before it."""

    READ = "read"
    OPERATE = "operate"


@dataclass(frozen=True, slots=True, kw_only=True)
class RestConfig:
    """Configuration of a process. None: the key is not set."""

    tokens_file: Path | None = None
    monitoring_is_open: bool = False
    """True if probes and scrapes need no token."""
    certificate_file: Path | None = None
    private_key_file: Path | None = None
    client_ca_file: Path | None = None
    client_role: RestRole = RestRole.READ
    """Role of a client with a certificate and without a token."""

    @property
    def is_guarded(self) -> bool:
        """True if clients must authenticate."""
        return self.tokens_file is not None or self.client_ca_file is not None

    @property
    def may_serve_others(self) -> bool:
        """True if it may be served at an address that other hosts can reach."""
        return self.is_guarded or self.monitoring_is_open


OPEN: Final = RestConfig()
"""No key is set: clients do not authenticate."""


def rest_config(raw: Settings) -> RestConfig:
    """Return the configuration. Raises ConfigError if keys contradict each other."""

    def path(key: str) -> Path | None:
        setting = raw.get(key)
        if setting is None:
            return None
        value = trimmed(setting.value)
        if not value:
            raise refuse(setting, "has no file", "write its path, or remove the line")
        return Path(value)

    if CERTIFICATE_FILE not in raw:
        for key in (PRIVATE_KEY_FILE, CLIENT_CA_FILE, CLIENT_ROLE):
            if key in raw:
                raise refuse(
                    raw[key],
                    f"has no effect without {CERTIFICATE_FILE}",
                    "set it as well",
                    lacks=CERTIFICATE_FILE,
                )
    if CLIENT_ROLE in raw and CLIENT_CA_FILE not in raw:
        raise refuse(
            raw[CLIENT_ROLE],
            f"has no effect without {CLIENT_CA_FILE}",
            "set it as well",
            lacks=CLIENT_CA_FILE,
        )
    is_open = OPEN_MONITORING in raw and to_boolean(raw[OPEN_MONITORING])
    role = RestRole.READ
    if CLIENT_ROLE in raw:
        role = RestRole(to_choice(raw[CLIENT_ROLE], [one.value for one in RestRole]))
    return RestConfig(
        tokens_file=path(TOKENS_FILE),
        monitoring_is_open=is_open,
        certificate_file=path(CERTIFICATE_FILE),
        private_key_file=path(PRIVATE_KEY_FILE),
        client_ca_file=path(CLIENT_CA_FILE),
        client_role=role,
    )
