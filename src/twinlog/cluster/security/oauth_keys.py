"""Reads the keys about the source of OAUTHBEARER tokens: `sasl.oauthbearer.*` and JAAS options.

There are three sources, as in Java: a token endpoint with client credentials, a file with a token,
or, for tests, unsigned tokens from the `unsecuredLogin...` options. Kafka's newer keys (KIP-1139)
take precedence over the JAAS options that they replace. The options of Strimzi's login handler are
translated to those of Kafka's handler.
"""

from __future__ import annotations

import json
import os
import re
import urllib.parse
from typing import Final

from twinlog.cluster.security.client_keys import ClientKeys
from twinlog.cluster.security.security_settings import OAuthSettings
from twinlog.cluster.security.tls_keys import (
    ENDPOINT_ALGORITHM,
    TRUST_FILE,
    TRUST_PASSWORD,
    TRUST_TEXT,
    TRUST_TYPE,
    load_trust,
)
from twinlog.config.keys.client_keys import class_name

ENDPOINT: Final = "sasl.oauthbearer.token.endpoint.url"
CLIENT_ID: Final = "sasl.oauthbearer.client.credentials.client.id"
CLIENT_SECRET: Final = "sasl.oauthbearer.client.credentials.client.secret"  # noqa: S105 - a key's name
SCOPE: Final = "sasl.oauthbearer.scope"
URLENCODE: Final = "sasl.oauthbearer.header.urlencode"
RETRIEVER: Final = "sasl.oauthbearer.jwt.retriever.class"
LOGIN_HANDLER: Final = "sasl.login.callback.handler.class"
REFRESH: Final = "sasl.login.refresh.window.factor"
READ_TIMEOUT: Final = "sasl.login.read.timeout.ms"
JAAS: Final = "sasl.jaas.config"

ALLOWED_URLS: Final = "TWINLOG_SASL_OAUTHBEARER_ALLOWED_URLS"
"""An environment variable with the permitted endpoints, like Java's system property
`org.apache.kafka.sasl.oauthbearer.allowed.urls`. It is no key of the file, so that only the user
who starts the process can permit an endpoint.
"""

KAFKA_HANDLER: Final = "OAuthBearerLoginCallbackHandler"
UNSECURED_HANDLER: Final = "OAuthBearerUnsecuredLoginCallbackHandler"
LOGIN_HANDLERS: Final = frozenset({KAFKA_HANDLER, UNSECURED_HANDLER})
RETRIEVERS: Final = frozenset(
    {"DefaultJwtRetriever", "ClientCredentialsJwtRetriever", "FileJwtRetriever"}
)

_STRIMZI_HANDLER: Final = "io.strimzi.kafka.oauth.client.JaasClientOauthLoginCallbackHandler"
_STRIMZI_NEEDS: Final = {
    "oauth.token.endpoint.uri": ENDPOINT,
    "oauth.client.id": CLIENT_ID,
    "oauth.client.secret": CLIENT_SECRET,
}
_STRIMZI_OPTIONS: Final = {
    **_STRIMZI_NEEDS,
    "oauth.scope": SCOPE,
    **{
        f"oauth.{key}": key
        for key in (TRUST_FILE, TRUST_PASSWORD, TRUST_TYPE, TRUST_TEXT, ENDPOINT_ALGORITHM)
    },
}
_STRIMZI_EXTENSION: Final = "oauth.sasl.extension."
_STRIMZI_IDLE: Final = frozenset(
    {
        "oauth.access.token.is.jwt",
        "oauth.check.access.token.type",
        "oauth.config.id",
        "oauth.connect.timeout.seconds",
        "oauth.enable.metrics",
        "oauth.fallback.username.claim",
        "oauth.fallback.username.prefix",
        "oauth.http.retries",
        "oauth.http.retry.pause.millis",
        "oauth.include.accept.header",
        "oauth.max.token.expiry.seconds",
        "oauth.read.timeout.seconds",
        "oauth.username.claim",
    }
)
"""Options of Strimzi's handler that affect neither the token nor the request for it. Ignored."""

_STRING: Final = "unsecuredLoginStringClaim_"
_NUMBER: Final = "unsecuredLoginNumberClaim_"
_LIST: Final = "unsecuredLoginListClaim_"
_UNSECURED_EXTENSION: Final = "unsecuredLoginExtension_"
_EXTENSION: Final = "extension_"
_LIFETIME: Final = "unsecuredLoginLifetimeSeconds"
_PRINCIPAL: Final = "unsecuredLoginPrincipalClaimName"
_MAX_LIFETIME_S: Final = 10 * 365 * 24 * 3_600

_EXTENSION_NAME: Final = re.compile(r"[A-Za-z]+")
_EXTENSION_VALUE: Final = re.compile(r"[\x21-\x7e \t\r\n]+")
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")


