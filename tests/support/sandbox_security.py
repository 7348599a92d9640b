"""TLS, SASL and ACLs for a local cluster, and the matching client settings.

    security = SandboxSecurity(listeners=("SASL_SSL",), users={"alice": "secret"}, authorizer=True)
    with LocalCluster("secure", security=security) as cluster:
        properties = cluster.client_properties("SASL_SSL", "alice")

Besides the requested listeners there is always the listener INTERNAL, for the brokers, the
readiness probe and the tests' admin client. It uses SASL/PLAIN as the super user, so that a test
can deny access to all other users.
"""

from __future__ import annotations

import functools
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    NoEncryption,
    pkcs12,
)

from tests.support.certificates import Issued, authority
from twinlog.errors import EnvironmentMissing, UsageError
from twinlog.java import find_java
from twinlog.sandbox.layout import CONTROLLER, Listeners, Stores

ADMIN = "admin"
_ADMIN_PASSWORD = "admin-secret"  # for temporary brokers on the loopback
_INTERNAL = "INTERNAL"

_MODULES = "org.apache.kafka.common.security"
_PLAIN = f"{_MODULES}.plain.PlainLoginModule"
_SCRAM = f"{_MODULES}.scram.ScramLoginModule"
_OAUTH = f"{_MODULES}.oauthbearer.OAuthBearerLoginModule"
_MODULE_OF = {
    "PLAIN": _PLAIN,
    "SCRAM-SHA-256": _SCRAM,
    "SCRAM-SHA-512": _SCRAM,
    "OAUTHBEARER": _OAUTH,
}


