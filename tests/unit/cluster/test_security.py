"""Java's security keys are converted to settings: accepted values, rejected values, and hidden
secrets.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12

from tests.support.certificates import shared_authority
from twinlog.channel.codec import MessageCodec
from twinlog.cluster.security.security_keys import load_security
from twinlog.cluster.security.security_settings import OAuthSettings, SecuritySettings
from twinlog.errors import ConfigError
from twinlog.lane.messages import Renewed

WHERE = "mm2.properties, cluster A"
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
HANDLERS = "org.apache.kafka.common.security.oauthbearer"
STRIMZI_HANDLER = "io.strimzi.kafka.oauth.client.JaasClientOauthLoginCallbackHandler"


def load(**keys: str) -> SecuritySettings:
    return load_security(
        {name.replace("_", "."): value for name, value in keys.items()}, where=WHERE
    )


def sasl(mechanism: str, jaas: str, **others: str) -> SecuritySettings:
    return load(
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=mechanism,
        sasl_jaas_config=jaas,
        **others,
    )


def problem(**keys: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(**keys)
    assert caught.value.message.startswith(WHERE)
    return caught.value.message.removeprefix(WHERE + ": ")


def sasl_problem(mechanism: str, jaas: str, **others: str) -> str:
    return problem(
        security_protocol="SASL_SSL", sasl_mechanism=mechanism, sasl_jaas_config=jaas, **others
    )


@pytest.fixture
def stores(tmp_path: Path) -> Path:
    """A folder with the files ca.pem, me.pem (key and chain), me-locked.pem, ca.p12 and me.p12.
    Their password is "secret".
    """
    leaf = shared_authority().issue("me")
    (tmp_path / "ca.pem").write_text(shared_authority().pem)
    (tmp_path / "me.pem").write_text(leaf.key_pem + leaf.pem)
    (tmp_path / "me-locked.pem").write_text(leaf.encrypted_key_pem("secret") + leaf.pem)
    lock = serialization.BestAvailableEncryption(b"secret")
    authority = [shared_authority().certificate]
    (tmp_path / "ca.p12").write_bytes(
        pkcs12.serialize_java_truststore([pkcs12.PKCS12Certificate(authority[0], b"ca")], lock)
    )
    (tmp_path / "me.p12").write_bytes(
        pkcs12.serialize_key_and_certificates(b"me", leaf.key, leaf.certificate, authority, lock)
    )
    return tmp_path


class TestProtocol:
    def test_default_is_plain_text(self) -> None:
        settings = load()
        assert settings == SecuritySettings()
        assert not settings.needs_tls
        assert not settings.needs_sasl

    @pytest.mark.parametrize("value", ["ssl", "SSL", "Ssl"])
    def test_any_case(self, value: str) -> None:
        settings = load(security_protocol=value)
        assert settings.needs_tls
        assert not settings.needs_sasl

    def test_unknown(self) -> None:
        assert "security.protocol: 'TLS' is unknown" in problem(security_protocol="TLS")

    def test_files_of_an_unused_protocol_are_not_read(self) -> None:
        assert load(ssl_truststore_location="/no/such/file") == SecuritySettings()


class TestTls:
    def test_java_defaults(self) -> None:
        settings = load(security_protocol="SSL")
        assert settings.ca_pem is None
        assert settings.check_hostname
        assert settings.tls_versions == ("TLSv1.2", "TLSv1.3")

    @pytest.mark.parametrize("kind", ["JKS", "PKCS12", "pkcs12"])
    def test_stores_by_content(self, stores: Path, kind: str) -> None:
        settings = load(
            security_protocol="SSL",
            ssl_truststore_type=kind,
            ssl_truststore_location=str(stores / "ca.p12"),
            ssl_truststore_password="secret",
            ssl_keystore_type=kind,
            ssl_keystore_location=str(stores / "me.p12"),
            ssl_keystore_password="secret",
        )
        assert settings.ca_pem == shared_authority().pem
        assert (settings.certificate_chain_pem or "").count("BEGIN CERTIFICATE") == 2
        assert "BEGIN PRIVATE KEY" in (settings.private_key_pem or "")

    def test_pem_files(self, stores: Path) -> None:
        settings = load(
            security_protocol="SSL",
            ssl_truststore_type="PEM",
            ssl_truststore_location=str(stores / "ca.pem"),
            ssl_keystore_type="PEM",
            ssl_keystore_location=str(stores / "me-locked.pem"),
            ssl_key_password="secret",
        )
        assert settings.ca_pem == shared_authority().pem
        assert "ENCRYPTED" not in (settings.private_key_pem or "ENCRYPTED")

    def test_pem_in_line(self, stores: Path) -> None:
        settings = load(
            security_protocol="SSL",
            ssl_truststore_type="PEM",
            ssl_truststore_certificates=shared_authority().pem.replace("\n", " "),
            ssl_keystore_type="PEM",
            ssl_keystore_key=(stores / "me.pem").read_text(),
            ssl_keystore_certificate_chain=(stores / "me.pem").read_text(),
        )
        assert settings.ca_pem == shared_authority().pem
        assert settings.private_key_pem

    def test_hostname_check_is_off_only_when_emptied(self) -> None:
        def checked(value: str) -> bool:
            return load(
                security_protocol="SSL", ssl_endpoint_identification_algorithm=value
            ).check_hostname

        assert not checked("")
        assert not checked(" ")
        assert checked("https")
        assert checked("HTTPS")
        assert "ssl.endpoint.identification.algorithm: 'none'" in problem(
            security_protocol="SSL", ssl_endpoint_identification_algorithm="none"
        )

    @pytest.mark.parametrize(
        ("protocol", "enabled", "usable"),
        [
            ("", "TLSv1.2", ("TLSv1.2",)),
            ("", "TLSv1.3, TLSv1.2,TLSv1.1", ("TLSv1.2", "TLSv1.3")),
            ("TLSv1.2", "", ("TLSv1.2",)),
            ("TLS", "TLSv1.3", ("TLSv1.3",)),
        ],
    )
    def test_versions(self, protocol: str, enabled: str, usable: tuple[str, ...]) -> None:
        settings = load(
            security_protocol="SSL", ssl_protocol=protocol, ssl_enabled_protocols=enabled
        )
        assert settings.tls_versions == usable

    @pytest.mark.parametrize(
        ("keys", "hint"),
        [
            ({"ssl_protocol": "SSLv3"}, "ssl.protocol: 'SSLv3' is not supported"),
            (
                {"ssl_enabled_protocols": "TLSv1"},
                "ssl.enabled.protocols: no supported version is left of TLSv1 up to",
            ),
            (
                {"ssl_protocol": "TLSv1.2", "ssl_enabled_protocols": "TLSv1.3"},
                "no supported version is left of TLSv1.3 up to TLSv1.2; use TLSv1.2, TLSv1.3",
            ),
            ({"ssl_cipher_suites": "TLS_FOO_WITH_BAR"}, "no TLS_FOO_WITH_BAR"),
            ({"ssl_engine_factory_class": "com.acme.Ssl"}, "Java code cannot run here"),
            ({"ssl_truststore_type": "BKS"}, "ssl.truststore.type: 'BKS' cannot be read"),
            ({"ssl_truststore_location": "/no/file"}, "/no/file cannot be read: No such file"),
            ({"ssl_truststore_location": "/"}, "ssl.truststore.location: / cannot be read"),
            ({"ssl_truststore_password": "x"}, "set ssl.truststore.location as well"),
            ({"ssl_keystore_password": "x"}, "set ssl.keystore.location as well"),
            ({"ssl_truststore_certificates": "x"}, "ssl.truststore.type: must be PEM"),
            ({"ssl_keystore_key": "x"}, "ssl.keystore.certificate.chain: not set"),
            ({"ssl_keystore_certificate_chain": "x"}, "ssl.keystore.key: not set"),
            (
                {"ssl_keystore_key": "x", "ssl_keystore_certificate_chain": "x"},
                "ssl.keystore.type: must be PEM",
            ),
            (
                {"ssl_truststore_type": "PEM", "ssl_truststore_certificates": "x"},
                "ssl.truststore.certificates: its value is not a usable store",
            ),
        ],
    )
    def test_refused(self, keys: dict[str, str], hint: str) -> None:
        assert hint in problem(security_protocol="SSL", **keys)

    @pytest.mark.parametrize(
        ("keys", "hint"),
        [
            (
                {"ssl_truststore_location": "ca.p12", "ssl_truststore_password": "guess"},
                "ssl.truststore.password: the password of the store is wrong",
            ),
            (
                {"ssl_truststore_location": "ca.p12"},
                "ssl.truststore.password: the password of the store is not given",
            ),
            (
                {"ssl_keystore_location": "me.p12", "ssl_keystore_password": "guess"},
                "ssl.keystore.password: the password of the store is wrong",
            ),
            (
                {"ssl_keystore_location": "me.p12"},
                "ssl.keystore.password: not set, but needed to open",
            ),
            (
                {"ssl_keystore_location": "ca.p12", "ssl_keystore_password": "secret"},
                "it contains no private key",
            ),
            (
                {"ssl_keystore_type": "PEM", "ssl_keystore_location": "me-locked.pem"},
                "ssl.key.password: the password of the key is not given",
            ),
            (
                {
                    "ssl_keystore_type": "PEM",
                    "ssl_keystore_location": "me-locked.pem",
                    "ssl_key_password": "guess",
                },
                "ssl.key.password: the password of the key is wrong",
            ),
            ({"ssl_truststore_location": "ca.pem"}, "set the store's type to PEM"),
            (
                {
                    "ssl_truststore_type": "PEM",
                    "ssl_truststore_location": "ca.pem",
                    "ssl_truststore_password": "guess",
                },
                "ssl.truststore.password: cannot be combined with ssl.truststore.type=PEM",
            ),
        ],
    )
    def test_refused_files(self, stores: Path, keys: dict[str, str], hint: str) -> None:
        settings = {
            key: str(stores / value) if key.endswith("location") else value
            for key, value in keys.items()
        }
        text = problem(security_protocol="SSL", **settings)
        assert hint in text
        assert "guess" not in text


class TestPasswords:
    @pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
    @pytest.mark.parametrize("module", [PLAIN_MODULE, SCRAM_MODULE])
    def test_user_and_password(self, mechanism: str, module: str) -> None:
        settings = sasl(mechanism, f'{module} required username="a,b" password="c=d;";')
        assert (settings.username, settings.password) == ("a,b", "c=d;")
        assert settings.sasl_mechanism == mechanism
        assert not settings.is_delegation_token

    def test_delegation_token(self) -> None:
        settings = sasl(
            "SCRAM-SHA-256", f'{SCRAM_MODULE} required username=i password=h tokenauth="true";'
        )
        assert settings.is_delegation_token

    @pytest.mark.parametrize(
        ("mechanism", "jaas", "hint"),
        [
            ("GSSAPI", "", "sasl.mechanism: 'GSSAPI' is not supported: write one of PLAIN"),
            ("", "", "not set, which means GSSAPI"),
            (
                "PLAIN",
                "",
                f"sasl.jaas.config: not set, and SASL_SSL needs it: write {PLAIN_MODULE}",
            ),
            ("PLAIN", f"{PLAIN_MODULE} required password=hunter2;", "has no username"),
            ("PLAIN", f"{PLAIN_MODULE} required username=u;", "has no password"),
            ("PLAIN", f'{PLAIN_MODULE} required username=u password="";', "has no password"),
            ("PLAIN", f"{PLAIN_MODULE} required username=u password=hunter2", "end with ';'"),
            (
                "PLAIN",
                f'{PLAIN_MODULE} required username=u password="hunter2\\0";',
                "contains a NUL",
            ),
            (
                "SCRAM-SHA-512",
                f"{OAUTH_MODULE} required password=hunter2;",
                "OAuthBearerLoginModule is not for SCRAM-SHA-512",
            ),
            ("PLAIN", "com.acme.Login required password=hunter2;", "com.acme.Login is not for"),
            ("OAUTHBEARER", f"{PLAIN_MODULE} required;", "is not for OAUTHBEARER"),
        ],
    )
    def test_refused(self, mechanism: str, jaas: str, hint: str) -> None:
        text = sasl_problem(mechanism, jaas)
        assert hint in text
        assert "hunter2" not in text

    def test_own_java_classes_are_refused(self) -> None:
        jaas = f"{PLAIN_MODULE} required username=u password=p;"
        for key in ("login_callback_handler_class", "client_callback_handler_class", "login_class"):
            text = sasl_problem("PLAIN", jaas, **{f"sasl_{key}": "com.acme.Mine"})
            assert f"sasl.{key.replace('_', '.')}: com.acme.Mine: Java code" in text


class TestOAuth:
    ENDPOINT = "https://login.example.org/token"

    def oauth(self, options: str, **others: str) -> OAuthSettings:
        found = sasl("OAUTHBEARER", f"{OAUTH_MODULE} required {options};", **others).oauth
        assert found is not None
        return found

    def test_unsecured(self) -> None:
        oauth = self.oauth(
            'unsecuredLoginStringClaim_sub="alice" unsecuredLoginNumberClaim_n="5" '
            'unsecuredLoginListClaim_scope=",a,b" unsecuredLoginExtension_team="x y" '
            'unsecuredLoginLifetimeSeconds="60"'
        )
        assert json.loads(oauth.unsecured_claims or "") == {
            "sub": "alice",
            "n": 5.0,
            "scope": ["a", "b"],
        }
        assert oauth.unsecured_lifetime_s == 60
        assert oauth.extensions == (("team", "x y"),)

    def test_endpoint_with_jaas_options(self) -> None:
        oauth = self.oauth(
            'clientId="me" clientSecret="hunter2" scope="s" extension_team="x"',
            sasl_oauthbearer_token_endpoint_url=self.ENDPOINT,
            sasl_login_callback_handler_class=f"{HANDLERS}.OAuthBearerLoginCallbackHandler",
            sasl_oauthbearer_header_urlencode="true",
        )
        assert oauth == OAuthSettings(
            token_endpoint_url=self.ENDPOINT,
            client_id="me",
            client_secret="hunter2",
            scope="s",
            is_header_urlencoded=True,
            extensions=(("team", "x"),),
        )

    def strimzi(self, options: str, **others: str) -> dict[str, Any]:
        return {
            "mechanism": "OAUTHBEARER",
            "jaas": f"{OAUTH_MODULE} required {options};",
            "sasl.login.callback.handler.class": STRIMZI_HANDLER,
            **others,
        }

    def test_options_of_strimzis_handler(self, stores: Path) -> None:
        options = (
            f'oauth.token.endpoint.uri="{self.ENDPOINT}" oauth.client.id="me" oauth.scope="s" '
            'oauth.client.secret="hunter2" oauth.sasl.extension.team="x" '
            f'oauth.ssl.truststore.location="{stores / "ca.pem"}" '
            'oauth.ssl.truststore.type="PEM" oauth.http.retries="3"'
        )
        found = sasl(**self.strimzi(options)).oauth
        assert found == OAuthSettings(
            token_endpoint_url=self.ENDPOINT,
            client_id="me",
            client_secret="hunter2",
            scope="s",
            endpoint_ca_pem=shared_authority().pem,
            extensions=(("team", "x"),),
        )

    def test_keys_of_kafkas_handler_are_not_read_by_strimzis(self) -> None:
        options = (
            f'oauth.token.endpoint.uri="{self.ENDPOINT}" oauth.client.id="me" '
            'oauth.client.secret="hunter2"'
        )
        others = {
            "sasl.oauthbearer.token.endpoint.url": "https://other.example/token",
            "sasl.oauthbearer.scope": "wide",
        }
        found = sasl(**self.strimzi(options, **others)).oauth
        assert found is not None
        assert (found.token_endpoint_url, found.scope) == (self.ENDPOINT, None)

    @pytest.mark.parametrize(
        ("options", "expected"),
        [
            ('oauth.client.id="me"', "oauth.token.endpoint.uri: not set: requests with client"),
            (
                'oauth.token.endpoint.uri="https://id.example/t" oauth.client.id="me"',
                "oauth.client.secret: not set",
            ),
            (
                'oauth.refresh.token="hunter2"',
                "oauth.refresh.token: not supported, because only client credentials are: remove",
            ),
            (
                'oauth.token.endpoint.uri="https://id.example/t" oauth.client.id="me" '
                'oauth.client.secret="hunter2" '
                'oauth.ssl.endpoint.identification.algorithm=""',
                "oauth.ssl.endpoint.identification.algorithm: host names are always checked",
            ),
        ],
    )
    def test_options_that_strimzis_handler_cannot_have(self, options: str, expected: str) -> None:
        message = sasl_problem(**self.strimzi(options))
        assert message.startswith(f"sasl.jaas.config: {expected}")
        assert "hunter2" not in message

    @pytest.mark.parametrize("shaded", ["", "kafkashaded."])
    def test_classes_of_databricks(self, shaded: str) -> None:
        """In Databricks' clients, class names have a prefix. They must be accepted like Kafka's own
        classes.
        """
        password = 'username="u" password="p";'
        for mechanism, module in (("PLAIN", PLAIN_MODULE), ("SCRAM-SHA-512", SCRAM_MODULE)):
            found = sasl(mechanism, f"{shaded}{module} required {password}")
            assert (found.username, found.password) == ("u", "p")
        found = sasl(
            "OAUTHBEARER",
            f'{shaded}{OAUTH_MODULE} required clientId="me" clientSecret="hunter2";',
            sasl_oauthbearer_token_endpoint_url=self.ENDPOINT,
            sasl_login_callback_handler_class=(
                f"{shaded}{HANDLERS}.secured.OAuthBearerLoginCallbackHandler"
            ),
            sasl_login_class=f"{shaded}{HANDLERS}.internals.OAuthBearerRefreshingLogin",
        )
        assert found.oauth is not None
        assert found.oauth.client_id == "me"

    def test_newer_keys_take_precedence_over_jaas_options(self) -> None:
        oauth = self.oauth(
            'clientId="old" clientSecret="old" scope="old"',
            **{
                "sasl.oauthbearer.token.endpoint.url": self.ENDPOINT,
                "sasl.oauthbearer.client.credentials.client.id": "new",
                "sasl.oauthbearer.client.credentials.client.secret": "newer",
                "sasl.oauthbearer.scope": "wide",
                "sasl.login.refresh.window.factor": "0.6",
                "sasl.login.read.timeout.ms": "500",
            },
        )
        assert (oauth.client_id, oauth.client_secret, oauth.scope) == ("new", "newer", "wide")
        assert (oauth.refresh_share, oauth.timeout_ms) == (0.6, 500)

    def test_token_in_a_file_is_read_once(self, tmp_path: Path) -> None:
        (tmp_path / "token").write_text("a.b.c\n")
        oauth = self.oauth("", sasl_oauthbearer_token_endpoint_url=f"file://{tmp_path}/token")
        (tmp_path / "token").unlink()
        assert oauth.fixed_token == "a.b.c"

    def test_trust_for_the_endpoint_comes_from_the_login_module(self, stores: Path) -> None:
        oauth = self.oauth(
            f'clientId="me" clientSecret="x" ssl.truststore.type="PEM" '
            f'ssl.truststore.location="{stores}/ca.pem"',
            sasl_oauthbearer_token_endpoint_url=self.ENDPOINT,
        )
        assert oauth.endpoint_ca_pem == shared_authority().pem

    @pytest.mark.parametrize(
        ("options", "keys", "hint"),
        [
            ("", {}, "sasl.oauthbearer.token.endpoint.url: not set"),
            ('clientId="me"', {"url": ENDPOINT}, "client.secret: neither set here nor as client"),
            ("", {"url": "ftp://x/"}, "must be an https, http or file address"),
            ("", {"url": "https://u:hunter2@x/"}, "without user name"),
            ("", {"url": "http://[::1"}, "its value is not an address"),
            ("", {"url": "file:///no/file"}, "/no/file cannot be read"),
            ("unsecuredLoginStringClaim_x=y", {}, "unsecuredLoginStringClaim_sub: not set"),
            (
                'unsecuredLoginStringClaim_sub=y unsecuredLoginNumberClaim_n="hunter2"',
                {},
                "unsecuredLoginNumberClaim_n: its value is not a number",
            ),
            (
                "unsecuredLoginStringClaim_sub=y unsecuredLoginExtension_auth=z",
                {},
                "unsecuredLoginExtension_auth: an extension's name",
            ),
            (
                'clientId="me" clientSecret="hunter2" extension_x="é"',
                {"url": ENDPOINT},
                "extension_x: an extension's value",
            ),
        ],
    )
    def test_refused(self, options: str, keys: dict[str, str], hint: str) -> None:
        named = {f"sasl_oauthbearer_token_endpoint_{key}": value for key, value in keys.items()}
        text = sasl_problem("OAUTHBEARER", f"{OAUTH_MODULE} required {options};", **named)
        assert hint in text
        assert "hunter2" not in text

    def test_other_retrievers_are_refused(self) -> None:
        text = sasl_problem(
            "OAUTHBEARER",
            f"{OAUTH_MODULE} required;",
            sasl_oauthbearer_jwt_retriever_class=f"{HANDLERS}.JwtBearerJwtRetriever",
        )
        assert "JwtBearerJwtRetriever: not supported" in text


def _everything() -> SecuritySettings:
    return SecuritySettings(
        protocol="SASL_SSL",
        ca_pem=shared_authority().pem,
        certificate_chain_pem=shared_authority().pem,
        private_key_pem="hunter2-key",
        check_hostname=False,
        cipher_suites=("a", "b"),
        sasl_mechanism="OAUTHBEARER",
        username="alice",
        password="hunter2",
        oauth=OAuthSettings(
            token_endpoint_url="https://example.org/t",
            client_id="me",
            client_secret="hunter2-secret",
            fixed_token="hunter2-token",
            unsecured_claims='{"sub":"hunter2"}',
            extensions=(("a", "b"),),
        ),
    )


def test_repr_masks_secrets_and_shows_the_rest() -> None:
    text = repr(_everything())
    assert "hunter2" not in text
    assert "alice" in text
    assert "ca_pem=<1 certificates>" in text
    assert "password=***" in text
    assert repr(SecuritySettings()) == "SecuritySettings()"


def test_errors_with_settings_in_their_text_show_no_secret() -> None:
    assert "hunter2" not in f"{_everything()} {[_everything()]} { ({'x': _everything()})!r}"


def test_settings_can_be_sent_as_json() -> None:
    codec = MessageCodec([Renewed])
    sent = Renewed(source=_everything(), target=SecuritySettings())
    assert codec.decode(codec.encode(sent)) == sent


def test_is_made_of_plain_values_only() -> None:
    def check(value: Any) -> None:
        if isinstance(value, dict):
            for each in value.values():
                check(each)
        elif isinstance(value, (list, tuple)):
            for each in value:
                check(each)
        else:
            assert value is None or isinstance(value, (str, int, float, bool))

    check(dataclasses.asdict(_everything()))
