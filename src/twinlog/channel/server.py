"""The driver's end of the channel: one thread that serves all lanes and turns their messages into
events.

An error on one connection ends only that connection: a reset before or during its handshake, bytes
that are no hello, or any unexpected exception. Only an error in the thread itself ends the thread,
and then the process (`threads`), because without the channel the driver receives nothing from any
lane.

`Peer` is the connection to one lane. An `UnauthenticatedPeer` is a connection before
authentication, which can only make a TLS handshake and send one hello. Any client can open such
connections. So they are limited in number, time and bytes, and if there are too many, the oldest
are closed. A lane sends its hello immediately, so if a client opens many silent connections, only
these are closed, and lanes are not blocked.
"""

from __future__ import annotations

import datetime
import errno
import logging
import os
import selectors
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

from twinlog.addresses import is_loopback
from twinlog.channel.codec import MessageCodec
from twinlog.channel.frames import (
    HELLO_BYTES,
    HELLO_FRAME_BYTES,
    MAX_FRAME_BYTES,
    MESSAGE,
    PING,
    PONG,
    ChannelAddress,
    ClosedByPeer,
    Frame,
    FrameSocket,
    LaneIdentity,
)
from twinlog.channel.lane_secrets import LaneSecrets
from twinlog.clock import boot_clock
from twinlog.errors import AuthenticationFailed, CorruptData, Unreachable

log = logging.getLogger(__name__)


class Peer:
    """The connection to an authenticated lane. Any thread may send to the lane.

    The lock covers reading, too, because a TLS connection is one state machine for both directions.
    """

    def __init__(
        self,
        frames: FrameSocket,
        codec: MessageCodec,
        identity: LaneIdentity,
        wake: Callable[[Peer], None],
    ) -> None:
        self.identity = identity
        self.last_heard = boot_clock()
        self.ending: str | None = None
        """The reason why the connection must be closed, or None. Any thread may set it. The
        server's thread then closes the connection.
        """
        self._frames = frames
        self._codec = codec
        self._wake = wake
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"Peer({self.identity})"

    def fileno(self) -> int:
        return self._frames.fileno()

    @property
    def wants_write(self) -> bool:
        return self._frames.wants_write

    def send(self, message: Any) -> None:
        """Send a message: now, or later if the socket is full. Does nothing if the lane is gone.

        The lane is disconnected if it reads nothing while more than two frames of maximum size wait
        for it.
        """
        payload = self._codec.encode(message)
        with self._lock:
            if self.ending is not None:
                return
            try:
                self._frames.write(MESSAGE, payload)
                self._frames.flush()
            except (ClosedByPeer, CorruptData) as error:
                self.ending = str(error)
        if self.ending is not None or self._frames.wants_write:
            self._wake(self)

    def close(self, reason: str = "closed by the driver") -> None:
        """End the connection. The server's thread closes the socket, and passes LaneGone to
        `deliver`.
        """
        self.ending = self.ending or reason
        self._wake(self)

    def read(self) -> list[bytes]:
        """Return the encoded messages that have arrived, and answer pings. Only for the server's
        thread.
        """
        with self._lock:
            try:
                self._frames.read()
            except ClosedByPeer as closed:
                self.ending = self.ending or str(closed.args[0])
            else:
                self.last_heard = boot_clock()
            payloads = [each.payload for each in self._frames.frames() if self._is_message(each)]
            self._flush_locked()
        return payloads

    def decode(self, payload: bytes) -> Any:
        return self._codec.decode(payload)

    def flush(self) -> None:
        with self._lock:
            self._flush_locked()

    def close_socket(self) -> None:
        """Close the socket. Called by the server's thread only."""
        with self._lock:
            self._frames.close()

    def _is_message(self, received: Frame) -> bool:
        if received.kind == PING:
            self._frames.write(PONG, received.payload)
        return received.kind == MESSAGE

    def _flush_locked(self) -> None:
        try:
            self._frames.flush()
        except ClosedByPeer as closed:
            self.ending = self.ending or str(closed.args[0])


HELLO_WITHIN_S = 10.0
WARN_EVERY_S = 60.0

MAX_UNAUTHENTICATED: Final = 512
"""Maximum number of unauthenticated connections. Lanes that start together open fewer."""

MAX_OF_ONE_ADDRESS: Final = 128
"""Maximum number of unauthenticated connections from one address, which may be a machine with many
lanes. If there are more, only connections from the same address are closed.
"""


