"""Group messages that the client library lacks, those of KIP-848 and KIP-932: their schemas are
beside this file, in the library's format, as brokers define them.
"""

from __future__ import annotations

import sys
from typing import Any, Final

from kafka.protocol.api_message import ApiMessage

__all__ = [
    "AlterShareGroupOffsetsRequest",
    "ConsumerGroupDescribeRequest",
    "DescribeShareGroupOffsetsRequest",
    "ShareGroupDescribeRequest",
]


def _message(name: str) -> Any:
    """Let the library create a class from `name.json` in this package."""
    return type(ApiMessage)(name, (ApiMessage,), {}, load_json=sys.modules[__name__])


DescribeShareGroupOffsetsRequest: Final = _message("DescribeShareGroupOffsetsRequest")
AlterShareGroupOffsetsRequest: Final = _message("AlterShareGroupOffsetsRequest")
ConsumerGroupDescribeRequest: Final = _message("ConsumerGroupDescribeRequest")
ShareGroupDescribeRequest: Final = _message("ShareGroupDescribeRequest")

# the library finds a response class by number and references it weakly, so it must be kept here
_ANSWERS: Final = (
    _message("DescribeShareGroupOffsetsResponse"),
    _message("AlterShareGroupOffsetsResponse"),
    _message("ConsumerGroupDescribeResponse"),
    _message("ShareGroupDescribeResponse"),
)
