"""The process that runs transforms: gets ranges from lanes, and transforms them with Spark (ADR
40).

A lane offers a range of source records, and this process answers with the transformed records. A
round answers all waiting ranges that have the same chain of transforms, up to about a second of
work. A round begins when a range waits and fewer than two rounds are running. So rounds are short
with steady traffic, and large with a backlog. Small rounds begin five times a second at most. The
second round uses the cores while the first one begins and ends, unless both together have too many
bytes. The process has no state, because a lane offers a range again if the answer is lost.
"""

from __future__ import annotations

import logging
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import BinaryIO, Final

from twinlog.channel.codec import Message, MessageCodec
from twinlog.channel.frames import ChannelAddress
from twinlog.channel.lending import LendingClient, RangeOffer
from twinlog.clock import GrowingPause
from twinlog.config.flow.transforms import (
    TRANSFORMS_PREFIX,
    TransformConfig,
    TransformsConfig,
)
from twinlog.config.keys.key_table import TRANSFORMS_MEMORY
from twinlog.config.regex.patterns import compile_names
from twinlog.config.values.origin import Setting
from twinlog.errors import TwinlogError
from twinlog.mirror.copy.range_intake import RANGE_BYTES
from twinlog.mirror.copy.ranges import SourceRange
from twinlog.quantities import first_few
from twinlog.records.daemon import DATA_BYTES
from twinlog.records.lent import LentRanges, RangePart, name_of
from twinlog.spark.application import (
    APPLICATION_MESSAGES,
    ApplicationFailed,
    ApplicationReady,
    FirstRangeAnswered,
    RangePorts,
    RecordSkipped,
    TransformStep,
    TransformsWork,
)
from twinlog.transforms import memory
from twinlog.transforms.loading import check_transform, load_chain
from twinlog.transforms.rounds import LEAST_BYTES, Rounds
from twinlog.transforms.session import local_session
from twinlog.wire.record_batch import Codec

log = logging.getLogger(__name__)

CORES: Final = 2
BATCH_BYTES: Final = 1 << 20
"""Maximum uncompressed size of a batch of transformed records."""
ROUNDS_AT_ONCE: Final = 2
OFFERS_WITHIN_S: Final = 1.0
REPORTED_AFTER: Final = 6
"""Failed connections to a lane's port before a warning. A few are normal, because lanes end."""
AFTER_FAILURE_S: Final = 0.2
ROUND_EVERY_S: Final = 0.2
"""Minimum time in seconds between the beginnings of two rounds with less than LEAST_BYTES. Any
round takes about 0.1 s of CPU. At 500 records/s, a record takes 0.9 ms of CPU instead of 2.1 ms.
"""
MOST_RANGES: Final = 1000
"""Maximum number of ranges in a round. Each needs a request to its lane's port."""

Offered = tuple[ChannelAddress, RangeOffer]


class LanePortWatch:
    """Receives the ranges of records that lanes offer, with a connection and a thread for each
    lane's port.
    """

    def __init__(self) -> None:
        self.offers: queue.SimpleQueue[Offered] = queue.SimpleQueue()
        self.ports: frozenset[ChannelAddress] = frozenset()
        self.connected: set[ChannelAddress] = set()
        """The ports that are connected. Offers of other ports are dropped, because a port offers
        all its ranges again after a reconnect.
        """

    def connect(self, ports: RangePorts) -> None:
        """Receive offers from exactly these ports."""
        before, self.ports = self.ports, frozenset(ports.ports)
        for address in self.ports - before:
            threading.Thread(target=self._watch, args=[address], daemon=True).start()

    def _watch(self, address: ChannelAddress) -> None:
        pause = GrowingPause(first_s=0.1, most_s=5.0)
        while address in self.ports:
            try:
                with LendingClient(address) as port:
                    port.subscribe()
                    self.connected.add(address)
                    while address in self.ports:
                        for offer in port.offers(OFFERS_WITHIN_S):
                            self.offers.put((address, offer))
                        pause.reset()
            except TwinlogError as error:
                log.info("the connection to a lane's port failed: %s", error)
                time.sleep(pause.next_s())
                if pause.failures == REPORTED_AFTER and address in self.ports:
                    log.warning(
                        "this host cannot reach the port of a lane at %s:%d, so transformed "
                        "partitions of that lane wait",
                        address.host,
                        address.port,
                    )
            finally:
                self.connected.discard(address)


