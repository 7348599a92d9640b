"""Converts a Java client's keys to SecuritySettings: `security.protocol`, `ssl.*`, `sasl.*`.

The rules are Java's, and every error names the key, its location and a valid value. A mechanism or
class that Twinlog does not have is rejected here, before any connection is made.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from twinlog.cluster.security.client_keys import ClientKeys
from twinlog.cluster.security.jaas import BrokenJaas, LoginModule, parse_jaas
from twinlog.cluster.security.oauth_keys import JAAS, LOGIN_HANDLER, load_oauth
from twinlog.cluster.security.renewal import follow
from twinlog.cluster.security.security_settings import (
    MECHANISMS,
    OAUTHBEARER,
    PLAIN,
    PLAINTEXT,
    PROTOCOLS,
    SecuritySettings,
)
from twinlog.cluster.security.tls import check_usable
from twinlog.cluster.security.tls_keys import CIPHERS, KEY_FILE, KEY_TEXT, with_tls
from twinlog.config.keys.client_keys import class_name

PROTOCOL: Final = "security.protocol"
MECHANISM: Final = "sasl.mechanism"
CLIENT_HANDLER: Final = "sasl.client.callback.handler.class"
LOGIN_CLASS: Final = "sasl.login.class"

JAVA_DEFAULT_MECHANISM: Final = "GSSAPI"

# PLAIN and SCRAM find user name and password of either module, as in Java
_PASSWORD_MODULES: Final = frozenset(
    {
        "org.apache.kafka.common.security.plain.PlainLoginModule",
        "org.apache.kafka.common.security.scram.ScramLoginModule",
    }
)
_OAUTH_MODULE: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
_MODULE_FOR: Final = {
    PLAIN: "org.apache.kafka.common.security.plain.PlainLoginModule",
    OAUTHBEARER: _OAUTH_MODULE,
}
_SCRAM_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
_NO_JAVA_CODE: Final = "Java code cannot run here; remove the key"


Files = tuple[tuple[str, str], ...]
"""Key and path of each file."""


def load_security(
    properties: Mapping[str, str],
    *,
    where: str,
    files: Files = (),
    again: Callable[[], Mapping[str, str]] | None = None,
) -> SecuritySettings:
    """Return the settings of one cluster. Every file that they name is read. Raises ConfigError,
    whose message begins with `where`.

    `renewal` then follows these files. It also follows `files`, from which config providers have
    read values of `properties`. If one of them changes, `again` returns the new properties.
    """
    settings = _load(properties, where, files)
    follow(settings, lambda: _load(again() if again else properties, where, files))
    return settings


def is_of_security(key: str) -> bool:
    """Return whether `load_security` reads this client key."""
    return key.startswith(("ssl.", "sasl.", "security."))


def _load(properties: Mapping[str, str], where: str, files: Files) -> SecuritySettings:
    keys = ClientKeys(properties, where=where)
    protocol = (keys.text(PROTOCOL) or PLAINTEXT).upper()
    if protocol not in PROTOCOLS:
        keys.fail(PROTOCOL, f"{protocol!r} is unknown: write one of {', '.join(PROTOCOLS)}")
    settings = SecuritySettings(protocol=protocol)
    if settings.needs_sasl:
        settings = _with_sasl(settings, keys)
    if settings.needs_tls:
        settings = _with_usable_tls(settings, keys)
    return replace(settings, files=tuple(dict.fromkeys((*files, *keys.files))))


def _with_usable_tls(settings: SecuritySettings, keys: ClientKeys) -> SecuritySettings:
    complete = with_tls(settings, keys)
    try:
        check_usable(complete)
    except ssl.SSLError as error:
        key = KEY_TEXT if keys.text(KEY_TEXT) else KEY_FILE if keys.text(KEY_FILE) else CIPHERS
        keys.fail(key, f"OpenSSL rejects it: {error.reason or error}")
    return complete


def _with_sasl(settings: SecuritySettings, keys: ClientKeys) -> SecuritySettings:
    mechanism = _mechanism(keys)
    keys.only_known_class(CLIENT_HANDLER, frozenset({"SaslClientCallbackHandler"}), _NO_JAVA_CODE)
    keys.only_known_class(
        LOGIN_CLASS, frozenset({"DefaultLogin", "OAuthBearerRefreshingLogin"}), _NO_JAVA_CODE
    )
    text = keys.text(JAAS)
    if text is None:
        keys.fail(JAAS, f"not set, and {settings.protocol} needs it: {_example(mechanism)}")
    try:
        module = parse_jaas(text)
    except BrokenJaas as error:
        keys.fail(JAAS, str(error))
    options = dict(module.options)
    if mechanism == OAUTHBEARER:
        _expect_module(keys, module, frozenset({_OAUTH_MODULE}), mechanism)
        return replace(settings, sasl_mechanism=mechanism, oauth=load_oauth(keys, options))
    _expect_module(keys, module, _PASSWORD_MODULES, mechanism)
    keys.only_known_class(LOGIN_HANDLER, frozenset({"DefaultLoginCallbackHandler"}), _NO_JAVA_CODE)
    username, password = options.get("username", ""), options.get("password", "")
    for name, value in (("username", username), ("password", password)):
        if not value:
            keys.fail(JAAS, f"has no {name}, but {mechanism} needs one: {_example(mechanism)}")
        if "\0" in value:
            keys.fail(JAAS, f"its {name} contains a NUL character, which no mechanism can carry")
    return replace(
        settings,
        sasl_mechanism=mechanism,
        username=username,
        password=password,
        is_delegation_token=options.get("tokenauth", "").lower() == "true",
    )


def _mechanism(keys: ClientKeys) -> str:
    mechanism = keys.text(MECHANISM)
    supported = ", ".join(MECHANISMS)
    if mechanism is None:
        keys.fail(
            MECHANISM,
            f"not set, which means {JAVA_DEFAULT_MECHANISM} (Kerberos), which Twinlog does not "
            f"support: write one of {supported}",
        )
    if mechanism not in MECHANISMS:
        keys.fail(MECHANISM, f"{mechanism!r} is not supported: write one of {supported}")
    return mechanism


def _expect_module(
    keys: ClientKeys, module: LoginModule, known: frozenset[str], mechanism: str
) -> None:
    if class_name(module.name) not in known:
        keys.fail(JAAS, f"{module.name} is not for {mechanism}: {_example(mechanism)}")


def _example(mechanism: str) -> str:
    name = _MODULE_FOR.get(mechanism, _SCRAM_MODULE)
    options = 'clientId="..." clientSecret="..."'
    if mechanism != OAUTHBEARER:
        options = 'username="..." password="..."'
    return f"write {name} required {options};"
