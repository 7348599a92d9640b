"""The channel between lanes and their driver, over real sockets."""

from __future__ import annotations

import logging
import pickle
import queue
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace

import pytest

from tests.support.eventually import PATIENCE_S, eventually
from twinlog.channel.client import ChannelClient
from twinlog.channel.codec import Message, MessageCodec
from twinlog.channel.frames import (
    HELLO,
    MAX_FRAME_BYTES,
    MESSAGE,
    ChannelAddress,
    FrameReader,
    LaneIdentity,
    frame,
    hello_payload,
)
from twinlog.channel.server import (
    ChannelEvent,
    ChannelServer,
    LaneConnected,
    LaneGone,
    LaneMessage,
    Peer,
    UnauthenticatedPeer,
)
from twinlog.clock import boot_clock
from twinlog.errors import AuthenticationFailed, CorruptData, Disconnected, Unreachable


class Note(Message, frozen=True, kw_only=True):
    text: str


CODEC = MessageCodec((Note,))
LANE = LaneIdentity(lease=7, lane=3, attempt=1, pid=4711)
OTHER = replace(LANE, lane=4)
Server = Callable[..., "Listening"]


class Listening:
    """A channel server, and the queue of the events that it has delivered."""

    def __init__(self, server: ChannelServer, events: queue.Queue[ChannelEvent]) -> None:
        self.server = server
        self._secrets = server.secrets.open(LANE.lease, 20)
        self.address = self.address_of(LANE)
        self._events = events

    def address_of(self, identity: LaneIdentity) -> ChannelAddress:
        """Return the driver's address with the secret of this lane, as the lane's task gets it."""
        return replace(self.server.address, token=self._secrets[identity.lane])

    def next_event(self) -> ChannelEvent:
        return self._events.get(timeout=PATIENCE_S)

    def connected(self) -> LaneConnected:
        event = self.next_event()
        assert isinstance(event, LaneConnected), event
        return event

    def texts(self, count: int) -> list[str]:
        events = [self.next_event() for _ in range(count)]
        return [event.message.text for event in events if isinstance(event, LaneMessage)]

    def gone(self) -> LaneGone:
        event = self.next_event()
        assert isinstance(event, LaneGone), event
        return event

    def nothing_more(self) -> bool:
        return self._events.empty()


@pytest.fixture
def listen() -> Iterator[Server]:
    with ExitStack() as stack:

        def start(*, tls: bool = False) -> Listening:
            events: queue.Queue[ChannelEvent] = queue.Queue()
            server = (
                ChannelServer(CODEC, events.put, host="0.0.0.0", advertised_host="127.0.0.1")  # noqa: S104
                if tls
                else ChannelServer(CODEC, events.put)
            )
            server.start()
            stack.callback(server.close)
            return Listening(server, events)

        yield start


@contextmanager
def lane(address: ChannelAddress, identity: LaneIdentity = LANE) -> Iterator[ChannelClient]:
    client = ChannelClient.connect(address, identity, CODEC)
    try:
        yield client
    finally:
        client.close()


def received(client: ChannelClient, count: int, within: float = 10.0) -> list[str]:
    """Return the next `count` messages. Wait for them with a selector, as a lane does."""
    texts: list[str] = []
    give_up_at = time.monotonic() + within
    while len(texts) < count:
        assert time.monotonic() < give_up_at, texts
        writers = [client] if client.wants_write else []
        select.select([client], writers, [], 0.2)
        texts += [message.text for message in client.receive()]
    return texts


both_kinds = pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])


@both_kinds
def test_messages_pass_both_ways_in_order(listen: Server, tls: bool) -> None:
    driver = listen(tls=tls)
    assert (driver.address.fingerprint is not None) == tls
    with lane(driver.address) as client:
        peer = driver.connected().peer
        assert peer.identity == LANE
        for number in range(50):
            client.send(Note(text=f"up {number}"))
            peer.send(Note(text=f"down {number}"))
        assert driver.texts(50) == [f"up {number}" for number in range(50)]
        assert received(client, 50) == [f"down {number}" for number in range(50)]
    assert driver.gone().peer is peer