@dataclass(slots=True, kw_only=True)
class Application:
    """Answers the ranges of records that lanes offer, in rounds (Spark jobs for several ranges).
    Each worker thread calls `step` repeatedly, once per round.
    """

    begin: Callable[[RangeOffer], Rounds | None]
    """Returns the Rounds for a range's chain of transforms, or None if the chain is unknown."""
    say: Callable[[Message], None]
    bytes_at_once: int = 16 << 20
    """Maximum total bytes of the ranges in running rounds (`Rounds`). A larger range runs alone."""
    watch: LanePortWatch = field(default_factory=LanePortWatch)
    _chains: dict[str, Rounds] = field(default_factory=dict)
    """The Rounds of each chain for which ranges were offered, by the chain's digest."""
    _waiting: dict[Offered, None] = field(default_factory=dict)
    """Offered ranges that no round has taken, in the order of the offers (a dict, because there may
    be thousands).
    """
    _refused: set[str] = field(default_factory=set)
    """Digests of unknown chains, for which a warning was logged."""
    _running: set[Offered] = field(default_factory=set)
    """Ranges in running rounds (`Rounds`). If a lane offers one again, the offer is ignored."""
    _next_at: float = 0.0
    """Monotonic time at which the next small round may begin."""
    _has_answered: bool = False
    """True after the first answer."""
    _picking: threading.Lock = field(default_factory=threading.Lock)
    _has_ended: threading.Event = field(default_factory=threading.Event)
    """Set when a round ends, for a `step` that waits because of `bytes_at_once`."""

    @property
    def is_busy(self) -> bool:
        """True while a round (a Spark job for several ranges) is running."""
        return bool(self._running)

    def step(self, within_s: float | None = None) -> bool:
        """Wait for offers, and run one round. Returns False if no range is offered in time."""
        with self._picking:
            with suppress(queue.Empty):
                if not self._waiting:
                    self._add(self.watch.offers.get(timeout=within_s))
                self._add_offers()
                if _bytes(self._waiting) < LEAST_BYTES:
                    time.sleep(max(0.0, self._next_at - time.monotonic()))
                    self._add_offers()
                self._next_at = time.monotonic() + ROUND_EVERY_S
            taken = self._next_ranges()
            while (running := [*self._running]) and _bytes([*taken, *running]) > self.bytes_at_once:
                self._has_ended.wait()
                self._has_ended.clear()
            self._running.update(taken)
        again: Sequence[Offered] = ()
        try:
            if taken:
                again = self._answer(taken)
        finally:  # must not lock: a step that waits for this round has the lock
            self._running.difference_update(taken)
            self._has_ended.set()
            for offered in again:
                self.watch.offers.put(offered)
        return bool(taken)

    def _add_offers(self) -> None:
        with suppress(queue.Empty):
            while True:
                self._add(self.watch.offers.get_nowait())

    def _add(self, offered: Offered) -> None:
        offer = offered[1]
        if self._runs_transforms_of(offer):
            if offered not in self._running:
                self._waiting[offered] = None
        elif offer.transform not in self._refused:
            self._refused.add(offer.transform)
            what = "transform %s of a lane is unknown: the lane has another configuration file"
            log.warning(what, offer.transform)

    def _runs_transforms_of(self, offer: RangeOffer) -> bool:
        """Return True if the chain of the range is known."""
        digest = offer.transform
        if digest not in self._chains and (made := self.begin(offer)) is not None:
            self._chains[digest] = made
        return digest in self._chains

    def _next_ranges(self) -> list[Offered]:
        """Remove and return the next round's ranges: the first waiting range, and other ranges with
        its chain of transforms.
        """
        usable = self.watch.connected & self.watch.ports
        self._waiting = dict.fromkeys(entry for entry in self._waiting if entry[0] in usable)
        taken: list[Offered] = []
        spans: dict[tuple[str, int], tuple[int, int]] = {}
        size = 0
        for offered in self._waiting:
            offer = offered[1]
            chain = taken[0][1].transform if taken else offer.transform
            if taken and (size >= self._chains[chain].most_bytes or len(taken) >= MOST_RANGES):
                break
            # ranges in one round must not overlap, because the encoder could not decide which range
            # a common row belongs to (`RangeEncoder`)
            first, end = spans.get((offer.topic, offer.partition), (offer.first, offer.first))
            if max(first, offer.first) < min(end, offer.end) or offer.transform != chain:
                continue
            spans[offer.topic, offer.partition] = min(first, offer.first), max(end, offer.end)
            taken.append(offered)
            size += offer.size
        for offered in taken:
            del self._waiting[offered]
        return taken

    def _answer(self, taken: Sequence[Offered]) -> Sequence[Offered]:
        """Run a round for the ranges in `taken`. Returns the ranges that `step` must offer again:
        all of them after an error, else none.
        """
        rounds, addresses = self._chains[taken[0][1].transform], {address for address, _ in taken}
        if not addresses <= set(rounds.lent.ports):
            rounds.connect(tuple(self.watch.ports | addresses))
        try:
            rounds.answer([part_of(offer, address) for address, offer in taken])
        except TwinlogError as error:
            if rounds.is_stopped:
                raise self.ended_error("Spark ended") from error
            # usually the reason is that a lane has ended; to answer some ranges again is harmless
            log.info("a round of %d ranges failed: %s", len(taken), error)
            time.sleep(AFTER_FAILURE_S)
            return taken
        if not self._has_answered:
            self._has_answered = True
            self.say(FirstRangeAnswered())
        skipped = dict[tuple[str, int, int], str]()  # a range of a failed round is answered again
        with suppress(IndexError):
            while True:
                part, failure = rounds.skipped.popleft()
                skipped[part.topic, part.partition, failure.offset] = failure.text
        for (topic, partition, offset), text in skipped.items():
            self.say(RecordSkipped(topic=topic, partition=partition, offset=offset, text=text))
        return ()

    def ended_error(self, why: str) -> TwinlogError:
        """Return the error with which the application ends. It lists the running ranges, because
        one of their records may be the cause.
        """
        running = [*self._running]  # a copy, because other threads change the set
        ranges = (
            f"{offer.topic}-{offer.partition} [{offer.first}, {offer.end})" for _, offer in running
        )
        during = f", while it computed upstream records of {first_few(sorted(ranges))}"
        return TwinlogError(why + (during if running else ""), code="TRANSFORM_UNAVAILABLE")


