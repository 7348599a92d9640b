"""Downloaded jars are installed only if their checksums are known."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from twinlog.errors import EnvironmentMissing
from twinlog.sandbox import kafka_jars
from twinlog.sandbox.kafka_jars import KAFKA_VERSION, default_cache, find_or_fetch

JARS = {"a-1.jar": b"first", "b-2.jar": b"second"}


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """The jars that Ivy would download, by name. A test may change them."""
    jars = dict(JARS)

    def run_ivy(_jars: object, _cache: Path, into: Path) -> None:
        for name, data in jars.items():
            (into / name).write_bytes(data)

    monkeypatch.setattr(kafka_jars, "_run_ivy", run_ivy)
    return jars


@pytest.fixture(autouse=True)
def known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A list of known checksums of one set of jars. Another test checks the real list."""
    path = tmp_path / "list.sha256"
    sums = {name: hashlib.sha256(data).hexdigest() for name, data in JARS.items()}
    path.write_text("".join(f"{digest}  kafka-1.2.3/{name}\n" for name, digest in sums.items()))
    monkeypatch.setattr(kafka_jars, "LIST", path)
    return path


def test_the_jars_that_are_known_are_installed(fetched: dict[str, bytes], tmp_path: Path) -> None:
    folder = find_or_fetch(tmp_path / "cache", "1.2.3")
    assert {path.name for path in folder.iterdir()} == {*fetched, "complete"}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"a-1.jar": b"another"}, "a-1.jar is a different file: its SHA-256 is"),
        ({"evil.jar": b"more"}, "evil.jar does not belong to it"),
        ({"b-2.jar": None}, "b-2.jar is missing"),
    ],
)
def test_others_are_one_error_and_nothing_is_installed(
    fetched: dict[str, bytes], tmp_path: Path, change: dict[str, bytes | None], said: str
) -> None:
    for name, data in change.items():
        fetched.pop(name, None)
        if data is not None:
            fetched[name] = data
    cache = tmp_path / "cache"
    with pytest.raises(EnvironmentMissing, match=said) as caught:
        find_or_fetch(cache, "1.2.3")
    assert "nothing was installed" in str(caught.value)
    assert str(cache / "ivy") in str(caught.value)
    assert not (cache / "kafka-1.2.3").exists()
    assert not list(cache.glob(".fetch-*"))


def test_an_unlisted_version_is_refused(fetched: dict[str, bytes], tmp_path: Path) -> None:
    with pytest.raises(EnvironmentMissing, match=r"Kafka 9\.9\.9 is not a version whose jars"):
        find_or_fetch(tmp_path / "cache", "9.9.9")
    assert fetched, "and not even asked for"
    assert not (tmp_path / "cache" / "kafka-9.9.9").exists()


@pytest.mark.parametrize(
    "name", [*(f"kafka-{v}" for v in ("2.8.2", "3.4.1", "3.9.1", KAFKA_VERSION)), "mirror-maker"]
)
def test_every_used_set_is_listed_and_equals_the_installed_jars(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        kafka_jars, "LIST", Path(kafka_jars.__file__).with_name("kafka_jars.sha256")
    )
    name = name if name.startswith("kafka") else f"mirror-maker-{KAFKA_VERSION}"
    sums = kafka_jars.known_sums(name)
    assert len(sums) > 30
    assert {len(digest) for digest in sums.values()} == {64}
    folder = default_cache(os.environ) / name
    if not (folder / "complete").exists():
        pytest.skip("not fetched on this machine")
    found = {path.name: kafka_jars._sum_of(path) for path in folder.glob("*.jar")}
    assert found == sums
