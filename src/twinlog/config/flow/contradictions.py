"""Settings of one flow that cannot both be meant: with its own MirrorMaker 2 does not start."""

from __future__ import annotations

from twinlog.config.keys.client_keys import ISOLATION_LEVEL
from twinlog.config.values.origin import ClientProperties, Settings, refuse
from twinlog.config.values.types import to_boolean, trimmed
from twinlog.model import Isolation

_EMITS_SYNCS = "emit.offset-syncs.enabled"
_SYNCS_PREFIXES = ("offset-syncs-", "offset-syncs.topic.")
"""As MirrorSourceConfig.validate has them (KIP-1031)."""

_EXACTLY_ONCE = "exactly.once.support"
_NEW_PARTITIONS = "twinlog.new.topic.partitions"
_PARTITIONS = "twinlog.target.partitions"
_ENFORCES = "twinlog.rpo.enforce"
_RPO = "twinlog.rpo.seconds"
_RENAME = "twinlog.rename"
_ACLS_BY_NAME = ("twinlog.sync.topic.acls.prefixed", "twinlog.sync.topic.acls.removal")


def refuse_contradictions(settings: Settings, consumer: ClientProperties) -> None:
    """Raises ConfigError for the line that asks for what another line turns off."""
    emits = settings.get(_EMITS_SYNCS)
    if emits is not None and not to_boolean(emits):
        for name, setting in settings.items():
            if name.startswith(_SYNCS_PREFIXES):
                raise refuse(
                    setting,
                    f"there is no offset-syncs topic: {emits.key} is false ({emits.location})",
                    "remove one of the two lines",
                )
    renames = settings.get(_RENAME)
    for name in _ACLS_BY_NAME:
        acls = settings.get(name)
        if renames is not None and trimmed(renames.value) and acls and to_boolean(acls):
            raise refuse(
                acls,
                f"which ACLs belong to which remote topic cannot be told by the beginning of a "
                f"name where {renames.key} gives other names ({renames.location})",
                "remove one of the two lines; literal ACLs are copied to the new names",
            )
    fewer = settings.get(_NEW_PARTITIONS)
    kept = settings.get(_PARTITIONS)
    is_keyed = kept is not None and trimmed(kept.value) == "keyed"
    if fewer is not None and trimmed(fewer.value) == "default" and not is_keyed:
        raise refuse(
            fewer,
            "where the target's number of partitions is not the source's, records can only be "
            "placed by key",
            f"add {_PARTITIONS} = keyed, or remove this line",
            lacks=_PARTITIONS,
        )
    enforced = settings.get(_ENFORCES)
    if enforced is not None and trimmed(enforced.value) == "quota" and _RPO not in settings:
        raise refuse(
            enforced,
            f"{_RPO} is not set, so there is nothing to enforce",
            f"add {_RPO} = NUMBER",
            lacks=_RPO,
        )
    wanted = settings.get(_EXACTLY_ONCE)
    reads_all = trimmed(consumer.get(ISOLATION_LEVEL, "")) == Isolation.READ_UNCOMMITTED
    if wanted is not None and trimmed(wanted.value).lower() == "required" and reads_all:
        isolation = consumer.origin(ISOLATION_LEVEL)
        raise refuse(
            wanted,
            f"what was rolled back would be copied: {isolation.key} is read_uncommitted "
            f"({isolation.location})",
            "remove one of the two lines",
        )