def _bytes(offered: Iterable[Offered]) -> int:
    return sum(offer.size for _, offer in offered)


def part_of(offer: RangeOffer | SourceRange, address: ChannelAddress) -> RangePart:
    """Return a RangePart that covers the whole range."""
    return RangePart(
        port=name_of(address),
        number=offer.number,
        topic=offer.topic,
        partition=offer.partition,
        first=offer.first,
        end=offer.end,
        size=offer.size if isinstance(offer, RangeOffer) else len(offer.batches),
    )


def run(work: TransformsWork, watch: LanePortWatch, say: Callable[[Message], None]) -> None:
    """Run the application until an error ends it. Raises this error, usually a TwinlogError."""
    os.environ[DATA_BYTES] = str(memory.worker_bytes(work.memory_bytes))
    flags, at_once = memory.jvm_flags(work.memory_bytes), memory.bytes_at_once(work.memory_bytes)
    reserved = {"spark.testing.reservedMemory": str(memory.RESERVED)}
    name = f"twinlog transforms {work.flow}"
    with local_session(name, cores=CORES, flags=flags, settings=reserved) as spark:
        lent = LentRanges(
            ports=(),
            codec=Codec.LZ4,
            max_bytes=BATCH_BYTES,
            payload_bytes=memory.payload_bytes(work.memory_bytes),
        )
        config = config_of(work)
        plans = {transform.name: check_transform(spark, transform) for transform in config.entries}

        def begin(offer: RangeOffer) -> Rounds | None:
            if config.digest_of(offer.topic) != offer.transform:
                return None  # the lane has another version of the configuration file
            chain = config.of_topic(offer.topic)
            return Rounds(
                spark=spark,
                transform=load_chain(chain),
                lent=lent,
                on_error=work.on_error,
                name=", ".join(transform.name for transform in chain),
                cores=CORES,
                # RANGE_BYTES less, because a round may exceed `most_bytes` by one range
                round_bytes=at_once // ROUNDS_AT_ONCE - RANGE_BYTES,
                is_deterministic=all(plans[transform.name].is_deterministic for transform in chain),
            )

        application = Application(begin=begin, say=say, watch=watch, bytes_at_once=at_once)

        def exceeded(used: int) -> None:
            limit = f"{TRANSFORMS_MEMORY} = {work.memory_bytes}"
            say(failed(application.ended_error(f"processes used {used} bytes, more than {limit}")))
            os._exit(1)

        threading.Thread(
            target=memory.watch,
            args=[work.memory_bytes, exceeded, lambda: application.is_busy],
            daemon=True,
        ).start()
        varying = (name for name, plan in plans.items() if not plan.is_deterministic)
        say(ApplicationReady(varying=tuple(varying)))
        errors: queue.SimpleQueue[BaseException] = queue.SimpleQueue()
        for _ in range(ROUNDS_AT_ONCE):
            threading.Thread(target=_work, args=[application, errors], daemon=True).start()
        raise errors.get()


