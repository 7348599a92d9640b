"""The report of `scripts/bench plane`, and its clients."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from benchmarks.clients import Polling
from benchmarks.plane_run import BEFORE, MIB, OFF, POLLED, SERVED, Cost, report
from tests.support.eventually import eventually


def cost(variant: str, *, start: float = 6, mib: int = 400, speed: float = 300_000) -> Cost:
    return Cost(
        variant=variant,
        first_record_s=start,
        records_per_s=speed,
        cpu_s=2,
        idle_bytes=mib * MIB,
        idle_cores=0.1,
    )


def lines_of(text: str, variant: str) -> list[str]:
    return [line for line in text.splitlines() if f"  {variant} " in line]


def test_medians_are_compared_with_their_counterparts() -> None:
    text = report(
        [
            *(cost(OFF, start=start) for start in (5, 6, 60)),
            cost(SERVED, start=6.5, mib=420),
            cost(POLLED, start=9, mib=450, speed=284_000),
        ]
    )
    start, memory, *_ = lines_of(text, SERVED)
    assert "1.08x  of --listen off: at most 1.10x" in start
    assert start.endswith("met")
    assert memory.endswith("met")
    start, memory, speed, *_ = lines_of(text, POLLED)
    assert start.rstrip().endswith("9.00")
    assert memory.endswith("MISSED")
    assert "0.947x" not in speed
    assert speed.endswith("MISSED")
    assert "NOT COMPARABLE" not in text


def test_start_and_memory_are_compared_with_an_older_release() -> None:
    text = report([cost(SERVED, start=6), cost(OFF, start=7), cost(BEFORE, start=5)])
    (start, *_) = lines_of(text, SERVED)
    assert "1.20x  of before: at most 1.10x" in start
    assert start.endswith("MISSED")


@pytest.mark.parametrize("status", [200, 503])
def test_each_client_asks_again_and_only_answers_count(status: int) -> None:
    asked: list[str] = []

    class Server(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(status)
            self.send_header("Content-Length", "100000")
            self.end_headers()
            self.wfile.write(b"{}" * 50_000)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with Polling(server.server_port, 10) as polling:
            eventually(lambda: polling.answered + polling.refused > 15)
        server.shutdown()
    assert set(asked) == {"/api/v1/flows"}
    assert (polling.answered > 0, polling.refused > 0) == (status == 200, status != 200)


def test_a_mirror_that_does_not_serve_yet_is_queried_again() -> None:
    with Polling(1, 3) as polling:
        eventually(lambda: polling.refused > 3)
    assert polling.answered == 0
