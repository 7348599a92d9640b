"""Bootstrap addresses in the forms in which users write them."""

from __future__ import annotations

import pytest

from twinlog.cluster.net.settings import ClusterSettings, parse_bootstrap
from twinlog.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a:9092", (("a", 9092),)),
        (" a:1 , b:65535 ,", (("a", 1), ("b", 65535))),
        ("[::1]:9092", (("::1", 9092),)),
        ("SSL://kafka:9093", (("kafka", 9093),)),
    ],
)
def test_valid_addresses(text: str, expected: tuple[tuple[str, int], ...]) -> None:
    assert parse_bootstrap(text) == expected


@pytest.mark.parametrize("text", ["", " , ", "a", "a:", ":9092", "a:x", "a:0", "a:65536", "a:-1"])
def test_an_invalid_address_is_an_error_with_the_key(text: str) -> None:
    with pytest.raises(ConfigError, match=r"A\.bootstrap\.servers"):
        parse_bootstrap(text, "A.bootstrap.servers")


def test_addresses_are_shown_as_written() -> None:
    settings = ClusterSettings(alias="A", bootstrap=(("a", 1), ("::1", 2)))
    assert settings.addresses == "a:1,[::1]:2"
