"""Messages about groups that the client library does not have, those of KIP-848 and KIP-932:
schemas beside this file, in the library's form, as brokers speak them.
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
    """The library makes a class of `name.json` of this package."""
    return type(ApiMessage)(name, (ApiMessage,), {}, load_json=sys.modules[__name__])


DescribeShareGroupOffsetsRequest: Final = _message("DescribeShareGroupOffsetsRequest")
AlterShareGroupOffsetsRequest: Final = _message("AlterShareGroupOffsetsRequest")
ConsumerGroupDescribeRequest: Final = _message("ConsumerGroupDescribeRequest")
ShareGroupDescribeRequest: Final = _message("ShareGroupDescribeRequest")

# the library finds an answer's class by its number and holds it weakly: somebody must keep it
_ANSWERS: Final = (
    _message("DescribeShareGroupOffsetsResponse"),
    _message("AlterShareGroupOffsetsResponse"),
    _message("ConsumerGroupDescribeResponse"),
    _message("ShareGroupDescribeResponse"),
)
