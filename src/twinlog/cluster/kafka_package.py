"""The library of Kafka's messages, without the clients that it has as well.

`import kafka.protocol` runs the package `kafka` first, which makes an admin client, a consumer and
a producer out of 110 modules: 0.2 s of CPU and 20 MB in each process, of which we use nothing. So
the package is there before it is run; whoever asks it for anything of its own (an application in
the same process, `from kafka import KafkaConsumer`) has it run then.
"""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType
from typing import Any, Final

NAME: Final = "kafka"


class _NotRun(ModuleType):
    """Runs itself when it is asked for something that is no module of its own."""

    def __getattr__(self, name: str) -> Any:
        if importlib.util.find_spec(f"{NAME}.{name}") is not None:
            raise AttributeError(name)  # so that it is imported, and nothing else
        self.__class__ = ModuleType  # type: ignore[assignment]
        spec = self.__spec__
        assert spec is not None and spec.loader is not None  # noqa: S101
        spec.loader.exec_module(self)
        return getattr(self, name)


def spare_clients() -> None:
    """Before the first import of anything of it; no effect where somebody has run it."""
    if NAME in sys.modules or (spec := importlib.util.find_spec(NAME)) is None:
        return
    package = importlib.util.module_from_spec(spec)
    package.__class__ = _NotRun
    sys.modules[NAME] = package
