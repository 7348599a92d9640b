"""All codes by name."""

from __future__ import annotations

from typing import Final

from twinlog.codes.flow_codes import FLOW_CODES
from twinlog.codes.partition_codes import PARTITION_CODES
from twinlog.codes.process_codes import PROCESS_CODES
from twinlog.codes.warning_codes import WARNING_CODES

CONDITIONS: Final = {
    code: condition
    for table in (PARTITION_CODES, FLOW_CODES, PROCESS_CODES, WARNING_CODES)
    for condition in table
    for code in condition.codes
}
