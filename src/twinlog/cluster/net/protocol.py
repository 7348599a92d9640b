"""Encodes requests and decodes responses. Only this module uses the client library's message
codecs.

The library has no type information, so a message has the type `Message`, which is `Any`. Modules
that send a request convert the response to typed values immediately. A request is created without a
version, because the version is chosen when the request is sent (`connection`).
"""

from __future__ import annotations

import struct
import threading
from typing import Any, Final, TypeAlias

from kafka.protocol.api_header import ResponseClassRegistry
from kafka.protocol.metadata import ApiVersionsRequest

import twinlog
from twinlog.errors import CorruptData

Message: TypeAlias = Any
"""A request or response of the client library. Its fields have Kafka's names, in snake case."""

API_VERSIONS: Final = 18
_INT32: Final = struct.Struct(">i")

_first_decoding: Final = threading.Lock()
"""Lock for decoding the first response of each API and version. The library then compiles a
decoder, and changes shared state during the compilation. If two threads compiled at the same time,
a decoder could be broken permanently.
"""
_decoded: Final[set[tuple[int, int]]] = set()
"""The decoders that are compiled, as pairs of API key and version."""


def api_key(request: Message) -> int:
    return int(request.API_KEY)


def api_name(key: int) -> str:
    """Return the name of an API for messages, for example `Metadata` for 3."""
    response = ResponseClassRegistry._response_class_registry.get(key)
    return f"API {key}" if response is None else str(response.name).removesuffix("Response")


def known_versions(request: Message) -> tuple[int, int]:
    """Return the lowest and highest version that the client library can encode."""
    low, high = type(request).valid_versions
    return int(low), int(high)


def is_flexible(key: int, version: int) -> bool:
    """Return True if messages of this version have tagged fields (KIP-482), also in the header."""
    response = ResponseClassRegistry._response_class_registry[key]
    return bool(response.flexible_version_q(version))


def api_versions_request() -> Message:
    """Return an ApiVersions request. From version 3 on, the request contains Twinlog's name and
    version, which brokers show in their metrics (KIP-511).
    """
    return ApiVersionsRequest(
        client_software_name="twinlog", client_software_version=twinlog.__version__
    )


def encode_request(request: Message, version: int, correlation_id: int, client_id: str) -> bytes:
    """Return a request as a frame: its size, header and body."""
    request.API_VERSION = version
    request.with_header(correlation_id=correlation_id, client_id=client_id)
    return bytes(request.encode(framed=True, header=True))


def response_body(key: int, version: int, frame: memoryview, correlation_id: int) -> memoryview:
    """Return the body of a response frame. Raises CorruptData if its correlation ID is wrong."""
    if len(frame) < 4:
        raise CorruptData(f"a response to {api_name(key)} has only {len(frame)} bytes")
    (answered,) = _INT32.unpack_from(frame)
    if answered != correlation_id:
        raise CorruptData(
            f"a response has correlation ID {answered} instead of {correlation_id} "
            f"({api_name(key)})"
        )
    # responses to ApiVersions always have the old header, because the client does not know the
    # broker's versions before the response
    if key == API_VERSIONS or not is_flexible(key, version):
        return frame[4:]
    if len(frame) < 5 or frame[4] != 0:
        raise CorruptData(f"a response to {api_name(key)} has unknown fields in its header")
    return frame[5:]


def throttle_ms(answer: Message) -> int:
    """Return how long the broker reads nothing from the connection because of a quota, in ms."""
    return int(getattr(answer, "throttle_time_ms", 0) or 0)


def decode_response(key: int, version: int, body: memoryview) -> Message:
    """Decode the body of a response. Raises CorruptData.

    A broker that does not support the version of an ApiVersions request responds in version 0. The
    library recognizes such a response.
    """
    response = ResponseClassRegistry._response_class_registry[key]
    try:
        if (key, version) in _decoded:
            return response.decode(body, version=version)
        with _first_decoding:
            message = response.decode(body, version=version)
            _decoded.add((key, version))
            return message
    except (ValueError, IndexError, TypeError, struct.error, EOFError) as error:
        raise CorruptData(
            f"a response to {api_name(key)} v{version} of {len(body)} bytes cannot be read: {error}"
        ) from error
