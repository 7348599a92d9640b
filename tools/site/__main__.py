"""Builds the site: python -m tools.site [FOLDER]."""

from __future__ import annotations

import sys
from pathlib import Path

from tools.site import pages

output = Path(sys.argv[1] if len(sys.argv) > 1 else pages.ROOT / "build" / "site")
source = pages.ROOT / "build" / "site-source"
pages.stage(source)
done = pages.build(source, output)
sys.stderr.write(done.stderr)
if done.returncode == 0:
    sys.stdout.write(f"{output / 'index.html'}\n")
sys.exit(done.returncode)