@both_kinds
def test_a_large_message_passes_a_reader_that_starts_late(listen: Server, tls: bool) -> None:
    driver = listen(tls=tls)
    text = "x" * (20 << 20)
    with lane(driver.address) as client:
        peer = driver.connected().peer
        peer.send(Note(text=text))
        peer.send(Note(text="after"))
        assert peer.wants_write
        time.sleep(0.3)  # the reader is late by this time
        assert received(client, 2, within=PATIENCE_S) == [text, "after"]
        client.send(Note(text=text))
        while client.wants_write:
            select.select([], [client], [], 1)
            client.flush()
        assert driver.texts(1) == [text]


def test_a_lane_that_never_reads_is_disconnected_and_costs_bounded_memory(listen: Server) -> None:
    driver = listen()
    text = "x" * (40 << 20)
    with lane(driver.address):
        peer = driver.connected().peer
        for _ in range(5):
            peer.send(Note(text=text))
        assert "does not read" in driver.gone().reason
        peer.send(Note(text="to nobody"))
    assert driver.nothing_more()


def test_many_lanes_at_once(listen: Server) -> None:
    driver = listen(tls=True)
    with ExitStack() as stack:
        clients = [
            stack.enter_context(lane(driver.address_of(one), one))
            for one in (replace(LANE, lane=number) for number in range(20))
        ]
        peers = {driver.connected().peer for _ in clients}
        for peer in peers:
            peer.send(Note(text=f"for {peer.identity.lane}"))
        for number, client in enumerate(clients):
            assert received(client, 1) == [f"for {number}"]


@both_kinds
def test_a_wrong_token_gets_nothing_and_is_reported_once(
    listen: Server, tls: bool, caplog: pytest.LogCaptureFixture
) -> None:
    driver = listen(tls=tls)
    right = driver.address
    wrong = [replace(right, token=token) for token in ("x" * len(right.token), "", right.token[1:])]
    with caplog.at_level(logging.WARNING):
        for address in wrong:
            with lane(address) as client, pytest.raises(Disconnected) as caught:
                client.send(Note(text="hello?"))
                received(client, 1)
            assert caught.value.code == "CHANNEL_LOST"
    assert driver.nothing_more()
    assert caplog.text.count("CHANNEL_TOKEN") == 1
    assert right.token not in caplog.text
    with lane(right):
        driver.connected()


@pytest.mark.parametrize(
    "opening",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack(">I", 2**31),
        struct.pack(">I", 0),
        frame(MESSAGE, CODEC.encode(Note(text="no hello"))),
        frame(HELLO, b""),
    ],
)
def test_an_unauthenticated_connection_is_closed_before_anything_is_parsed(
    listen: Server, opening: bytes
) -> None:
    driver = listen()
    with socket.create_connection((driver.address.host, driver.address.port)) as stranger:
        stranger.sendall(opening)
        stranger.settimeout(10)
        try:
            answer = stranger.recv(1)
        except ConnectionResetError:  # bytes of this client were still unread
            answer = b""
        assert answer == b""
    assert driver.nothing_more()


