"""Group messages that the client library lacks: those of KIP-848 and KIP-932. Their schemas are the
JSON files in this folder, in the format of the library and of Kafka.
"""

from __future__ import annotations

import sys
from typing import Any, Final

from kafka.protocol.api_message import ApiMessage


def _message(name: str) -> Any:
    """Return the class that the library creates from `name.json` in this folder."""
    return type(ApiMessage)(name, (ApiMessage,), {}, load_json=sys.modules[__name__])


DescribeShareGroupOffsetsRequest: Final = _message("DescribeShareGroupOffsetsRequest")
AlterShareGroupOffsetsRequest: Final = _message("AlterShareGroupOffsetsRequest")
ConsumerGroupDescribeRequest: Final = _message("ConsumerGroupDescribeRequest")
ShareGroupDescribeRequest: Final = _message("ShareGroupDescribeRequest")

# the library finds a response class by its number, but references it weakly
_ANSWERS: Final = (
    _message("DescribeShareGroupOffsetsResponse"),
    _message("AlterShareGroupOffsetsResponse"),
    _message("ConsumerGroupDescribeResponse"),
    _message("ShareGroupDescribeResponse"),
)
