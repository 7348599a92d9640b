"""All codes by name, and lookup by trait."""

from __future__ import annotations

from typing import Final

from twinlog.codes.command_codes import COMMAND_CODES
from twinlog.codes.condition import Condition, Trait
from twinlog.codes.dataframe_codes import DATAFRAME_CODES
from twinlog.codes.flow_codes import FLOW_CODES
from twinlog.codes.log_codes import LOG_CODES
from twinlog.codes.process_codes import PROCESS_CODES
from twinlog.codes.request_codes import REQUEST_CODES
from twinlog.codes.topic_codes import TOPIC_CODES
from twinlog.codes.warning_codes import WARNING_CODES

PARTITION_CODES: Final = LOG_CODES + TOPIC_CODES

CONDITIONS: Final[dict[str, Condition]] = {
    code: condition
    for table in (
        PARTITION_CODES,
        FLOW_CODES,
        PROCESS_CODES,
        COMMAND_CODES,
        DATAFRAME_CODES,
        REQUEST_CODES,
        WARNING_CODES,
    )
    for condition in table
    for code in condition.codes
}

_WITH: Final = {
    trait: frozenset(code for code, row in CONDITIONS.items() if row.has(trait)) for trait in Trait
}


def with_trait(trait: Trait) -> frozenset[str]:
    """Return all codes that have the trait."""
    return _WITH[trait]


def has(code: str, trait: Trait) -> bool:
    """Return True if the code has the trait. An unknown code has none."""
    return code in _WITH[trait]
