"""Creates the site's source folder, and runs Sphinx on it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from tools.site import reference

ROOT: Final = Path(__file__).parents[2]
FILES: Final = (
    *("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "LICENSE", "pyproject.toml"),
    "tests/support/README.md",
)
FOLDERS: Final = ("docs", "deploy")

_INDEX: Final = '<meta http-equiv="refresh" content="0; url=README.html">\n'
_FOLDER_LINK: Final = re.compile(r"(\]\()([^):#]+/)\)")


def stage(source: Path) -> None:
    """Create the folder `source` with all pages, the files that they link to, and the generated
    pages.
    """
    shutil.rmtree(source, ignore_errors=True)
    for name in FOLDERS:
        shutil.copytree(ROOT / name, source / name)
    for name in FILES:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, source / name)
    for page in source.rglob("*.md"):
        _name_readmes(page)
    (source / "reference").mkdir()
    (source / "reference" / "commands.md").write_text(reference.commands())
    (source / "reference" / "python.md").write_text(reference.python_api())


def _name_readmes(page: Path) -> None:
    """Replace links to a folder by links to the folder's README, as code hosts show it."""

    def named(match: re.Match[str]) -> str:
        has_one = (page.parent / match[2] / "README.md").is_file()
        return f"{match[1]}{match[2]}README.md)" if has_one else match[0]

    text = page.read_text()
    if (changed := _FOLDER_LINK.sub(named, text)) != text:
        page.write_text(changed)


def build(source: Path, output: Path) -> subprocess.CompletedProcess[str]:
    """Build the site from the pages in `source`. The exit code is 1 if Sphinx has warned."""
    done = sphinx("html", source, output)
    (output / "index.html").write_text(_INDEX)
    return done


def sphinx(builder: str, source: Path, output: Path) -> subprocess.CompletedProcess[str]:
    """Run Sphinx with this folder's configuration, and with warnings as errors.

    `builder`: "html", or "dummy" to check everything without writing files.
    """
    options = ["-W", "--keep-going", "-q", "-b", builder, "-c", str(Path(__file__).parent)]
    command = [sys.executable, "-m", "sphinx", *options, str(source), str(output)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