def test_a_silent_unauthenticated_connection_is_closed(
    listen: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twinlog.channel.server.HELLO_WITHIN_S", 0.2)
    driver = listen(tls=True)
    with socket.create_connection((driver.address.host, driver.address.port)) as stranger:
        stranger.settimeout(10)
        assert stranger.recv(1) == b""


def test_hello_and_messages_arrive_in_pieces_of_one_byte(listen: Server) -> None:
    driver = listen()
    stream = frame(HELLO, hello_payload(driver.address.token, LANE)) + b"".join(
        frame(MESSAGE, CODEC.encode(Note(text=text))) for text in ("one", "two")
    )
    with socket.create_connection((driver.address.host, driver.address.port)) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in stream:
            sock.send(bytes([byte]))
        assert driver.connected().peer.identity == LANE
        assert driver.texts(2) == ["one", "two"]


def test_messages_in_the_same_packet_as_the_hello_are_delivered(listen: Server) -> None:
    driver = listen()
    with socket.create_connection((driver.address.host, driver.address.port)) as sock:
        hello = frame(HELLO, hello_payload(driver.address.token, LANE))
        sock.sendall(hello + frame(MESSAGE, CODEC.encode(Note(text="at once"))))
        driver.connected()
        assert driver.texts(1) == ["at once"]


def test_a_lane_that_sends_nonsense_is_disconnected_and_the_others_stay(listen: Server) -> None:
    driver = listen()
    with lane(driver.address) as good:
        driver.connected()
        with socket.create_connection((driver.address.host, driver.address.port)) as sock:
            other = replace(LANE, lane=9)
            sock.sendall(frame(HELLO, hello_payload(driver.address_of(other).token, other)))
            bad = driver.connected().peer
            sock.sendall(frame(MESSAGE, b'{"type":"Other"}'))
            gone = driver.gone()
            assert gone.peer is bad
            assert "CORRUPT_MESSAGE" in gone.reason
        good.send(Note(text="still here"))
        assert driver.texts(1) == ["still here"]


def test_a_hello_works_once_and_an_older_attempt_is_refused(listen: Server) -> None:
    """A lane's hello (its first message) is accepted only once, and one of an older attempt is
    refused. A client that has seen a hello can repeat it, but cannot derive the hello of the next
    attempt from it.
    """
    driver = listen()
    second = replace(LANE, attempt=LANE.attempt + 1)
    for mine, others in ((LANE, [LANE]), (second, [LANE, second, replace(LANE, attempt=0)])):
        with lane(driver.address_of(mine), mine) as client:
            peer = driver.connected().peer
            for other in others:
                assert_refused(driver.address_of(other), other)
            client.send(Note(text="undisturbed"))
            assert driver.texts(1) == ["undisturbed"]
        assert driver.gone().peer is peer
        assert_refused(driver.address_of(mine), mine)
    assert driver.nothing_more()


def test_a_secret_admits_only_its_own_lane(listen: Server) -> None:
    driver = listen()
    stolen = driver.address_of(LANE)
    for other in (
        replace(LANE, lane=4),
        replace(LANE, lane=20),
        replace(LANE, lease=8),
        replace(LANE, lease=0, lane=0),
    ):
        assert_refused(stolen, other)
    driver.server.secrets.close(LANE.lease)
    assert_refused(stolen, LANE)
    assert driver.nothing_more()


def test_a_proof_is_bound_to_the_whole_identity(listen: Server) -> None:
    driver = listen()
    payload = hello_payload(driver.address.token, LANE)
    for index in range(len(payload)):
        changed = bytearray(payload)
        changed[index] ^= 1
        with socket.create_connection((driver.address.host, driver.address.port)) as sock:
            sock.settimeout(10)
            sock.sendall(frame(HELLO, bytes(changed)))
            assert sock.recv(1) == b""
    assert driver.nothing_more()
    with lane(driver.address):
        driver.connected()


def assert_refused(address: ChannelAddress, identity: LaneIdentity) -> None:
    with lane(address, identity) as client, pytest.raises(Disconnected):
        received(client, 1)


def test_a_wrong_fingerprint_is_refused_before_the_token_is_sent(listen: Server) -> None:
    driver = listen(tls=True)
    with pytest.raises(AuthenticationFailed) as caught:
        ChannelClient.connect(replace(driver.address, fingerprint="0" * 64), LANE, CODEC)
    assert caught.value.code == "CHANNEL_FINGERPRINT"
    assert driver.nothing_more()


def test_tls_to_a_plain_listener_and_plain_to_a_tls_one(listen: Server) -> None:
    plain, secure = listen(), listen(tls=True)
    with pytest.raises(Unreachable):
        ChannelClient.connect(replace(plain.address, fingerprint="0" * 64), LANE, CODEC, timeout=2)
    with (
        lane(replace(secure.address, fingerprint=None)) as client,
        # the client reads a TLS alert, which is not a frame
        pytest.raises((Disconnected, CorruptData)),
    ):
        received(client, 1)
    assert secure.nothing_more()


def test_an_unreachable_driver_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(Unreachable, match=f"127.0.0.1:{port}"):
        ChannelClient.connect(address_of("127.0.0.1", port), LANE, CODEC, timeout=1)


def address_of(host: str, port: int) -> ChannelAddress:
    return ChannelAddress(host=host, port=port, token="t")


@both_kinds
def test_messages_sent_before_the_driver_died_arrive(listen: Server, tls: bool) -> None:
    driver = listen(tls=tls)
    with lane(driver.address) as client:
        driver.connected().peer.send(Note(text="last words"))
        driver.server.close()
        assert received(client, 1) == ["last words"]
        with pytest.raises(Disconnected):
            received(client, 1)
        with pytest.raises(Disconnected):
            received(client, 1)


@both_kinds
def test_an_abrupt_end_of_a_lane_is_reported_once(listen: Server, tls: bool) -> None:
    driver = listen(tls=tls)
    client = ChannelClient.connect(driver.address, LANE, CODEC)
    peer = driver.connected().peer
    sock = client._frames.socket
    # sends a reset, as the kernel does for a killed process with unread data
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()
    assert driver.gone().peer is peer
    peer.send(Note(text="x"))
    peer.close()
    another = replace(LANE, attempt=2)
    with lane(driver.address_of(another), another):
        # the next event after the hello of the other attempt, because one thread delivers all
        # events
        driver.connected()
    assert driver.gone().peer is not peer


def test_the_driver_can_end_a_connection(listen: Server) -> None:
    driver = listen()
    with lane(driver.address) as client:
        driver.connected().peer.close("lease is over")
        assert driver.gone().reason == "lease is over"
        with pytest.raises(Disconnected):
            received(client, 1)


def test_pings_are_answered_while_many_messages_are_decoded(
    listen: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If many partitions move to other lanes together, the driver decodes messages for seconds. A
    lane stops if its pings are not answered for 10 s.
    """
    slow_s, count = 0.1, 50

    def decode(self: Peer, payload: bytes) -> Note:
        time.sleep(slow_s)  # a message that is slow to decode
        return Note(text=payload.decode())

    driver = listen()
    monkeypatch.setattr(Peer, "decode", decode)
    with lane(driver.address) as busy, lane(driver.address_of(OTHER), OTHER) as idle:
        peers = [driver.connected().peer for _ in range(2)]
        for number in range(count):
            busy.send(Note(text=str(number)))
        began = boot_clock()

        def is_answered() -> bool:
            idle.receive()
            return idle.last_heard > began

        eventually(is_answered)
        assert boot_clock() - began < slow_s * count / 2
        assert len(driver.texts(count)) == count, "and no message is lost"
        busy.close()
        assert driver.gone().peer is next(peer for peer in peers if peer.identity == LANE)


def test_last_heard_is_the_time_at_which_the_answered_ping_was_sent(listen: Server) -> None:
    driver = listen()
    with lane(driver.address) as client:
        first = client.last_heard
        peer = driver.connected().peer
        before = boot_clock()
        client.send(Note(text="a ping goes with it"))
        sent = boot_clock()
        time.sleep(0.3)  # so that the client reads the response late

        def is_answered() -> bool:
            client.receive()
            return client.last_heard >= before

        eventually(is_answered)
        assert first < before <= client.last_heard <= sent
        assert client.last_heard <= peer.last_heard


def test_a_lane_gives_up_before_its_driver_gives_it_up(listen: Server) -> None:
    """The network stops delivering a lane's data. The lane must count only data that the driver has
    received. Otherwise it would still copy after the driver has given it up.
    """
    driver = listen()
    with ExitStack() as stack:
        port, go_dark = stack.enter_context(black_hole(driver.address.port))
        with lane(replace(driver.address, port=port)) as client:
            peer = driver.connected().peer
            client.send(Note(text="heard"))
            assert driver.texts(1) == ["heard"]
            time.sleep(0.1)  # time for a response to arrive, if there is one
            client.receive()
            go_dark.set()
            time.sleep(1.1)  # until a ping is due
            client.send(Note(text="unheard"))
            time.sleep(0.2)  # time for a response to arrive, if there is one
            client.receive()
            assert client.last_heard <= peer.last_heard


def test_the_wire_shows_no_secret_under_tls(listen: Server) -> None:
    for tls, visible in ((False, True), (True, False)):
        driver = listen(tls=tls)
        with ExitStack() as stack:
            port, seen = stack.enter_context(wiretap(driver.address.port))
            with lane(replace(driver.address, port=port)) as client:
                driver.connected().peer.send(Note(text="hunter2-password"))
                client.send(Note(text="upward-password"))
                assert driver.texts(1) == ["upward-password"]
                assert received(client, 1) == ["hunter2-password"]
        for secret in ("hunter2-password", "upward-password"):
            assert (secret.encode() in seen) == visible
        assert driver.address.token.encode() not in seen


def test_the_address_pickles_and_does_not_show_its_token(listen: Server) -> None:
    address = listen(tls=True).address
    assert pickle.loads(pickle.dumps(address)) == address  # noqa: S301
    assert address.token not in repr(address)
    assert len(address.token) >= 43


def test_closing_leaves_no_thread_and_no_port(listen: Server) -> None:
    driver = listen()
    with lane(driver.address):
        driver.connected()
        driver.server.close()
    assert not any(thread.name == "twinlog-channel" for thread in threading.enumerate())
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((driver.address.host, driver.address.port), timeout=1)


def test_frames_are_found_however_the_stream_is_divided() -> None:
    stream = frame(MESSAGE, b"one") + frame(HELLO, b"") + frame(MESSAGE, b"three")
    for cut in range(len(stream) + 1):
        reader, found = FrameReader(), []
        for piece in (stream[:cut], stream[cut:]):
            reader.feed(piece)
            while (each := reader.next_frame()) is not None:
                found.append((each.kind, each.payload))
        assert found == [(MESSAGE, b"one"), (HELLO, b""), (MESSAGE, b"three")]


def test_a_frame_over_the_limit_is_refused_at_both_ends() -> None:
    with pytest.raises(CorruptData):
        frame(MESSAGE, bytes(MAX_FRAME_BYTES))
    reader = FrameReader()
    reader.feed(struct.pack(">I", MAX_FRAME_BYTES + 1))
    with pytest.raises(CorruptData):
        reader.next_frame()


def test_an_unauthenticated_connection_may_not_send_a_frame_longer_than_a_hello() -> None:
    left, right = socket.socketpair()
    with left, right:
        stranger = UnauthenticatedPeer(left, "here", 1)
        right.sendall(frame(HELLO, hello_payload("token", LANE) + b"x"))
        stranger.read()
        with pytest.raises(CorruptData):
            stranger.frames.reader.next_frame()


@contextmanager
def wiretap(port: int) -> Iterator[tuple[int, bytearray]]:
    """A TCP proxy that records every byte that it forwards. Yields its port and the recorded
    bytes.
    """
    seen = bytearray()

    def keep(data: bytes) -> bool:
        seen.extend(data)
        return True

    with proxy(port, keep) as own_port:
        yield own_port, seen


@contextmanager
def black_hole(port: int) -> Iterator[tuple[int, threading.Event]]:
    """A TCP proxy that can stop forwarding while both connections stay open. Yields its port and
    the event that stops it.
    """
    dark = threading.Event()
    with proxy(port, lambda _data: not dark.is_set()) as own_port:
        yield own_port, dark


@contextmanager
def proxy(port: int, passes: Callable[[bytes], bool]) -> Iterator[int]:
    listener = socket.create_server(("127.0.0.1", 0))
    stop = threading.Event()

    def run() -> None:
        near, _ = listener.accept()
        # an end that closes its connection before it has read all of TLS's tickets resets it
        with (
            suppress(ConnectionResetError),
            near,
            socket.create_connection(("127.0.0.1", port)) as far,
        ):
            other = {near: far, far: near}
            while not stop.is_set():
                for ready in select.select([near, far], [], [], 0.05)[0]:
                    data = ready.recv(65536)
                    if not data:
                        return
                    if passes(data):
                        other[ready].sendall(data)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        stop.set()
        thread.join(PATIENCE_S)
        listener.close()