class UnauthenticatedPeer:
    """An unauthenticated connection to the channel."""

    def __init__(self, sock: socket.socket, host: str, port: int) -> None:
        self.frames = FrameSocket(sock, max_frame_bytes=HELLO_FRAME_BYTES)
        self.host = host
        self.remote = f"{host}:{port}"
        self.give_up_at = time.monotonic() + HELLO_WITHIN_S
        self.handshaken = not isinstance(sock, ssl.SSLSocket)

    def read(self) -> None:
        """Read the hello as far as it has arrived, and nothing after it. Data after the hello is
        read when the lane is authenticated.
        """
        self.frames.read_first(HELLO_BYTES - self.frames.reader.waiting_bytes)

    def shake_hands(self) -> int:
        """Continue the TLS handshake. Return the selector events to wait for (EVENT_READ or
        EVENT_WRITE).
        """
        sock = self.frames.socket
        if isinstance(sock, ssl.SSLSocket) and not self.handshaken:
            try:
                sock.do_handshake()
            except ssl.SSLWantReadError:
                return selectors.EVENT_READ
            except ssl.SSLWantWriteError:
                return selectors.EVENT_WRITE
            except OSError as error:
                raise ClosedByPeer(f"the TLS handshake failed: {error}") from None
            self.handshaken = True
        return selectors.EVENT_READ


class UnauthenticatedPeers(dict[UnauthenticatedPeer, None]):
    """All unauthenticated connections, oldest first."""

    def add(self, stranger: UnauthenticatedPeer) -> list[UnauthenticatedPeer]:
        """Add a connection. Return the connections that must be closed because there are now more
        than MAX_OF_ONE_ADDRESS or MAX_UNAUTHENTICATED.
        """
        self[stranger] = None
        of_one = [other for other in self if other.host == stranger.host]
        surplus = of_one[: max(0, len(of_one) - MAX_OF_ONE_ADDRESS)]
        rest = [other for other in self if other not in surplus]
        return [*surplus, *rest[: max(0, len(rest) - MAX_UNAUTHENTICATED)]]

    def timed_out(self) -> list[UnauthenticatedPeer]:
        """Return the connections that have not sent a hello within HELLO_WITHIN_S."""
        now = time.monotonic()
        return [stranger for stranger in self if stranger.give_up_at < now]


class RejectionLog:
    """Logs connections that sent no valid hello, at most once a minute, because any client can
    cause such warnings.
    """

    def __init__(self) -> None:
        self._quiet_until = 0.0
        self._unreported = 0

    def note(self, why: str, remote: str) -> None:
        self._unreported += 1
        now = time.monotonic()
        if now < self._quiet_until:
            return
        self._quiet_until = now + WARN_EVERY_S
        log.warning(
            "connections to the driver's channel were refused (%d, the last from %s): %s; only "
            "Twinlog's lanes may connect [CHANNEL_TOKEN]",
            self._unreported,
            remote,
            why,
        )
        self._unreported = 0


