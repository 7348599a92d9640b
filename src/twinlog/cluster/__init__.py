"""Access to one Kafka cluster over the network.

Read `client` first: it finds brokers and sends requests. `net` has its connections and retries, and
`security` has TLS and SASL. `logs`, `topics` and `groups` have the requests about partitions,
topics and consumer groups. `group_messages` defines messages that the client library lacks.
This package limits how much of that library is loaded (`spare_clients`). `certificates` finds when
certificates expire.
"""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType
from typing import Any, Final

NAME: Final = "kafka"


class _NotRun(ModuleType):
    """The package `kafka`, whose `__init__` has not run yet. Access to an attribute that is no
    submodule runs the `__init__`.
    """

    def __getattr__(self, name: str) -> Any:
        if importlib.util.find_spec(f"{NAME}.{name}") is not None:
            raise AttributeError(name)  # makes the import system import only the submodule `name`
        self.__class__ = ModuleType  # type: ignore[assignment]
        spec = self.__spec__
        assert spec is not None and spec.loader is not None  # noqa: S101
        spec.loader.exec_module(self)
        return getattr(self, name)


def spare_clients() -> None:
    """Register the package `kafka` without running its `__init__`. Has no effect if the package is
    already imported.

    `import kafka.protocol` would first run the `__init__` of `kafka`, which imports an admin
    client, a consumer and a producer in 110 modules. Twinlog does not use these modules, but they
    would cost every process, and so every lane, 0.2 s of CPU and 20 MB. So the `__init__` runs only
    if other code in the same process needs it (`from kafka import KafkaConsumer`).
    """
    if NAME in sys.modules or (spec := importlib.util.find_spec(NAME)) is None:
        return
    package = importlib.util.module_from_spec(spec)
    package.__class__ = _NotRun
    sys.modules[NAME] = package


spare_clients()
