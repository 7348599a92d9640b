"""Access to one Kafka cluster over the network.

Read `client` first: it finds brokers and sends requests. `net` has its connections and retries, and
`security` TLS and SASL. `logs`, `topics` and `groups` have the requests, by their subject.
`group_messages` defines messages that the client library lacks, and this package limits how much of
that library is loaded (`spare_clients`). `certificates` finds when certificates expire.
"""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType
from typing import Any, Final

NAME: Final = "kafka"


class _NotRun(ModuleType):
    """The package before it was run. It runs on the first access to anything but a submodule."""

    def __getattr__(self, name: str) -> Any:
        if importlib.util.find_spec(f"{NAME}.{name}") is not None:
            raise AttributeError(name)  # the import system then imports this submodule only
        self.__class__ = ModuleType  # type: ignore[assignment]
        spec = self.__spec__
        assert spec is not None and spec.loader is not None  # noqa: S101
        spec.loader.exec_module(self)
        return getattr(self, name)


def spare_clients() -> None:
    """Register the package `kafka` without running it. Has no effect after the first import of it.

    `import kafka.protocol` first runs that package, which imports an admin client, a consumer and a
    producer in 110 modules. They would cost every process, and so every lane, 0.2 s of CPU and
    20 MB for nothing. So the package is run later, if other code in the same process needs it
    (`from kafka import KafkaConsumer`).
    """
    if NAME in sys.modules or (spec := importlib.util.find_spec(NAME)) is None:
        return
    package = importlib.util.module_from_spec(spec)
    package.__class__ = _NotRun
    sys.modules[NAME] = package


spare_clients()