DELIVERY_S: Final = 0.05
"""Maximum time in seconds for decoding messages before connections are read and pings are answered
again. If all partitions of a large flow move to other lanes, decoding takes seconds, and lanes stop
if no ping is answered for 10 s.
"""
TICK_S = 1.0
"""Maximum time in seconds between two checks for connections without a hello."""


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
    """Serves lanes from `start` to `close`. Its own thread passes all events to `deliver`, in
    order.

    For each lane there is one LaneConnected, then any number of LaneMessage, then one LaneGone. On
    a loopback `host` the channel is not encrypted. On any other host it is TLS, and `address` has
    the fingerprint.
    """

    def __init__(
        self,
        codec: MessageCodec,
        deliver: Callable[[ChannelEvent], None],
        *,
        host: str = "127.0.0.1",
        advertised_host: str | None = None,
        admit: Callable[[Frame], LaneIdentity] | None = None,
    ) -> None:
        """`admit`: checks the first frame of each connection, and returns the lane's identity or
        raises AuthenticationFailed. By default, `secrets` does this.
        """
        self._codec = codec
        self._deliver = deliver
        self._tls: ssl.SSLContext | None = None
        fingerprint: str | None = None
        if not is_loopback(host):
            self._tls, fingerprint = make_server_context()
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            self._listener = socket.create_server(
                (host, 0), family=family, backlog=MAX_UNAUTHENTICATED
            )
        except OSError as error:
            what = f"this process cannot listen at {host}: {error}"
            if is_loopback(host) or error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                raise Unreachable(what, code="CHANNEL_UNREACHABLE") from None
            raise _no_address_error(what) from None
        self._listener.setblocking(False)
        self.address = ChannelAddress(
            host=advertised_host or host,
            port=self._listener.getsockname()[1],
            fingerprint=fingerprint,
        )
        self.secrets = LaneSecrets()
        """The secrets of the lanes that may connect."""
        self._admit = admit or self.secrets.admit
        self._selector = selectors.DefaultSelector()
        self._alarm, self._alarm_end = socket.socketpair()
        self._alarm.setblocking(False)
        self._alarm_end.setblocking(False)
        self._woken: set[Peer] = set()
        self._woken_lock = threading.Lock()
        self._unauthenticated = UnauthenticatedPeers()
        self._peers: set[Peer] = set()
        self._inbox: deque[tuple[Peer, bytes | None]] = deque()
        """Encoded messages that are not delivered yet, in the order of arrival. None instead of a
        message means that the lane is gone.
        """
        self._listens_at: float | None = None
        """Time at which to listen again, or None while the server listens. It stops listening if no
        descriptor is left for a connection.
        """
        self._closing = threading.Event()
        self._rejections = RejectionLog()
        self._thread = threading.Thread(target=self._run, name="twinlog-channel", daemon=True)

    @property
    def is_alive(self) -> bool:
        """True while the server's thread runs, which serves all connections."""
        return self._thread.is_alive()

    def start(self) -> None:
        self._selector.register(self._listener, selectors.EVENT_READ, None)
        self._selector.register(self._alarm_end, selectors.EVENT_READ, None)
        self._thread.start()

    def close(self, *, linger_s: float = 1.0) -> None:
        """Send buffered data for at most `linger_s`, then close everything."""
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
        # the alarm socket is full, so the thread wakes anyway, or closed, because the thread has
        # ended
        except OSError:
            return

    # --- the server's own thread

    def _run(self) -> None:
        try:
            while not self._closing.is_set():
                for key, events in self._selector.select(0.0 if self._inbox else TICK_S):
                    self._process_event(key, events)
                self._deliver_some()
                self._settle_woken()
                for stranger in self._unauthenticated.timed_out():
                    self._dismiss(stranger, f"no handshake within {HELLO_WITHIN_S:.0f} s")
                self._listen_again()
        finally:
            for stranger in self._unauthenticated:
                stranger.frames.close()
            for peer in self._peers:
                peer.close_socket()
            self._selector.close()

    def _process_event(self, key: selectors.SelectorKey, events: int) -> None:
        """Process one event. An error on a connection ends only that connection."""
        match key.data:
            case Peer() as peer:
                self._serve(peer, events)
            case UnauthenticatedPeer() as stranger if stranger in self._unauthenticated:
                try:
                    known = self._greet(stranger)
                except Exception as error:
                    log.exception(
                        "internal error in the channel, connection from %s", stranger.remote
                    )
                    self._dismiss(stranger, f"{type(error).__name__}: {error}")
                else:
                    if known is not None:
                        # read data that came with the hello now, because a TLS socket may have
                        # bytes that a selector does not show
                        self._serve(known, selectors.EVENT_READ)
            case UnauthenticatedPeer():
                return  # an earlier event of this turn has closed the connection
            case _ if key.fileobj is self._listener:
                self._accept()
            case _:
                self._alarm_end.recv(4096)

    def _accept(self) -> None:
        try:
            sock, (host, port, *_) = self._listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionError):
            return  # the client has already disconnected
        except OSError as error:
            # no descriptor or memory is left, so the listener pauses and the oldest unauthenticated
            # connection is closed
            self._rejections.note(str(error), "the listener")
            for stranger in list(self._unauthenticated)[:1]:
                self._dismiss(stranger, "no file descriptor is left for other tasks")
            self._selector.unregister(self._listener)
            self._listens_at = time.monotonic() + TICK_S
            return
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is not None:
                # this raises an error if the client has already reset the connection, even after
                # sending bytes
                sock = self._tls.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
            stranger = UnauthenticatedPeer(sock, host, port)
            self._selector.register(stranger.frames, selectors.EVENT_READ, stranger)
        except (OSError, ValueError) as error:
            sock.close()
            self._rejections.note(f"closed immediately: {error}", f"{host}:{port}")
            return
        for dismissed in self._unauthenticated.add(stranger):
            self._dismiss(dismissed, "too many connections without a handshake")

    def _listen_again(self) -> None:
        if self._listens_at is not None and time.monotonic() >= self._listens_at:
            self._listens_at = None
            self._selector.register(self._listener, selectors.EVENT_READ, None)

    def _greet(self, stranger: UnauthenticatedPeer) -> Peer | None:
        """Continue the TLS handshake and read the hello. Return the authenticated lane, or None if
        the hello is not complete yet or is rejected.
        """
        try:
            waiting_for = stranger.shake_hands()
            if not stranger.handshaken:
                self._selector.modify(stranger.frames, waiting_for, stranger)
                return None
            stranger.read()
            first = stranger.frames.reader.next_frame()
            if first is None:
                self._selector.modify(stranger.frames, selectors.EVENT_READ, stranger)
                return None
            identity = self._admit(first)
        except (ClosedByPeer, AuthenticationFailed, CorruptData) as error:
            # CorruptData is also raised for a frame that is longer or shorter than a hello
            self._dismiss(stranger, str(error.args[0]))
            return None
        self._unauthenticated.pop(stranger, None)
        stranger.frames.reader.max_frame_bytes = MAX_FRAME_BYTES
        peer = Peer(stranger.frames, self._codec, identity, self._wake)
        self._selector.modify(stranger.frames, selectors.EVENT_READ, peer)
        self._peers.add(peer)
        log.info("lane connected: %s, from %s", identity, stranger.remote)
        self._deliver(LaneConnected(peer))
        return peer

    def _dismiss(self, stranger: UnauthenticatedPeer, why: str) -> None:
        if stranger not in self._unauthenticated:
            return
        del self._unauthenticated[stranger]
        self._selector.unregister(stranger.frames)
        stranger.frames.close()
        self._rejections.note(why, stranger.remote)

    def _serve(self, peer: Peer, events: int) -> None:
        with self._ending_on_error(peer):
            if events & selectors.EVENT_READ:
                self._inbox += [(peer, payload) for payload in peer.read()]
            if events & selectors.EVENT_WRITE:
                peer.flush()
        self._update_selector(peer)

    def _deliver_some(self) -> None:
        """Decode and deliver messages for at most DELIVERY_S."""
        until = time.monotonic() + DELIVERY_S
        while self._inbox and time.monotonic() < until:
            peer, payload = self._inbox.popleft()
            if payload is None:
                self._deliver(LaneGone(peer, peer.ending or "closed"))
                continue
            with self._ending_on_error(peer):
                self._deliver(LaneMessage(peer, peer.decode(payload)))
            self._update_selector(peer)

    @contextmanager
    def _ending_on_error(self, peer: Peer) -> Iterator[None]:
        """If the block raises an error, end the peer's connection, and drop the peer's messages."""
        try:
            yield
        except CorruptData as error:
            reason = str(error)
        except Exception as error:
            log.exception("internal error in the channel, %s", peer.identity)
            reason = f"{type(error).__name__}: {error}"
        else:
            return
        peer.ending = peer.ending or reason
        self._inbox = deque(one for one in self._inbox if one[0] is not peer or one[1] is None)

    def _update_selector(self, peer: Peer) -> None:
        """Select the peer's connection for the events that it needs, or close the connection if
        `Peer.ending` is set.
        """
        if peer not in self._peers:
            return
        if peer.ending is not None:
            self._peers.discard(peer)
            self._selector.unregister(peer)
            peer.close_socket()
            log.info("lane disconnected: %s: %s", peer.identity, peer.ending)
            self._inbox.append((peer, None))
            return
        interest = selectors.EVENT_READ | (selectors.EVENT_WRITE if peer.wants_write else 0)
        if self._selector.get_key(peer).events != interest:
            self._selector.modify(peer, interest, peer)

    def _settle_woken(self) -> None:
        with self._woken_lock:
            woken, self._woken = self._woken, set()
        for peer in woken:
            self._update_selector(peer)


