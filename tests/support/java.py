"""Runs Kafka's own Java classes in a small JVM. Tests compare Twinlog's bytes and decisions with
theirs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import TimeoutExpired
from typing import Any

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from twinlog.java import find_java
from twinlog.sandbox.kafka_jars import find_or_fetch

__all__ = ["kafka_jvm"]

_STOP_SECONDS = 10


@contextmanager
def kafka_jvm(jars: Path | None = None) -> Iterator[Any]:
    """Yield `jvm` of a JVM that runs until the block ends. Its classpath has the brokers' jars, or
    those in `jars`.
    """
    port, token, process = launch_gateway(
        classpath=f"{jars or find_or_fetch()}/*",
        javaopts=["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"],
        java_path=str(find_java()),
        die_on_exit=True,
        enable_auth=True,
        return_proc=True,
    )
    gateway = JavaGateway(
        gateway_parameters=GatewayParameters(port=port, auth_token=token, auto_convert=True)
    )
    try:
        yield gateway.jvm
    finally:
        gateway.shutdown()
        process.stdin.close()  # with die_on_exit, the JVM ends when its standard input is closed
        try:
            process.wait(_STOP_SECONDS)
        except TimeoutExpired:
            process.kill()
            process.wait()
