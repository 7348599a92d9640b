"""The driver's end of the channel: one thread that listens to lanes and turns them into events."""

from __future__ import annotations

import ipaddress
import logging
import secrets
import selectors
import socket
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from twinlog.control.certificate import make_server_context
from twinlog.control.channel_peer import Peer
from twinlog.control.channel_stranger import HELLO_WITHIN_S, Refusals, Stranger
from twinlog.errors import AuthenticationFailed, CorruptData
from twinlog.spark.codec import MessageCodec
from twinlog.spark.frame_socket import ClosedByPeer
from twinlog.spark.framing import MAX_FRAME_BYTES, ChannelAddress, read_hello

log = logging.getLogger(__name__)

MAX_STRANGERS = 512
"""Connections that have not shown the token yet; no real start of lanes opens so many at once."""

TICK_S = 1.0


@dataclass(frozen=True, slots=True)
class LaneConnected:
    peer: Peer


@dataclass(frozen=True, slots=True)
class LaneMessage:
    peer: Peer
    message: Any


@dataclass(frozen=True, slots=True)
class LaneGone:
    peer: Peer
    reason: str


ChannelEvent = LaneConnected | LaneMessage | LaneGone


class ChannelServer:
    """Listens from `start` to `close`; every event goes to `deliver`, in order, from its thread.

    For each lane: LaneConnected, any number of LaneMessage, LaneGone once. On a loopback `host` the
    channel is plain; anywhere else it is TLS, and `address` carries the fingerprint.
    """

    def __init__(
        self,
        codec: MessageCodec,
        deliver: Callable[[ChannelEvent], None],
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        advertised_host: str | None = None,
    ) -> None:
        self._codec = codec
        self._deliver = deliver
        self._tls: ssl.SSLContext | None = None
        fingerprint: str | None = None
        if not is_loopback(host):
            self._tls, fingerprint = make_server_context()
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, port), family=family, backlog=MAX_STRANGERS)
        self._listener.setblocking(False)
        self.address = ChannelAddress(
            host=advertised_host or host,
            port=self._listener.getsockname()[1],
            token=secrets.token_urlsafe(32),
            fingerprint=fingerprint,
        )
        self._selector = selectors.DefaultSelector()
        self._alarm, self._alarm_end = socket.socketpair()
        self._alarm.setblocking(False)
        self._alarm_end.setblocking(False)
        self._woken: set[Peer] = set()
        self._woken_lock = threading.Lock()
        self._strangers: set[Stranger] = set()
        self._peers: set[Peer] = set()
        self._closing = threading.Event()
        self._refusals = Refusals()
        self._thread = threading.Thread(target=self._run, name="twinlog-channel", daemon=True)

    def start(self) -> None:
        self._selector.register(self._listener, selectors.EVENT_READ, None)
        self._selector.register(self._alarm_end, selectors.EVENT_READ, None)
        self._thread.start()

    def close(self, *, linger_s: float = 1.0) -> None:
        """Send what is still buffered, for at most `linger_s`, then close everything."""
        if self._thread.is_alive():
            give_up_at = time.monotonic() + linger_s
            while any(peer.wants_write for peer in tuple(self._peers)):
                if time.monotonic() > give_up_at:
                    break
                self._closing.wait(0.01)
            self._closing.set()
            self._ring()
            self._thread.join(timeout=5.0)
        for end in (self._listener, self._alarm, self._alarm_end):
            end.close()

    # --- called from any thread

    def _wake(self, peer: Peer) -> None:
        with self._woken_lock:
            self._woken.add(peer)
        self._ring()

    def _ring(self) -> None:
        try:
            self._alarm.send(b"!")
        except OSError:  # full: the thread will wake anyway; closed: there is no thread any more
            return

    # --- the server's own thread

    def _run(self) -> None:
        while not self._closing.is_set():
            for key, events in self._selector.select(TICK_S):
                if isinstance(key.data, Peer):
                    self._serve(key.data, events)
                elif isinstance(key.data, Stranger):
                    self._greet(key.data)
                elif key.fileobj is self._listener:
                    self._accept()
                else:
                    self._alarm_end.recv(4096)
            self._settle_woken()
            self._drop_silent_strangers()
        for stranger in self._strangers:
            stranger.frames.close()
        for peer in self._peers:
            peer.shut()
        self._selector.close()

    def _accept(self) -> None:
        try:
            sock, (host, port, *_) = self._listener.accept()
        except OSError:  # it has gone again, or we are out of file descriptors: the next try tells
            return
        if len(self._strangers) >= MAX_STRANGERS:
            sock.close()
            self._refusals.note("too many connections without a hello", host)
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._tls is not None:
            sock = self._tls.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
        stranger = Stranger(sock, f"{host}:{port}", self.address.token)
        self._strangers.add(stranger)
        self._selector.register(stranger.frames, selectors.EVENT_READ, stranger)

    def _greet(self, stranger: Stranger) -> None:
        try:
            waiting_for = stranger.shake_hands()
            if not stranger.handshaken:
                self._selector.modify(stranger.frames, waiting_for, stranger)
                return
            stranger.frames.read()
            first = stranger.frames.reader.next_frame()
            if first is None:
                self._selector.modify(stranger.frames, selectors.EVENT_READ, stranger)
                return
            identity = read_hello(first, self.address.token)
        except (ClosedByPeer, AuthenticationFailed, CorruptData) as error:
            # a frame of any other length than a hello's is as wrong as a token
            self._dismiss(stranger, str(error.args[0]))
            return
        self._strangers.discard(stranger)
        stranger.frames.reader.max_frame_bytes = MAX_FRAME_BYTES
        peer = Peer(stranger.frames, self._codec, identity, self._wake)
        self._selector.modify(stranger.frames, selectors.EVENT_READ, peer)
        self._peers.add(peer)
        log.info("lane_connected peer=%s remote=%s", identity, stranger.remote)
        self._deliver(LaneConnected(peer))
        self._serve(peer, selectors.EVENT_READ)  # what came with the hello is already read

    def _dismiss(self, stranger: Stranger, why: str) -> None:
        self._strangers.discard(stranger)
        self._selector.unregister(stranger.frames)
        stranger.frames.close()
        self._refusals.note(why, stranger.remote)

    def _serve(self, peer: Peer, events: int) -> None:
        if events & selectors.EVENT_READ:
            try:
                for message in peer.read():
                    self._deliver(LaneMessage(peer, message))
            except CorruptData as error:
                peer.ending = peer.ending or str(error)
        if events & selectors.EVENT_WRITE:
            peer.flush()
        self._settle(peer)

    def _settle(self, peer: Peer) -> None:
        """Bring the selector in line with what the peer wants, or end it."""
        if peer not in self._peers:
            return
        if peer.ending is not None:
            self._peers.discard(peer)
            self._selector.unregister(peer)
            peer.shut()
            log.info("lane_gone peer=%s reason=%s", peer.identity, peer.ending)
            self._deliver(LaneGone(peer, peer.ending))
            return
        interest = selectors.EVENT_READ | (selectors.EVENT_WRITE if peer.wants_write else 0)
        if self._selector.get_key(peer).events != interest:
            self._selector.modify(peer, interest, peer)

    def _settle_woken(self) -> None:
        with self._woken_lock:
            woken, self._woken = self._woken, set()
        for peer in woken:
            self._settle(peer)

    def _drop_silent_strangers(self) -> None:
        now = time.monotonic()
        for stranger in [s for s in self._strangers if s.give_up_at < now]:
            self._dismiss(stranger, f"no hello within {HELLO_WITHIN_S:.0f} s")


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
