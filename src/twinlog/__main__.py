"""Runs `python -m twinlog`, and `spark-submit .../twinlog/__main__.py mirror FILE`."""

from __future__ import annotations

import sys
from pathlib import Path

# remove this folder, which Python searches first if it runs a script, because Twinlog's modules
# would hide other modules of the same name
sys.path[:] = [
    folder for folder in sys.path if Path(folder).resolve() != Path(__file__).resolve().parent
]

from twinlog.cli.main import main  # noqa: E402

if __name__ == "__main__":
    main()
