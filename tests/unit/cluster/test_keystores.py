"""Key stores that keytool, OpenSSL and the JVM have written, with and without passwords, and
damaged ones.
"""

from __future__ import annotations

import os
import shutil
import ssl
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.certificates import Issued, of_version_2, shared_authority
from twinlog.cluster.security import keystores
from twinlog.cluster.security.keystores import BrokenStore, WrongPassword

PASSWORD = "store-pass"
KEY_PASSWORD = "key-pass"


def _keytool() -> str | None:
    home = os.environ.get("JAVA_HOME")
    return shutil.which("keytool", path=f"{home}/bin") if home else shutil.which("keytool")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with stores that keytool has written. JREs and JDKs have keytool."""
    keytool = _keytool()
    if keytool is None:
        pytest.skip("no keytool on this machine")
    folder = tmp_path_factory.mktemp("stores")
    (folder / "ca.pem").write_text(shared_authority().pem)

    def run(
        store: str, *arguments: str, kind: str = "PKCS12", tuning: tuple[str, ...] = ()
    ) -> None:
        subprocess.run(
            [
                *(keytool, "-J-XX:TieredStopAtLevel=1", *tuning),
                *(*arguments, "-noprompt", "-storetype", kind, "-keystore", store),
                *("-storepass:env", "STORE_PASSWORD", "-alias", "One"),
            ],
            env={**os.environ, "STORE_PASSWORD": PASSWORD},
            cwd=folder,
            check=True,
            capture_output=True,
        )

    trust = ("-importcert", "-file", "ca.pem")
    open_certificates = "-J-Dkeystore.pkcs12.certProtectionAlgorithm=NONE"
    run("trust.p12", *trust)
    run("trust-legacy.p12", *trust, tuning=("-J-Dkeystore.pkcs12.legacy",))
    run("trust-open.p12", *trust, tuning=(open_certificates,))
    run(
        "trust-bare.p12",
        *trust,
        tuning=(open_certificates, "-J-Dkeystore.pkcs12.macAlgorithm=NONE"),
    )
    run("trust.jks", *trust, kind="JKS")
    pair = ("-genkeypair", "-keyalg", "EC", "-dname", "CN=me", "-ext", "san=dns:localhost")
    run("me.p12", *pair)
    run("me.jks", *pair, "-keypass", KEY_PASSWORD, kind="JKS")
    run("same.jks", *pair, kind="JKS")
    return folder


@pytest.mark.parametrize(
    ("name", "password"),
    [
        ("trust.p12", PASSWORD),
        ("trust-legacy.p12", PASSWORD),
        ("trust-open.p12", PASSWORD),
        ("trust-open.p12", None),
        ("trust-bare.p12", None),
        ("trust-bare.p12", "any"),
        ("trust.jks", PASSWORD),
        ("trust.jks", None),
    ],
)
def test_truststore_of_keytool(folder: Path, name: str, password: str | None) -> None:
    found = keystores.trusted_from_store((folder / name).read_bytes(), password)
    assert found == shared_authority().pem


@pytest.mark.parametrize("name", ["trust.p12", "trust-open.p12", "trust.jks", "trust-legacy.p12"])
def test_truststore_with_wrong_password(folder: Path, name: str) -> None:
    with pytest.raises(WrongPassword, match="of the store is wrong"):
        keystores.trusted_from_store((folder / name).read_bytes(), "guess")


def test_encrypted_truststore_without_password(folder: Path) -> None:
    with pytest.raises(WrongPassword, match="is not given"):
        keystores.trusted_from_store((folder / "trust.p12").read_bytes(), None)


@pytest.mark.parametrize(
    ("name", "key_password"), [("me.p12", None), ("me.jks", KEY_PASSWORD), ("same.jks", None)]
)
def test_keystore_of_keytool(folder: Path, name: str, key_password: str | None) -> None:
    identity = keystores.identity_from_store((folder / name).read_bytes(), PASSWORD, key_password)
    assert identity.private_key_pem.startswith("-----BEGIN PRIVATE KEY-----")
    assert identity.certificate_chain_pem.count("BEGIN CERTIFICATE") == 1


def test_key_entry_counts_as_trusted_as_in_java(folder: Path) -> None:
    data = (folder / "me.jks").read_bytes()
    own = keystores.identity_from_store(data, PASSWORD, KEY_PASSWORD).certificate_chain_pem
    assert keystores.trusted_from_store(data, PASSWORD) == own


@pytest.mark.parametrize("key_password", [None, "guess"])
def test_key_with_its_own_password(folder: Path, key_password: str | None) -> None:
    with pytest.raises(WrongPassword, match="of the key 'one' is wrong"):
        keystores.identity_from_store((folder / "me.jks").read_bytes(), PASSWORD, key_password)


@pytest.mark.parametrize("name", ["trust.p12", "trust.jks"])
def test_store_without_key(folder: Path, name: str) -> None:
    with pytest.raises(BrokenStore, match="no private key"):
        keystores.identity_from_store((folder / name).read_bytes(), PASSWORD, None)


def test_the_certificates_of_the_jvm() -> None:
    java = shutil.which("java")
    if java is None:
        pytest.skip("no java on this machine")
    home = Path(java).resolve().parent.parent
    paths = [home / "lib/security/cacerts", home / "jre/lib/security/cacerts"]
    stores = [path for path in paths if path.is_file()]
    if not stores:
        pytest.skip("this Java has no cacerts")
    found = keystores.trusted_from_store(stores[0].read_bytes(), None)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=found)
    assert context.cert_store_stats()["x509_ca"] > 20


def _p12(issued: Issued, others: list[Issued], password: str) -> bytes:
    return pkcs12.serialize_key_and_certificates(
        b"me",
        issued.key,
        issued.certificate,
        [each.certificate for each in others],
        serialization.BestAvailableEncryption(password.encode()),
    )


def test_chain_is_ordered_and_unrelated_certificates_are_dropped() -> None:
    middle = shared_authority().issue("Middle", is_authority=True)
    leaf, stranger = middle.issue("leaf"), shared_authority().issue("stranger")
    data = _p12(leaf, [stranger, shared_authority(), middle], PASSWORD)
    identity = keystores.identity_from_store(data, PASSWORD, None)
    assert identity.certificate_chain_pem == leaf.pem + middle.pem + shared_authority().pem


@pytest.mark.parametrize("password", [None, KEY_PASSWORD])
def test_pem_with_and_without_password(password: str | None) -> None:
    leaf = shared_authority().issue("leaf")
    text = leaf.encrypted_key_pem(password) + leaf.pem + shared_authority().pem
    identity = keystores.identity_from_pem(text, text, password)
    assert identity.private_key_pem == leaf.key_pem
    assert identity.certificate_chain_pem == leaf.pem + shared_authority().pem


def test_pem_on_one_line_as_in_properties_files() -> None:
    leaf = shared_authority().issue("leaf")
    identity = keystores.identity_from_pem(
        " ".join(leaf.key_pem.split("\n")), "  ".join(leaf.pem.split("\n")), None
    )
    assert identity.certificate_chain_pem == leaf.pem
    assert identity.private_key_pem == leaf.key_pem


UNSUPPORTED_KEY = """\
-----BEGIN PRIVATE KEY-----
ME4CAQAwEAYHKoZIzj0CAQYFK4EEAAYENzA1AgEBBA52u8FaFwaBmDFut2myvqEg
Ax4ABDzJ7NiveYtS5c8jeQq4AFgxJybYXp3e9mwgW+s=
-----END PRIVATE KEY-----
"""
"""A key on the curve secp112r1, which OpenSSL reads and the `cryptography` library does not."""


def test_pem_key_on_an_unsupported_curve() -> None:
    with pytest.raises(BrokenStore, match="of a kind that cannot be read"):
        keystores.identity_from_pem(UNSUPPORTED_KEY, shared_authority().pem, None)


def test_pem_chain_with_a_certificate_of_an_unsupported_version() -> None:
    leaf = shared_authority().issue("leaf")
    with pytest.raises(BrokenStore, match="a certificate of its chain cannot be read"):
        keystores.identity_from_pem(leaf.key_pem, of_version_2(leaf), None)


def test_pem_key_that_does_not_match_the_certificate() -> None:
    leaf, other = shared_authority().issue("leaf"), shared_authority().issue("other")
    with pytest.raises(BrokenStore, match="none of its certificates belongs"):
        keystores.identity_from_pem(leaf.key_pem, other.pem, None)


@pytest.mark.parametrize(("password", "hint"), [(None, "not given"), ("guess", "wrong")])
def test_encrypted_pem_key_without_the_right_password(password: str | None, hint: str) -> None:
    leaf = shared_authority().issue("leaf")
    with pytest.raises(WrongPassword, match=hint):
        keystores.identity_from_pem(leaf.encrypted_key_pem(KEY_PASSWORD), leaf.pem, password)


@pytest.mark.parametrize(
    "text", ["", "nothing", "-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----\n"]
)
def test_pem_without_certificates(text: str) -> None:
    with pytest.raises(BrokenStore):
        keystores.trusted_from_pem(text)


def test_pem_file_with_another_store_type() -> None:
    with pytest.raises(BrokenStore, match="set the store's type to PEM"):
        keystores.trusted_from_store(shared_authority().pem.encode(), None)


# without the encrypted PKCS#12 files, because a flipped bit in them may demand billions of hash
# rounds
@settings(deadline=None)
@given(data=st.data())
def test_damaged_files_are_rejected_with_a_reason(folder: Path, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(["trust-bare.p12", "trust.jks", "me.jks"]))
    content = bytearray((folder / name).read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] ^= data.draw(st.integers(1, 255))
    _accepts_or_refuses(bytes(content[: data.draw(st.integers(0, len(content)))]))


@pytest.mark.parametrize("name", ["trust.p12", "me.p12", "me.jks"])
def test_truncated_files(folder: Path, name: str) -> None:
    content = (folder / name).read_bytes()
    for size in range(0, len(content), 7):
        with pytest.raises((BrokenStore, WrongPassword)):
            keystores.identity_from_store(content[:size], PASSWORD, KEY_PASSWORD)


def _accepts_or_refuses(damaged: bytes) -> None:
    for password in (None, PASSWORD):
        try:
            keystores.trusted_from_store(damaged, password)
            keystores.identity_from_store(damaged, PASSWORD, KEY_PASSWORD)
        except (BrokenStore, WrongPassword) as error:
            assert str(error)


@given(st.binary(max_size=200))
def test_random_bytes_are_rejected(data: bytes) -> None:
    for start in (b"", b"\x30", b"\xfe\xed\xfe\xed\0\0\0\2"):
        with pytest.raises((BrokenStore, WrongPassword)):
            keystores.trusted_from_store(start + data, None)