def load_oauth(keys: ClientKeys, options: dict[str, str]) -> OAuthSettings:
    """Return the OAUTHBEARER settings. `options`: the options of the login module. Raises
    ConfigError.
    """
    if class_name(keys.text(LOGIN_HANDLER) or "") == _STRIMZI_HANDLER:
        keys, options = _from_strimzi(keys, options)
    handler = keys.only_known_class(
        LOGIN_HANDLER, LOGIN_HANDLERS, "Java code cannot run here; use Kafka's own handler"
    )
    jaas = keys.inside(JAAS, options)
    is_unsecured = any(name.startswith("unsecuredLogin") for name in options)
    if handler == UNSECURED_HANDLER or (keys.text(ENDPOINT) is None and is_unsecured):
        return _unsecured(jaas, options)
    keys.only_known_class(
        RETRIEVER, RETRIEVERS, "not supported: use client credentials or a file with a token"
    )
    url = keys.text(ENDPOINT)
    if url is None:
        keys.fail(ENDPOINT, "not set: OAUTHBEARER needs the address of the token endpoint")
    allowed = os.environ.get(ALLOWED_URLS)
    if allowed is not None and url not in [each.strip() for each in allowed.split(",")]:
        keys.fail(ENDPOINT, f"the environment variable {ALLOWED_URLS} lacks this address: add it")
    extensions = _extensions(jaas, options, _EXTENSION)
    try:
        parts = urllib.parse.urlsplit(url)
    except ValueError:
        keys.fail(ENDPOINT, "its value is not an address")
    if parts.scheme == "file":
        return OAuthSettings(fixed_token=_token_in_file(keys, parts.path), extensions=extensions)
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        keys.fail(ENDPOINT, "its value must be an https, http or file address without user name")
    return OAuthSettings(
        token_endpoint_url=url,
        client_id=_required(keys, jaas, CLIENT_ID, "clientId"),
        client_secret=_required(keys, jaas, CLIENT_SECRET, "clientSecret"),
        scope=keys.text(SCOPE) or jaas.text("scope"),
        is_header_urlencoded=keys.flag(URLENCODE),
        endpoint_ca_pem=load_trust(jaas),
        timeout_ms=int(keys.number(READ_TIMEOUT, 10_000, least=1, most=600_000)),
        refresh_share=keys.number(REFRESH, 0.8, least=0.5, most=1.0),
        extensions=extensions,
    )


def _from_strimzi(keys: ClientKeys, options: dict[str, str]) -> tuple[ClientKeys, dict[str, str]]:
    """Translate options of Strimzi's handler to the keys and options of Kafka's own handler."""
    jaas = keys.inside(JAAS, options)
    options_found: dict[str, str] = {}
    extensions: dict[str, str] = {}
    for name, value in options.items():
        if name in _STRIMZI_OPTIONS:
            options_found[_STRIMZI_OPTIONS[name]] = value
        elif name.startswith(_STRIMZI_EXTENSION):
            extensions[_EXTENSION + name.removeprefix(_STRIMZI_EXTENSION)] = value
        elif name.startswith("oauth.") and name not in _STRIMZI_IDLE:
            jaas.fail(name, "not supported, because only client credentials are: remove the option")
    for name, key in _STRIMZI_NEEDS.items():
        if not options_found.get(key):
            jaas.fail(name, "not set: requests with client credentials need it")
    if not options_found.pop(ENDPOINT_ALGORITHM, "https").strip():
        jaas.fail(f"oauth.{ENDPOINT_ALGORITHM}", "host names are always checked; remove the option")
    trust = {key: options_found.pop(key) for key in list(options_found) if key.startswith("ssl.")}
    handler = f"org.apache.kafka.common.security.oauthbearer.{KAFKA_HANDLER}"
    translated = {SCOPE: "", RETRIEVER: "", **options_found, LOGIN_HANDLER: handler}
    return keys.replaced(translated), {**trust, **extensions}


def _required(keys: ClientKeys, jaas: ClientKeys, key: str, option: str) -> str:
    value = keys.raw(key) or jaas.raw(option)
    if not value:
        keys.fail(key, f"neither set here nor as {option} in {JAAS}: the token endpoint needs it")
    return value


def _token_in_file(keys: ClientKeys, path: str) -> str:
    # the driver reads the file, because a lane may run on a machine without it
    text = keys.read_path(ENDPOINT, urllib.parse.unquote(path)).decode("utf-8", "replace").strip()
    if not _TOKEN.fullmatch(text):
        keys.fail(ENDPOINT, f"{path} does not contain a token")
    return text


def _unsecured(jaas: ClientKeys, options: dict[str, str]) -> OAuthSettings:
    claims: dict[str, object] = {}
    for name, value in options.items():
        if name.startswith(_STRING):
            claims[name.removeprefix(_STRING)] = value
        elif name.startswith(_NUMBER):
            claims[name.removeprefix(_NUMBER)] = _number(jaas, name, value)
        elif name.startswith(_LIST):
            # the value is a list such as "|a|b", whose first character is the separator
            claims[name.removeprefix(_LIST)] = value[1:].split(value[0]) if value else []
    principal = jaas.text(_PRINCIPAL) or "sub"
    if not claims.get(principal):
        jaas.fail(_STRING + principal, "not set: the token needs a principal")
    return OAuthSettings(
        unsecured_claims=json.dumps(claims, sort_keys=True),
        unsecured_lifetime_s=int(jaas.number(_LIFETIME, 3_600, least=1, most=_MAX_LIFETIME_S)),
        extensions=_extensions(jaas, options, _UNSECURED_EXTENSION),
    )


def _number(jaas: ClientKeys, name: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        jaas.fail(name, "its value is not a number")


def _extensions(
    jaas: ClientKeys, options: dict[str, str], prefix: str
) -> tuple[tuple[str, str], ...]:
    """Return the SASL extensions (RFC 7628): names and values to send together with the token."""
    extensions = []
    for option in sorted(options):
        if not option.startswith(prefix):
            continue
        name, value = option.removeprefix(prefix), options[option]
        if not _EXTENSION_NAME.fullmatch(name) or name == "auth":
            jaas.fail(option, "an extension's name must have letters only, and must not be 'auth'")
        if not _EXTENSION_VALUE.fullmatch(value):
            jaas.fail(option, "an extension's value must have printable ASCII characters only")
        extensions.append((name, value))
    return tuple(extensions)
