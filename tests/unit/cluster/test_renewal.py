"""Key files that are replaced under the same path: which content new connections use, and what is
logged.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.certificates import Issued, shared_authority
from tests.support.properties import flow_of, loader
from twinlog.cluster.security.renewal import CHECK_EVERY_S, SETTLES_S, FollowedFiles, Renewals
from twinlog.cluster.security.security_keys import is_of_security, load_security
from twinlog.cluster.security.security_settings import SecuritySettings
from twinlog.config.values.origin import ClientProperties

PACKAGE = "org.apache.kafka.common.config.provider."
SECRET = "hunter2-hunter2"


def pem_of(issued: Issued) -> str:
    return issued.key_pem + issued.pem


OLD, NEW = (shared_authority().issue(name) for name in ("old", "new"))


class Keys:
    """A keystore and a truststore in PEM, and the object that detects their changes."""

    def __init__(self, folder: Path) -> None:
        self.identity, self.trust = folder / "me.pem", folder / "ca.pem"
        self.identity.write_text(pem_of(OLD))
        self.trust.write_text(shared_authority().pem)
        self.first = self.read()
        self.followed = FollowedFiles(self.first, self.read)
        self.now = 0.0
        self.check()

    def read(self) -> SecuritySettings:
        return load_security(
            {
                "security.protocol": "SSL",
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(self.identity),
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(self.trust),
            },
            where="A",
        )

    def check(self, after_s: float = CHECK_EVERY_S) -> bool:
        self.now += after_s
        return self.followed.check(self.now)

    @property
    def certificate(self) -> str | None:
        return self.followed.settings.certificate_chain_pem


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    return Keys(tmp_path)


def in_place(path: Path) -> None:
    path.write_text(pem_of(NEW))


def by_rename(path: Path) -> None:
    scratch = path.with_suffix(".tmp")
    scratch.write_text(pem_of(NEW))
    scratch.replace(path)


def by_rename_with_the_old_time(path: Path) -> None:
    """Replace a file and preserve its modification time, as `cp -p` and some backup tools do."""
    before = path.stat()
    by_rename(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def by_link(path: Path) -> None:
    """Replace a file by a link to a file in another folder, as Kubernetes does."""
    data = path.parent / "..data"
    data.mkdir()
    (data / path.name).write_text(pem_of(NEW))
    scratch = path.with_suffix(".tmp")
    scratch.symlink_to(data / path.name)
    scratch.replace(path)


@pytest.mark.parametrize("renew", [in_place, by_rename, by_rename_with_the_old_time, by_link])
def test_a_renewed_file_is_used_however_it_was_replaced(
    keys: Keys, renew: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    assert not keys.check()
    renew(keys.identity)
    assert keys.check()
    assert keys.certificate == NEW.pem
    assert keys.followed.settings.ca_pem == keys.first.ca_pem
    assert f"new connections use the renewed key files: {keys.identity}" in caplog.text
    assert not keys.check(), "it is said once"


def test_a_touched_file_is_no_renewal(keys: Keys) -> None:
    os.utime(keys.identity, ns=(1, 1))
    assert not keys.check()
    assert keys.followed.settings is keys.first


def test_a_change_before_the_first_check_is_noticed(tmp_path: Path) -> None:
    keys = Keys(tmp_path)
    late = FollowedFiles(keys.first, keys.read)
    in_place(keys.identity)
    assert late.check(0.0)
    assert late.settings.certificate_chain_pem == NEW.pem


WRONG = {
    "half": (pem_of(NEW)[:-200], "me.pem"),
    "empty": ("", "me.pem"),
    "another's key": (OLD.key_pem + NEW.pem, "none of its certificates belongs"),
    "a locked key": (NEW.encrypted_key_pem(SECRET) + NEW.pem, "ssl.key.password"),
    "gone": (None, "cannot be read: No such file"),
}


@pytest.mark.parametrize(("content", "said"), WRONG.values(), ids=WRONG)
def test_an_unusable_file_is_logged_once_and_the_old_content_used(
    keys: Keys, content: str | None, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    if content is None:
        keys.identity.unlink()
    else:
        keys.identity.write_text(content)
    assert not keys.check()
    assert not caplog.records, "it may be half written"
    for _ in range(5):
        keys.check(SETTLES_S)
    assert keys.followed.settings is keys.first
    (line,) = [record.getMessage() for record in caplog.records]
    assert said in line
    assert str(keys.identity) in line
    assert str(keys.trust) not in line
    assert "PRIVATE KEY-----\n" not in line
    in_place(keys.identity)
    assert keys.check(), "it is tried again"
    assert keys.certificate == NEW.pem


def test_a_file_that_is_half_written_for_a_moment_is_not_logged(
    keys: Keys, caplog: pytest.LogCaptureFixture
) -> None:
    keys.identity.write_text(OLD.key_pem + NEW.pem)
    keys.check()
    keys.identity.write_text(pem_of(NEW))
    assert keys.check()
    assert not caplog.records


def test_an_unusable_file_is_logged_again_after_a_usable_one(
    keys: Keys, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        keys.identity.write_text("nothing")
        keys.check()
        keys.check(SETTLES_S)
        keys.identity.write_text(pem_of(OLD))
        keys.check()
    assert len(caplog.records) == 2


def from_provider(folder: Path, kind: str, **values: str) -> ClientProperties:
    lines = [
        "config.providers = p",
        f"config.providers.p.class = {PACKAGE}{kind}",
        "A.security.protocol = SSL",
    ]
    lines += [f"A.{key.replace('_', '.')} = {value}" for key, value in values.items()]
    return flow_of(loader(folder)(*lines)).clients.source_admin


@pytest.mark.parametrize("kind", ["DirectoryConfigProvider", "FileConfigProvider"])
def test_files_of_config_providers_are_followed(
    tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "secret"
    folder.mkdir()

    def write(issued: Issued) -> None:
        if kind == "DirectoryConfigProvider":  # two files, as Strimzi's operator creates them
            (folder / "user.key").write_text(issued.key_pem)
            (folder / "user.crt").write_text(issued.pem)
        else:
            entries = {"user.key": issued.key_pem, "user.crt": issued.pem}
            escaped = [f"{key}={value}".replace("\n", "\\n") for key, value in entries.items()]
            (folder / "all").write_text("\n".join(escaped))

    write(OLD)
    where = folder if kind == "DirectoryConfigProvider" else folder / "all"
    properties = from_provider(
        tmp_path,
        kind,
        ssl_keystore_type="PEM",
        ssl_keystore_key=f"${{p:{where}:user.key}}",
        ssl_keystore_certificate_chain=f"${{p:{where}:user.crt}}",
    )
    files = properties.files_of(is_of_security)
    assert {path for _, path in files} == {str(path) for path in folder.iterdir()}

    def again() -> SecuritySettings:
        return load_security(properties.resolve_again(is_of_security), where="A", files=files)

    first = again()
    assert first.certificate_chain_pem == OLD.pem
    followed = FollowedFiles(first, again)
    write(NEW)
    assert followed.check(0.0)
    assert followed.settings.certificate_chain_pem == NEW.pem
    file = next(folder.glob("user.crt"), folder / "all")
    file.write_text("user.crt=nothing")
    followed.check(0.0)
    followed.check(SETTLES_S)
    (line,) = [record.getMessage() for record in caplog.records]
    assert str(folder) in line
    assert followed.settings.certificate_chain_pem == NEW.pem


def test_a_token_file_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TWINLOG_SASL_OAUTHBEARER_ALLOWED_URLS", raising=False)
    token = tmp_path / "token"
    token.write_text("first")
    module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"

    def read() -> SecuritySettings:
        return load_security(
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.oauthbearer.token.endpoint.url": token.as_uri(),
                "sasl.jaas.config": f"{module} required;",
            },
            where="A",
        )

    followed = FollowedFiles(read(), read)
    token.write_text("second")
    assert followed.check(0.0)
    assert followed.settings.oauth is not None
    assert followed.settings.oauth.fixed_token == "second"


def test_the_truststore_of_a_token_endpoint_is_among_the_files(tmp_path: Path) -> None:
    trust = tmp_path / "endpoint.pem"
    trust.write_text(shared_authority().pem)
    module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
    options = f'clientId="me" clientSecret="{SECRET}" ssl.truststore.type="PEM"'
    settings = load_security(
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": "https://tokens.example/token",
            "sasl.jaas.config": f'{module} required {options} ssl.truststore.location="{trust}";',
        },
        where="A",
    )
    assert settings.files == (("sasl.jaas.config: ssl.truststore.location", str(trust)),)


class Clock:
    """A clock that moves only when the test moves it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_connections_check_files_at_most_every_ten_seconds(keys: Keys) -> None:
    clock = Clock()
    renewals = Renewals(clock)
    renewals.follow(keys.first, keys.read)
    in_place(keys.identity)
    clock.now += CHECK_EVERY_S - 1
    assert renewals.current(keys.first) is keys.first
    assert CHECK_EVERY_S <= 30
    clock.now += 1
    assert renewals.last_settings(keys.first) is keys.first
    assert renewals.current(keys.first).certificate_chain_pem == NEW.pem
    assert renewals.last_settings(keys.first).certificate_chain_pem == NEW.pem


def test_no_thread_waits_for_another_that_reads_files(keys: Keys) -> None:
    clock, reading, go_on = Clock(), threading.Event(), threading.Event()

    def read() -> SecuritySettings:
        reading.set()
        go_on.wait()
        return keys.read()

    renewals = Renewals(clock)
    renewals.follow(keys.first, read)
    in_place(keys.identity)
    clock.now += CHECK_EVERY_S
    first = threading.Thread(target=lambda: renewals.current(keys.first), daemon=True)
    first.start()
    reading.wait()
    clock.now += CHECK_EVERY_S
    assert renewals.current(keys.first) is keys.first
    go_on.set()
    first.join()
    assert renewals.current(keys.first).certificate_chain_pem == NEW.pem


def test_settings_without_files_are_unchanged() -> None:
    plain = SecuritySettings()
    renewals = Renewals()
    renewals.follow(plain, lambda: plain)
    assert renewals.current(plain) is plain
    assert renewals.last_settings(plain) is plain