# The channel's certificate is created for one run of the driver. Lanes recognize it by its
# fingerprint, which is in the Spark job that starts them. So no certificate authority is needed.


def make_server_context() -> tuple[ssl.SSLContext, str]:
    """Return (TLS context, fingerprint). The context has a new key and certificate, and the
    fingerprint is the certificate's SHA-256 in hex.
    """
    # imported here, because commands that start no lane also import this module
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    from twinlog.cluster.security.tls import secret_file

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "twinlog driver")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        # lanes check only the fingerprint; the dates are for operators who inspect the connection
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=3650))
        .sign(key, hashes.SHA256())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0  # not needed, because no lane resumes a TLS session
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ) + certificate.public_bytes(serialization.Encoding.PEM)
    with secret_file(pem.decode()) as path:
        context.load_cert_chain(path)
    return context, certificate.fingerprint(hashes.SHA256()).hex()


def address_for_executors(master: str | None) -> str:
    """Return the address at which the channel must listen, so that executors can connect. `master`:
    URL of the Spark master, or None if lanes run on this machine. Raises Unreachable if executors
    on other hosts could not connect.
    """
    if master is None or master.startswith("local"):
        return "127.0.0.1"
    return os.environ.get("SPARK_LOCAL_IP") or _outward_address()


def _outward_address() -> str:
    # both remote addresses are reserved for documentation
    for family, remote in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            # no packet is sent, because connecting a datagram socket only selects the interface
            probe.connect((remote, 9))
            return str(probe.getsockname()[0])
    raise _no_address_error("this machine has no route to other networks")


def _no_address_error(why: str) -> Unreachable:
    return Unreachable(
        f"{why}; set SPARK_LOCAL_IP to an address of this machine to which executors can connect",
        code="CHANNEL_UNREACHABLE",
    )
