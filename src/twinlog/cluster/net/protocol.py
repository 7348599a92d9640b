"""The only access to the client library's generated messages: values to bytes and back, no sockets.

The library has no type information, so a message is `Message` here: an opaque value whose fields
are read by the modules that convert it into typed values. A message is built without a version. The
version is chosen when it is sent, from what the broker offers.
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
"""A request or response of the client library. Its fields have Kafka's names in snake case."""

API_VERSIONS: Final = 18
_INT32: Final = struct.Struct(">i")

_first_decoding: Final = threading.Lock()
"""The library compiles a decoder at the first response of its kind, and meanwhile changes what
another thread would compile. If two do so at once, one may permanently keep a decoder that fails.
"""
_decoded: Final[set[tuple[int, int]]] = set()
"""(API key, version) for which there is a decoder."""


def api_key(request: Message) -> int:
    """Return the API key of a request."""
    return int(request.API_KEY)


def api_name(key: int) -> str:
    """Return the API's name for messages, for example `Metadata` for 3."""
    response = ResponseClassRegistry._response_class_registry.get(key)
    return f"API {key}" if response is None else str(response.name).removesuffix("Response")


def known_versions(request: Message) -> tuple[int, int]:
    """Return the lowest and highest version that the client library can encode."""
    low, high = type(request).valid_versions
    return int(low), int(high)


def is_flexible(key: int, version: int) -> bool:
    """Return whether this version has tagged fields (KIP-482), also in its header."""
    response = ResponseClassRegistry._response_class_registry[key]
    return bool(response.flexible_version_q(version))


def api_versions_request(version: int) -> Message:
    """Return a request that identifies Twinlog to the broker, which shows name and version in its
    metrics (KIP-511).
    """
    if version < 3:
        return ApiVersionsRequest()
    return ApiVersionsRequest(
        client_software_name="twinlog", client_software_version=twinlog.__version__
    )


def encode_request(request: Message, version: int, correlation_id: int, client_id: str) -> bytes:
    """Return a whole frame, with its size in front."""
    request.API_VERSION = version
    request.with_header(correlation_id=correlation_id, client_id=client_id)
    return bytes(request.encode(framed=True, header=True))


def response_body(key: int, version: int, frame: memoryview, correlation_id: int) -> memoryview:
    """Return the body of a response (without its size). Its correlation ID must match."""
    if len(frame) < 4:
        raise CorruptData(f"a response to {api_name(key)} has only {len(frame)} bytes")
    (answered,) = _INT32.unpack_from(frame)
    if answered != correlation_id:
        raise CorruptData(
            f"a response has correlation ID {answered} instead of {correlation_id} "
            f"({api_name(key)})"
        )
    # ApiVersions always has the old header, because the client cannot know the broker's versions
    # yet
    if key == API_VERSIONS or not is_flexible(key, version):
        return frame[4:]
    if len(frame) < 5 or frame[4] != 0:
        raise CorruptData(f"a response to {api_name(key)} has unknown fields in its header")
    return frame[5:]


def throttle_ms(answer: Message) -> int:
    """Return for how long the broker reads nothing more on that connection because of a quota."""
    return int(getattr(answer, "throttle_time_ms", 0) or 0)


def decode_response(key: int, version: int, body: memoryview) -> Message:
    """Decode a response as the client library's message; ApiVersions in version 0 if it is an
    error.
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