@dataclass(kw_only=True)
class SandboxSecurity:
    """The listeners of a cluster, named after their protocols, and its users and permissions."""

    listeners: tuple[str, ...] = ("SASL_SSL",)
    """Names of the listeners, any of PLAINTEXT, SSL, SASL_PLAINTEXT and SASL_SSL."""
    mechanisms: tuple[str, ...] = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
    users: Mapping[str, str] = field(default_factory=dict)
    """Passwords by user. The user `admin` always exists."""
    client_certificates: bool = False
    """True if the SSL listener requires client certificates (mTLS)."""
    authorizer: bool = False
    """True if all users except `admin` are denied every operation that no ACL allows."""
    hosts: tuple[str, ...] = ("127.0.0.1", "localhost")
    """Host names in the brokers' certificate. Hostname verification fails for other names."""
    files: KeyFiles | None = field(init=False, default=None)

    def prepare(self, folder: Path) -> Listeners:
        """Write the key files, and return the settings of the brokers' listeners."""
        self.files = make_key_files(folder / "keys", hosts=self.hosts)
        return Listeners(
            names=self.listeners,
            internal=_INTERNAL,
            protocols={
                **{name: name for name in self.listeners},
                _INTERNAL: "SASL_PLAINTEXT",
                CONTROLLER: "SASL_PLAINTEXT",
            },
            properties={**self._tls(self.files), **self._sasl(), **self._authorization()},
            credentials=(ADMIN, _ADMIN_PASSWORD),
        )

    def format_arguments(self) -> list[str]:
        """Return SCRAM users as arguments of Kafka's storage tool, which writes them to the
        metadata log.
        """
        return [
            argument
            for mechanism in self.mechanisms
            if mechanism.startswith("SCRAM")
            for user, password in self._passwords.items()
            for argument in ("--add-scram", f"{mechanism}=[name={user},password={password}]")
        ]

    def client_properties(
        self,
        listener: str,
        user: str | None = None,
        *,
        mechanism: str | None = None,
        stores: Stores = "PEM",
    ) -> dict[str, str]:
        """Return a Java client's keys for a listener, without `bootstrap.servers`.

        `user`: the SASL user, or on the SSL listener the owner of the client certificate.
        """
        if listener not in self.listeners:
            raise UsageError(f"no listener {listener}; there are {', '.join(self.listeners)}")
        properties = {"security.protocol": listener}
        if listener.endswith("SSL"):
            properties |= self._trust(stores)
        if listener == "SSL" and user is not None:
            properties |= self._identity(user, stores)
        if listener.startswith("SASL") and user is not None:
            properties |= self._login(user, mechanism or self.mechanisms[0])
        return properties

    @property
    def _passwords(self) -> dict[str, str]:
        return {ADMIN: _ADMIN_PASSWORD, **self.users}

    def _tls(self, files: KeyFiles) -> dict[str, str]:
        if not any(name.endswith("SSL") for name in self.listeners):
            return {}
        asked = "required" if self.client_certificates else "none"
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(files.server_pem),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(files.authority_pem),
            "listener.name.ssl.ssl.client.auth": asked,
            "listener.name.ssl.ssl.principal.mapping.rules": "RULE:^CN=([^,]+).*$/$1/",
        }

    def _sasl(self) -> dict[str, str]:
        properties = {
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "sasl.mechanism.controller.protocol": "PLAIN",
        }
        offered: dict[str, tuple[str, ...]] = {_INTERNAL: ("PLAIN",), CONTROLLER: ("PLAIN",)}
        offered |= {name: self.mechanisms for name in self.listeners if name.startswith("SASL")}
        for listener, mechanisms in offered.items():
            prefix = f"listener.name.{listener.lower()}."
            properties[prefix + "sasl.enabled.mechanisms"] = ",".join(mechanisms)
            for mechanism in mechanisms:
                key = f"{prefix}{mechanism.lower()}.sasl.jaas.config"
                properties[key] = self._broker_login(mechanism)
        return properties

    def _broker_login(self, mechanism: str) -> str:
        options: dict[str, str] = {}
        if mechanism == "PLAIN":
            options = {"username": ADMIN, "password": _ADMIN_PASSWORD}
            options |= {f"user_{user}": word for user, word in self._passwords.items()}
        elif mechanism == "OAUTHBEARER":
            options = {"unsecuredLoginStringClaim_sub": ADMIN}
        return _jaas(mechanism, options)

    def _authorization(self) -> dict[str, str]:
        if not self.authorizer:
            return {}
        return {
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:{ADMIN}",
        }

    def _login(self, user: str, mechanism: str) -> dict[str, str]:
        if mechanism == "OAUTHBEARER":
            options = {"unsecuredLoginStringClaim_sub": user}
        else:
            options = {"username": user, "password": self._passwords.get(user, "")}
        return {"sasl.mechanism": mechanism, "sasl.jaas.config": _jaas(mechanism, options)}

    def _trust(self, stores: Stores) -> dict[str, str]:
        files = self._files()
        if stores == "PEM":
            return _store("truststore", "PEM", files.authority_pem, None)
        path = files.trust_p12() if stores == "PKCS12" else files.trust_jks
        return _store("truststore", stores, path, STORE_PASSWORD)

    def _identity(self, user: str, stores: Stores) -> dict[str, str]:
        files = self._files()
        if stores == "PEM":
            return _store("keystore", "PEM", files.identity_pem(user), None)
        path = files.identity_p12(user) if stores == "PKCS12" else files.identity_jks(user)
        return _store("keystore", stores, path, STORE_PASSWORD)

    def _files(self) -> KeyFiles:
        if self.files is None:
            raise UsageError("key files are created when the cluster starts; call start() first")
        return self.files


def _jaas(mechanism: str, options: Mapping[str, str]) -> str:
    values = "".join(f' {name}="{value}"' for name, value in options.items())
    return f"{_MODULE_OF[mechanism]} required{values};"


def _store(role: str, kind: str, path: Path, password: str | None) -> dict[str, str]:
    properties = {f"ssl.{role}.type": kind, f"ssl.{role}.location": str(path)}
    if password is not None:
        properties[f"ssl.{role}.password"] = password
    return properties