def _work(application: Application, errors: queue.SimpleQueue[BaseException]) -> None:
    """Run rounds until an error ends the application."""
    try:
        while True:
            application.step()
    except BaseException as error:  # noqa: BLE001 (the main thread raises it)
        if isinstance(error, TwinlogError):
            # report before the session is stopped, because the stop fails if the JVM has ended
            application.say(failed(error))
        errors.put(error)


def failed(error: TwinlogError) -> ApplicationFailed:
    return ApplicationFailed(message=error.message, code=error.code)


def config_of(work: TransformsWork) -> TransformsConfig:
    """Return the transforms as in the configuration file, so that their digests are equal."""
    return TransformsConfig(
        entries=tuple(_entry(work.flow, step) for step in work.steps), on_error=work.on_error
    )


def _entry(flow: str, step: TransformStep) -> TransformConfig:
    key = f"{flow}.{TRANSFORMS_PREFIX}{step.name}.{'function' if step.function else 'sql'}"
    return TransformConfig(
        name=step.name,
        topics=compile_names(step.topics, is_negated=step.is_negated),
        compares=step.compares,
        function=step.function,
        sql=step.sql,
        origin=Setting(key=key, value=step.function or step.sql, file=""),
    )


def main() -> None:
    """Run the application in this process. The parent is connected to standard input and output."""
    stdin, stdout = private_streams()
    codec = MessageCodec(APPLICATION_MESSAGES)

    saying = threading.Lock()

    def say(message: Message) -> None:
        with saying:
            stdout.write(codec.encode(message) + b"\n")
            stdout.flush()

    work = codec.decode(stdin.readline())
    # the same format as the mirror's own log lines
    logging.basicConfig(format=f"%(levelname)s {work.flow}: transforms: %(message)s")
    watch = LanePortWatch()
    threading.Thread(target=_obey, args=[stdin, codec, watch], daemon=True).start()
    try:
        run(work, watch, say)
    except TwinlogError as error:
        say(failed(error))
        sys.exit(error.exit_code)


def private_streams() -> tuple[BinaryIO, BinaryIO]:
    """Return private copies of standard input and output. Users' code then reads an empty standard
    input, and its output goes to standard error.
    """
    stdin, stdout = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return stdin, stdout


def _obey(stdin: BinaryIO, codec: MessageCodec, watch: LanePortWatch) -> None:
    """Process the parent's messages. Ends this process immediately when the parent has ended."""
    try:
        for line in stdin:
            watch.connect(codec.decode(line))
    finally:
        os._exit(0)


if __name__ == "__main__":
    main()
