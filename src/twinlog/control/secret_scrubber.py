"""Takes every secret of a configuration out of a text, whoever put it there.

Nothing of ours writes secrets; this is the second lock of what leaves the house.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Final

from twinlog.config.origin import Setting, is_secret
from twinlog.config.schema import MirrorConfig

HIDDEN: Final = "<hidden>"
NAMED_LIKE_SECRETS: Final = (".type", ".location", ".url", ".algorithm", ".class")
"""`ssl.keystore.type` is `PEM`, which is no secret and in every text."""

SHORTEST: Final = 3
"""What is shorter stands in every text by chance."""

SHORTEST_OF_PROVIDER: Final = 8
"""A config provider returns all kinds of values, ports and names among them."""

_OPTION: Final = re.compile(
    r"""([\w.]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;"']+))"""
)
_USER_INFO: Final = re.compile(r"(?<=://)[^/\s@\"']+(?=@)")
_PEM_KEY: Final = re.compile(
    r"-----BEGIN ([A-Z ]*PRIVATE KEY)-----.*?(?:-----END \1-----|\Z)", re.DOTALL
)


class SecretScrubber:
    """Knows the secrets of one configuration."""

    def __init__(self, settings: Iterable[Setting] = ()) -> None:
        found: set[str] = set()
        for setting in settings:
            found.update(_secrets_of(setting))
        # the longest first: one may be part of another
        alternatives = [re.escape(one) for one in sorted(found, key=len, reverse=True)]
        self._known = re.compile("|".join(alternatives)) if alternatives else None

    def clean(self, text: str) -> str:
        """The text without secrets."""
        text = _PEM_KEY.sub(HIDDEN, text)
        text = _USER_INFO.sub(HIDDEN, text)
        return text if self._known is None else self._known.sub(HIDDEN, text)


def settings_of(config: MirrorConfig) -> Iterator[Setting]:
    """Every setting that reaches anybody."""
    for cluster in config.clusters:
        yield from cluster.settings.values()
    for flow in config.flows:
        yield from flow.settings.values()
        for client in (
            flow.source_consumer,
            flow.source_admin,
            flow.target_admin,
            flow.target_consumer,
            flow.target_producer,
        ):
            yield from (client.origin(key) for key in client)


def _secrets_of(setting: Setting) -> Iterator[str]:
    value = setting.value.strip()
    for found in _USER_INFO.finditer(value):
        password = found[0].partition(":")[2]
        if len(password) >= SHORTEST:
            yield password
    if is_secret(setting.key) and not setting.key.endswith(NAMED_LIKE_SECRETS):
        forms = [value, value.replace("\n", "\\n")]
        # a JAAS line is a module with options; each may turn up alone
        for option in _OPTION.finditer(value):
            if is_secret(option[1]):
                forms += [part for part in option.groups()[1:] if part]
        # a PEM text may turn up line by line
        forms += [line.strip() for line in value.splitlines() if not line.startswith("-----")]
        long = [form for form in forms if len(form) >= SHORTEST]
        yield from long
        yield from (json.dumps(form)[1:-1] for form in long)  # as it stands in JSON
    elif setting.from_provider and len(value) >= SHORTEST_OF_PROVIDER:
        yield value
