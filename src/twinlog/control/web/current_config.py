"""The current configuration, for the thread that handles requests."""

from __future__ import annotations

from dataclasses import dataclass

from twinlog.config.flow.schema import MirrorConfig


@dataclass(slots=True)
class CurrentConfig:
    """The current configuration. A reload replaces it in one assignment, without a lock."""

    config: MirrorConfig

    def replace(self, config: MirrorConfig) -> None:
        """Replace the configuration. Authentication stays as it was when listening began."""
        self.config = config
