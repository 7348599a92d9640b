"""Config providers: `${name:path:key}` is resolved from a file, a folder or the environment.

As in Kafka, a provider works only if `config.providers` names it and its class is set. A variable
that no provider can resolve stays in the text. Resolved values are not searched for variables
again.

`A.config.providers` and `A->B.config.providers` also name providers, for all keys. If a name is
used with several prefixes, a key uses the provider of its own prefix, else the one without a
prefix.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from twinlog.config.files.properties import parse_properties
from twinlog.config.keys.client_keys import class_name
from twinlog.config.regex.patterns import compile_java
from twinlog.config.regex.reader import RegexProblem
from twinlog.config.values.origin import LookedUp, Setting, Settings, refuse
from twinlog.config.values.types import to_list

VARIABLE = re.compile(r"\$\{([^}]*?):(([^}]*?):)?([^}]*?)\}")
PROVIDERS = "config.providers"
PACKAGE = "org.apache.kafka.common.config.provider."

Found = tuple[str, str | None]
"""A value, and the file that contains it, or None if no file is read."""
Provider = Callable[[str, str], Found | None]
"""Looks up the value for a path and a key. Returns None if there is none."""


def resolve_providers(raw: Settings, environment: Mapping[str, str]) -> Settings:
    """Return all settings, with their variables replaced by values."""
    scopes = {
        prefix: _providers_of(raw, prefix, environment) for prefix in reversed(provider_scopes(raw))
    }
    providers = {
        name: provider
        for scope_settings in scopes.values()
        for name, provider in scope_settings.items()
    }
    providers |= scopes.get("", {})
    if not providers:
        return raw
    out = {}
    for key, setting in raw.items():
        own = max((scope for scope in scopes if key.startswith(scope)), key=len, default="")
        out[key] = _resolved(setting, providers | scopes.get(own, {}))
    return Settings(out)


def provider_key(key: str) -> bool:
    """Return True if a key names or configures a config provider."""
    return f".{PROVIDERS}." in f".{key}."


def provider_scopes(settings: Mapping[str, Setting]) -> list[str]:
    """Return the prefix of each `config.providers` key: an empty text, `A.` or `A->B.`."""
    return [key.removesuffix(PROVIDERS) for key in settings if f".{key}".endswith(f".{PROVIDERS}")]


def _providers_of(
    raw: Settings, prefix: str, environment: Mapping[str, str]
) -> dict[str, Provider]:
    named = raw.get(prefix + PROVIDERS)
    lookups: dict[str, Provider] = {}
    for name in to_list(named) if named else ():
        own = f"{prefix}{PROVIDERS}.{name}."
        kind = raw.get(f"{own}class")
        if kind is None:
            continue
        params = {key: s.value for key, s in raw.stripped(f"{own}param.").items()}
        lookups[name] = _lookup(kind, params, environment)
    return lookups


def _lookup(kind: Setting, params: Mapping[str, str], environment: Mapping[str, str]) -> Provider:
    match class_name(kind.value).removeprefix(PACKAGE):
        case "EnvVarConfigProvider":
            return _environment_lookup(kind, params, environment)
        case "FileConfigProvider":
            return partial(_look_up_in_file, _allowed(params))
        case "DirectoryConfigProvider":
            return partial(_look_up_in_folder, _allowed(params))
    raise refuse(
        kind,
        f"the config provider {kind.shown} is not supported",
        f"use File-, Directory- or EnvVarConfigProvider of {PACKAGE[:-1]}",
    )


def _resolved(setting: Setting, providers: Mapping[str, Provider]) -> Setting:
    files: list[str | None] = []

    def value_of(variable: re.Match[str]) -> str:
        provider = providers.get(variable[1])
        try:
            found = provider(variable[3] or "", variable[4]) if provider else None
        except (OSError, ValueError) as error:  # ValueError: no UTF-8, or a path with a NUL
            raise refuse(
                setting,
                f"{variable[0]} cannot be read: {getattr(error, 'strerror', None) or error}",
                "check path and permissions",
            ) from error
        if found is None:
            return variable[0]
        files.append(found[1])
        return found[0]

    value = VARIABLE.sub(value_of, setting.value)
    if not files:
        return setting
    looked_up = LookedUp(
        files=tuple(dict.fromkeys(filter(None, files))),
        again=lambda: _resolved(setting, providers).value,
    )
    return replace(setting, value=value, from_provider=True, looked_up=looked_up)


def _environment_lookup(
    kind: Setting, params: Mapping[str, str], environment: Mapping[str, str]
) -> Provider:
    pattern = params.get("allowlist.pattern")
    try:
        allowed = compile_java(pattern) if pattern else None
    except RegexProblem as problem:
        raise refuse(
            kind, f"its allowlist.pattern is invalid: {problem.reason}", "correct it"
        ) from problem

    def look_up(path: str, key: str) -> Found | None:
        # as in Kafka, a variable with a path is not resolved
        if path or (allowed and not allowed.fullmatch(key)) or key not in environment:
            return None
        return environment[key], None

    return look_up


def _look_up_in_file(allowed: Callable[[Path], bool], path: str, key: str) -> Found | None:
    if not path or not allowed(Path(path)):
        return None
    # unlike the configuration file, this file is read as UTF-8
    text = Path(path).read_text(encoding="utf-8")
    setting = parse_properties(text, file=path).settings.get(key)
    return None if setting is None else (setting.value, path)


def _look_up_in_folder(allowed: Callable[[Path], bool], path: str, key: str) -> Found | None:
    file = Path(path) / key
    if not path or not allowed(Path(path)) or "/" in key or not file.is_file():
        return None
    return file.read_text(encoding="utf-8"), str(file)


def _allowed(params: Mapping[str, str]) -> Callable[[Path], bool]:
    listed = [
        Path(entry.strip()) for entry in params.get("allowed.paths", "").split(",") if entry.strip()
    ]

    def allowed(path: Path) -> bool:
        # symbolic links are not resolved, because Kubernetes mounts secrets through them
        plain = Path(*[part for part in path.parts if part != "."])
        if not listed:
            return True
        return ".." not in path.parts and any(plain.is_relative_to(entry) for entry in listed)

    return allowed
