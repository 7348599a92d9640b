"""Twinlog's table of error codes has the same codes as Java's enum."""

from __future__ import annotations

from typing import Any

from twinlog.wire.error_codes import ERRORS

ERRORS_PACKAGE = "org.apache.kafka.common.errors"


def test_names_and_fates_are_those_of_java(java: Any) -> None:
    class_named = java.java.lang.Class.forName
    retriable = class_named(f"{ERRORS_PACKAGE}.RetriableException")
    stale = class_named(f"{ERRORS_PACKAGE}.InvalidMetadataException")
    of_java = {}
    for error in java.org.apache.kafka.common.protocol.Errors.values():
        exception = error.exception()
        if exception is not None:
            of_java[int(error.code())] = (
                error.name(),
                bool(retriable.isInstance(exception)),
                bool(stale.isInstance(exception)),
            )
    ours = {number: (row.name, row.retriable, row.stale) for number, row in ERRORS.items()}
    assert ours == of_java
