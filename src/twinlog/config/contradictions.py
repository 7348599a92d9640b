"""Settings of one flow that cannot both be meant: MirrorMaker 2 does not start with them either."""

from __future__ import annotations

from twinlog.config.client_keys import ISOLATION_LEVEL
from twinlog.config.origin import ClientProperties, Settings, refuse
from twinlog.config.values import to_boolean, trimmed

_EMITS_SYNCS = "emit.offset-syncs.enabled"
_SYNCS_PREFIXES = ("offset-syncs-", "offset-syncs.topic.")
"""As MirrorSourceConfig.validate has them (KIP-1031)."""

_EXACTLY_ONCE = "exactly.once.support"


def refuse_contradictions(settings: Settings, consumer: ClientProperties) -> None:
    """Raises ConfigError for the line that asks for what another line turns off."""
    emits = settings.get(_EMITS_SYNCS)
    if emits is not None and not to_boolean(emits):
        for name, setting in settings.items():
            if name.startswith(_SYNCS_PREFIXES):
                raise refuse(
                    setting,
                    f"there is no offset-syncs topic: {emits.key} is false ({emits.place})",
                    "remove one of the two lines",
                )
    wanted = settings.get(_EXACTLY_ONCE)
    reads_all = (
        ISOLATION_LEVEL in consumer and trimmed(consumer[ISOLATION_LEVEL]) == "read_uncommitted"
    )
    if wanted is not None and trimmed(wanted.value).lower() == "required" and reads_all:
        isolation = consumer.origin(ISOLATION_LEVEL)
        raise refuse(
            wanted,
            f"what was rolled back would be copied: {isolation.key} is read_uncommitted "
            f"({isolation.place})",
            "remove one of the two lines",
        )
