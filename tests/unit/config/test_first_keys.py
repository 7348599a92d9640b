"""The file at the beginning of the configuration page is valid, and its keys exist."""

from __future__ import annotations

from pathlib import Path

from tools.pages.first_keys import FIRST_KEYS, SECURED_EXAMPLE
from twinlog.config.load import load

PASSWORD = {"TWINLOG_PASSWORD": "s3cret"}


def test_the_example_is_a_file_without_a_warning(tmp_path: Path) -> None:
    authority = tmp_path / "ca.pem"
    authority.write_text("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n")
    file = tmp_path / "mm2.properties"
    file.write_text(SECURED_EXAMPLE.replace("/etc/twinlog/ca.pem", str(authority)))
    config = load(file, environment=PASSWORD)
    assert [str(one.flow) for one in config.flows] == ["west->east"]
    assert list(config.warnings) == []


def test_each_key_is_explained_further_down() -> None:
    page = (Path(__file__).parents[3] / "docs" / "configuration.md").read_text()
    _, rest = page.split("## How a file is read")
    for key, _ in FIRST_KEYS:
        assert key.removeprefix("A.").removeprefix("A->B.") in rest, key
