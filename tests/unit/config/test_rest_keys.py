"""`twinlog.rest.*`: the keys about authentication over HTTP."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.properties import Loader
from twinlog.config.rest import OPEN, RestConfig, RestRole
from twinlog.errors import ConfigError


def test_without_a_key_no_client_must_authenticate(read: Loader) -> None:
    assert read().rest == OPEN
    assert not read().rest.is_guarded


def test_all_keys(read: Loader) -> None:
    found = read(
        "twinlog.rest.tokens.file = /etc/twinlog/tokens",
        "twinlog.rest.monitoring.open = true",
        "twinlog.rest.tls.certificate.file = /etc/twinlog/server.pem",
        "twinlog.rest.tls.private.file = /etc/twinlog/server.key",
        "twinlog.rest.tls.client.ca.file = /etc/twinlog/clients.pem",
        "twinlog.rest.tls.client.role = operate",
    )
    assert found.warnings == read().warnings
    assert found.rest == RestConfig(
        tokens_file=Path("/etc/twinlog/tokens"),
        monitoring_is_open=True,
        certificate_file=Path("/etc/twinlog/server.pem"),
        private_key_file=Path("/etc/twinlog/server.key"),
        client_ca_file=Path("/etc/twinlog/clients.pem"),
        client_role=RestRole.OPERATE,
    )


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("twinlog.rest.tokens.file =", "has no file"),
        ("twinlog.rest.tls.client.ca.file = /ca", r"set it as well"),
        ("twinlog.rest.tls.client.role = read", r"set it as well"),
        ("twinlog.rest.token.file = /t", r"did you mean twinlog\.rest\.tokens\.file"),
        ("A->B.twinlog.rest.tokens.file = /t", r"write twinlog\.rest\.tokens\.file"),
        ("B.twinlog.rest.tokens.file = /t", r"write twinlog\.rest\.tokens\.file"),
        ("twinlog.rest.monitoring.open = yes", "true"),
    ],
)
def test_contradictory_keys_are_refused(read: Loader, line: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        read(line)
