"""`listeners` in a file of MirrorMaker 2 sets the address of HTTP."""

import pytest

from tests.support.properties import Loader, warnings_of
from twinlog.addresses import Address
from twinlog.config.values.warnings import WarningCode


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("http://localhost:8083", "localhost:8083"),
        ("http://:8083", "127.0.0.1:8083"),
        ("https://localhost:8443, HTTP://127.0.0.1:8083", "127.0.0.1:8083"),
        ("http://[::1]:9000", "[::1]:9000"),
        ("https://localhost:8443", None),
    ],
)
def test_first_plain_one_counts(read: Loader, value: str, expected: str | None) -> None:
    found = read(f"listeners = {value}").http_listener
    assert (None if found is None else str(found)) == expected


def test_without_it_nothing_is_reported(read: Loader) -> None:
    assert read().http_listener is None


@pytest.mark.parametrize("value", ["8083", "http://localhost", "ftp://a:1", "http://a:99999"])
def test_an_invalid_listener_is_reported_with_its_line_and_stops_nothing(
    read: Loader, value: str
) -> None:
    config = read(f"listeners = {value}")
    assert config.http_listener is None
    (warning,) = warnings_of(config, WarningCode.DEAD_KEY)
    assert (warning.line, warning.key) == (5, "listeners")
    assert "is not a listener" in warning.message


FOREIGN = ["", "0.0.0.0", "[::]", "10.0.0.7", "mirror.example"]  # noqa: S104 (refused)


@pytest.mark.parametrize("host", FOREIGN)
def test_other_hosts_reach_nothing_without_a_key_and_the_file_runs(read: Loader, host: str) -> None:
    config = read(f"listeners = http://{host}:8080")
    assert config.http_listener == Address("127.0.0.1", 8080)
    (warning,) = warnings_of(config, WarningCode.LISTEN_UNGUARDED)
    assert (warning.line, warning.key) == (5, "listeners")
    assert "HTTP is served at 127.0.0.1:8080 instead" in warning.message
    assert "write twinlog.rest.monitoring.open = true" in warning.message


@pytest.mark.parametrize("host", FOREIGN)
@pytest.mark.parametrize(
    "keys",
    [
        ["twinlog.rest.monitoring.open = true"],
        ["twinlog.rest.tokens.file = /t"],
        ["twinlog.rest.tls.certificate.file = /c", "twinlog.rest.tls.client.ca.file = /ca"],
    ],
)
def test_with_authentication_the_configured_address_is_served(
    read: Loader, host: str, keys: list[str]
) -> None:
    config = read(f"listeners = http://{host}:8080", *keys)
    expected = Address(host.strip("[]") or "0.0.0.0", 8080)  # noqa: S104 (allowed)
    assert config.http_listener == expected
    assert config.warnings == ()


@pytest.mark.parametrize(
    "value",
    ["http://localhost:8080", "http://LocalHost:8080", "http://[::1]:8080", "https://:8443"],
)
def test_this_machine_needs_no_key(read: Loader, value: str) -> None:
    assert warnings_of(read(f"listeners = {value}"), WarningCode.LISTEN_UNGUARDED) == []


def test_https_is_not_served_and_reported(read: Loader) -> None:
    (warning,) = warnings_of(
        read("listeners = https://:8443, http://localhost:8080"), WarningCode.DEAD_KEY
    )
    assert "nothing is served at https://:8443" in warning.message