# Key files in every format that Kafka's Java clients can read: PEM with a plain or an encrypted
# key, PKCS#12 with and without a password, and JKS, which Java's own keytool creates.

STORE_PASSWORD = "changeit"  # Java's own default, for temporary keys
_LOCKED = BestAvailableEncryption(STORE_PASSWORD.encode())

_DAYS = (-1, 365)
"""Begin and end of the validity of certificates, in days from now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyFiles:
    """Paths of the key files. An `identity` file has a client's key and certificate. It is created
    when it is first requested, because encrypting a key takes 20 ms.
    """

    folder: Path
    authority: Issued

    @property
    def authority_pem(self) -> Path:
        return self.folder / "ca.pem"

    @property
    def server_pem(self) -> Path:
        return self.folder / "server.pem"

    def identity_pem(self, user: str, *, encrypted: bool = False) -> Path:
        path = self.folder / f"{user}{'-encrypted' if encrypted else ''}.pem"
        if not path.exists():
            path.write_bytes(_pem(self._issue(user), STORE_PASSWORD if encrypted else None))
        return path

    def identity_p12(self, user: str, *, password: bool = True) -> Path:
        path = self.folder / f"{user}{'' if password else '-open'}.p12"
        if not path.exists():
            issued, how = self._issue(user), _LOCKED if password else NoEncryption()
            store = pkcs12.serialize_key_and_certificates(
                user.encode(), issued.key, issued.certificate, None, how
            )
            path.write_bytes(store)
        return path

    def _issue(self, user: str) -> Issued:
        return self.authority.issue(user, days=_DAYS)

    def trust_p12(self, *, password: bool = True) -> Path:
        return self.folder / f"ca{'' if password else '-open'}.p12"

    def identity_jks(self, user: str) -> Path:
        return self._as_jks(self.identity_p12(user))

    @property
    def trust_jks(self) -> Path:
        return self._as_jks(self.trust_p12())

    def _as_jks(self, store: Path) -> Path:
        jks = store.with_suffix(".jks")
        if not jks.exists():  # created only on demand, because each run of keytool starts a JVM
            _convert_to_jks(store, jks)
        return jks


def make_key_files(folder: Path, *, hosts: tuple[str, ...]) -> KeyFiles:
    """Create new keys in the folder. `hosts`: names by which the brokers are reached."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    ca = authority("Twinlog sandbox CA", _DAYS)
    files = KeyFiles(folder=folder, authority=ca)
    files.authority_pem.write_text(ca.pem)
    trusted = [pkcs12.PKCS12Certificate(ca.certificate, b"ca")]
    files.trust_p12().write_bytes(pkcs12.serialize_java_truststore(trusted, _LOCKED))
    files.trust_p12(password=False).write_bytes(
        pkcs12.serialize_java_truststore(trusted, NoEncryption())
    )
    files.server_pem.write_bytes(_pem(ca.issue("broker", hosts=hosts, days=_DAYS)))
    return files


def _pem(issued: Issued, password: str | None = None) -> bytes:
    """Return the key and the certificate as one text, as in Kafka's PEM keystores."""
    return (issued.encrypted_key_pem(password) + issued.pem).encode()


def _convert_to_jks(store: Path, jks: Path) -> None:
    command = [_keytool(), "-importkeystore", "-noprompt", "-srckeystore", str(store)]
    command += ["-srcstorepass", STORE_PASSWORD, "-destkeystore", str(jks)]
    command += ["-deststoretype", "JKS", "-deststorepass", STORE_PASSWORD]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    if answer.returncode != 0:
        raise EnvironmentMissing(f"keytool could not create {jks}: {answer.stdout.strip()}")


@functools.cache
def _keytool() -> str:
    beside = find_java().resolve().parent / "keytool"
    found = str(beside) if beside.exists() else shutil.which("keytool")
    if found is None:
        raise EnvironmentMissing(
            "Java's keytool is missing, which creates JKS files; install a full JRE"
        )
    return found
