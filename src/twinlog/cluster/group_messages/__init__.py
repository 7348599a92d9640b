"""Messages about consumer groups (KIP-848) and share groups (KIP-932) that the client library
lacks. Their schemas are the JSON files in this folder, in the format of Kafka and of the library.
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

# the library finds a response class by its API key through a weak reference, so the classes must be
# referenced here
_ANSWERS: Final = (
    _message("DescribeShareGroupOffsetsResponse"),
    _message("AlterShareGroupOffsetsResponse"),
    _message("ConsumerGroupDescribeResponse"),
    _message("ShareGroupDescribeResponse"),
)
