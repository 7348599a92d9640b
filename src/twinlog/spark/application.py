"""Starts the application of transforms: a separate process with its own Spark (ADR 40).

    parent                                 application
      | -- TransformsWork (standard input) -->|   the transforms of the flow
      | -- RangePorts ----------------------->|   the ports of all lanes, when lanes start or end
      | <- ApplicationReady (standard output) |   the functions are imported and checked
      | <- FirstRangeAnswered ----------------|   the first range has its answer
      | <- RecordSkipped ---------------------|   with `on-error` skip or quarantine

Each message is a line of JSON. The application ends when its standard input is closed, so it never
outlives its parent. The application runs code of users, so it gets no configuration file. From the
parent's environment it gets only variables without credentials, and variables that the operator
names.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from typing import Final

from twinlog.channel.codec import Message, MessageCodec
from twinlog.channel.frames import ChannelAddress
from twinlog.config.flow.transforms import OnError
from twinlog.config.values.renames import SOURCE_NAME, RemoteName

MODULE: Final = "twinlog.transforms.application"
STOP_WITHIN_S: Final = 5.0
PASSED: Final = frozenset(
    (
        *("HOME", "LANG", "LANGUAGE", "LC_ALL", "LOGNAME", "PATH", "TMPDIR", "TZ", "USER"),
        *("JAVA_HOME", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV"),
        *("HADOOP_CONF_DIR", "SPARK_CONF_DIR", "SPARK_HOME", "SPARK_LOCAL_IP"),
    )
)
"""Names of the environment variables that the application gets from its parent."""
FREES_SOON: Final = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_ARENA_MAX": "2",
    "MALLOC_MMAP_THRESHOLD_": "131072",
    "MALLOC_TRIM_THRESHOLD_": "131072",
}
"""Environment variables that make Python, PyArrow and the JVM return memory to the system after a
large record.
"""


class TransformStep(Message, frozen=True, kw_only=True):
    """One transform of a flow. Either `function` or `sql` is not empty."""

    name: str
    topics: tuple[str, ...]
    """Names and regular expressions of the topics to which the transform is applied."""
    compares: RemoteName = SOURCE_NAME
    """Which name of a topic is compared with `topics`."""
    is_negated: bool = False
    """If True, the transform is applied to all topics that do not match `topics`."""
    function: str = ""
    sql: str = ""


class TransformsWork(Message, frozen=True, kw_only=True):
    """The parent's first message: the transforms of a flow."""

    flow: str
    steps: tuple[TransformStep, ...]
    """The steps in the order in which they are applied."""
    on_error: OnError
    memory_bytes: int
    """Maximum memory of the application, including its JVM and its Python workers, in bytes."""


class RangePorts(Message, frozen=True, kw_only=True):
    """The addresses at which all current lanes offer ranges, each with its ticket."""

    ports: tuple[ChannelAddress, ...]


class ApplicationReady(Message, frozen=True, kw_only=True):
    """The application can process ranges: all functions are imported and checked."""

    varying: tuple[str, ...] = ()
    """Names of transforms whose Spark plan is not deterministic."""


class FirstRangeAnswered(Message, frozen=True, kw_only=True):
    """The application has answered its first range, which shows that its transforms can run."""


class RecordSkipped(Message, frozen=True, kw_only=True):
    """A record that is left out or written to the dead-letter topic, because a transform failed."""

    topic: str
    partition: int
    offset: int
    text: str
    """Why the transform failed, without values of the record."""


class ApplicationFailed(Message, frozen=True, kw_only=True):
    """The application ends because a transform cannot be used, or because of Spark or memory.

    The parent starts the application again. With `--once`, the parent starts it again only if the
    code is TRANSFORM_UNAVAILABLE: Spark has ended, or the processes have exceeded `memory_bytes`.
    """

    message: str
    code: str


APPLICATION_MESSAGES: Final = (
    TransformsWork,
    RangePorts,
    ApplicationReady,
    FirstRangeAnswered,
    RecordSkipped,
    ApplicationFailed,
)


class TransformsApplication:
    """The running application of transforms, from the parent's view."""

    def __init__(self, work: TransformsWork, *, environment: Collection[str] = ()) -> None:
        """`environment`: names of environment variables to pass in addition to PASSED."""
        self._codec = MessageCodec(APPLICATION_MESSAGES)
        self.process = subprocess.Popen(
            [sys.executable, "-m", MODULE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment_of(os.environ, environment),
            start_new_session=True,  # a Ctrl-C reaches only the parent, which stops this child
        )
        assert self.process.stdin is not None  # noqa: S101 (a pipe)
        assert self.process.stdout is not None  # noqa: S101 (a pipe)
        self._stdin, self._stdout = self.process.stdin, self.process.stdout
        self._send(work)

    def connect(self, ports: RangePorts) -> None:
        """Make the application process the ranges of exactly these lanes."""
        self._send(ports)

    def messages(self) -> Iterator[Message]:
        """Yield the application's messages until the application ends. Blocks. Raises
        CorruptData.
        """
        for line in self._stdout:
            yield self._codec.decode(line)

    def stop(self) -> None:
        """End the application with its JVM and workers. Kills it after STOP_WITHIN_S."""
        with suppress(BrokenPipeError):
            self._stdin.close()
        try:
            self.process.wait(STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._stdout.close()

    def kill(self) -> None:
        """Kill the application without waiting. The iterator `messages` then ends."""
        self.process.kill()

    def _send(self, message: Message) -> None:
        self._stdin.write(self._codec.encode(message) + b"\n")
        self._stdin.flush()


def environment_of(environment: Mapping[str, str], names: Collection[str] = ()) -> dict[str, str]:
    """Return the application's environment. `names`: names to pass in addition to PASSED."""
    passed = {name: value for name, value in environment.items() if name in PASSED or name in names}
    return FREES_SOON | passed
