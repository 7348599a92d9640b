"""The configuration that holds now, for the thread that answers requests."""

from __future__ import annotations

from dataclasses import dataclass

from twinlog.config.flow.schema import MirrorConfig


@dataclass(slots=True)
class CurrentConfig:
    """A reload puts another configuration here, in one assignment."""

    config: MirrorConfig

    def replace(self, config: MirrorConfig) -> None:
        """From now on; who may come in stays as it was when the process began to listen."""
        self.config = config
