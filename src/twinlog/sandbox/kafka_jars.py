"""Downloads Kafka's jars once into a cache folder, with the Ivy that is part of PySpark.

A set of jars is a folder `<cache>/<set>-<version>`. Ivy writes into a temporary folder, which gets
this name only if its jars are complete and have the known checksums. If several processes start at
the same time, a file lock lets one of them download, and the other ones wait.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple
from xml.sax.saxutils import quoteattr

from twinlog.errors import EnvironmentMissing
from twinlog.extras import require_extra
from twinlog.folders import cache_folder, usable
from twinlog.java import find_java

KAFKA_VERSION = "4.3.0"

_ATTEMPTS = 2
"""Number of download attempts. Most failures are temporary."""

_TIMEOUT_SECONDS = 900


class _JarSet(NamedTuple):
    """An artifact of Kafka, with the jars that it needs."""

    folder: str
    what: str
    artifact: str
    version: str


# Kafka logs through slf4j 1.7 but does not depend on a binding, without which a broker's log is
# empty.
_LOGGING: Final = ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4")


def default_cache(environment: Mapping[str, str]) -> Path:
    """Return the folder in TWINLOG_CACHE, or else this user's cache folder."""
    chosen = environment.get("TWINLOG_CACHE")
    return Path(chosen) if chosen else cache_folder(environment)


def find_or_fetch(cache: Path | None = None, version: str = KAFKA_VERSION) -> Path:
    """Return the folder of the jars of a broker of this version. Downloads them if necessary."""
    jars = _JarSet(f"kafka-{version}", f"Kafka {version}", "kafka_2.13", version)
    return _find_or_fetch(jars, cache)


def mirror_maker_jars(cache: Path | None = None) -> Path:
    """Return the folder of MirrorMaker 2's jars, for the benchmark and for compatibility tests."""
    folder, what = f"mirror-maker-{KAFKA_VERSION}", f"MirrorMaker 2 {KAFKA_VERSION}"
    return _find_or_fetch(_JarSet(folder, what, "connect-mirror", KAFKA_VERSION), cache)


def _find_or_fetch(jars: _JarSet, cache: Path | None) -> Path:
    cache = (cache or default_cache(os.environ)).absolute()
    folder = cache / jars.folder
    if (folder / "complete").exists():
        return folder
    todo = "set TWINLOG_CACHE to a writable folder, or to one that already has Kafka's jars"
    with usable(cache, todo):
        cache.mkdir(parents=True, exist_ok=True)
        with _locked(cache / "lock"):
            if not (folder / "complete").exists():
                _fetch(jars, cache, folder)
    return folder


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # closing the file releases the lock, also after a crash
        yield


def _fetch(jars: _JarSet, cache: Path, folder: Path) -> None:
    if not known_sums(jars.folder):
        raise EnvironmentMissing(
            f"{jars.what} is not a version whose jars Twinlog has checksums of; use a version in "
            f"{LIST}"
        )
    sys.stderr.write(f"fetching {jars.what} into {folder}\n")
    shutil.rmtree(folder, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix=".fetch-") as scratch:
        new = Path(scratch) / "jars"
        new.mkdir()
        _run_ivy(jars, cache, new)
        _check_jars(jars, cache, new)
        (new / "complete").touch()
        new.rename(folder)


def _run_ivy(jars: _JarSet, cache: Path, into: Path) -> None:
    module = into.parent / "ivy.xml"
    module.write_text(_ivy_module(jars), encoding="utf-8")
    command = [str(find_java()), "-jar", str(_ivy_jar()), "-ivy", str(module), "-confs", "default"]
    # snappy-java and other jars have the type bundle; without it, a broker cannot read snappy
    command += ["-types", "jar", "bundle", "-cache", str(cache / "ivy")]
    command += ["-retrieve", f"{into}/[artifact]-[revision](-[classifier]).[ext]"]
    output = ""
    for _ in range(_ATTEMPTS):
        try:
            answer = subprocess.run(
                command,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
                timeout=_TIMEOUT_SECONDS,
            )
        except subprocess.TimeoutExpired:
            output = f"no response within {_TIMEOUT_SECONDS} s"
            continue
        if answer.returncode == 0 and any(into.glob("*.jar")):
            return
        output = answer.stdout
    raise EnvironmentMissing(
        f"the jars of {jars.what} could not be downloaded ({_reason(output)}); check the network"
        " (behind a proxy: JAVA_TOOL_OPTIONS='-Dhttps.proxyHost=... -Dhttps.proxyPort=...')"
        " and try again"
    )


def _reason(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if "UNRESOLVED" in line or "ERROR" in line.upper()]
    return (errors or lines or ["no output"])[0]


def _ivy_module(jars: _JarSet) -> str:
    dependencies = "".join(
        f"<dependency org={quoteattr(organisation)} name={quoteattr(name)}"
        f' rev={quoteattr(version)} conf="default->default"/>'
        for organisation, name, version in (
            ("org.apache.kafka", jars.artifact, jars.version),
            _LOGGING,
        )
    )
    return (
        '<ivy-module version="2.0"><info organisation="twinlog" module="sandbox"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{dependencies}</dependencies></ivy-module>"
    )


def _ivy_jar() -> Path:
    # find_spec, because importing pyspark would take half a second
    require_extra("pyspark", "spark", "fetching Kafka's jars")
    pyspark = importlib.util.find_spec("pyspark")
    folder = "" if pyspark is None else pyspark.origin or ""
    jars = sorted((Path(folder).parent / "jars").glob("ivy-*.jar"))
    if not jars:
        raise EnvironmentMissing(
            "pyspark has no Ivy in its jars folder: pip install --force-reinstall pyspark"
        )
    return jars[-1]


# Checks that downloaded jars are byte-identical to those with which Twinlog was tested.
#
# Brokers of the sandbox run these jars as code. Ivy only compares a download with a checksum from
# the same server, so Twinlog's package contains a list of checksums. The list has the format of
# `sha256sum`, with names relative to the cache folder. So `sha256sum -c` in that folder checks the
# installed jars.
#
# A set must have no other jars, because the class path is the whole folder.

LIST: Final = Path(__file__).with_name("kafka_jars.sha256")


def known_sums(name: str) -> dict[str, str]:
    """Return the checksums of the jars in set `name`, by file name. Empty if the set is unknown."""
    lines = (line.split() for line in LIST.read_text(encoding="ascii").splitlines())
    return {path.partition("/")[2]: digest for digest, path in lines if path.startswith(f"{name}/")}


def _check_jars(jars: _JarSet, cache: Path, folder: Path) -> None:
    """Raise EnvironmentMissing unless the folder has exactly the jars of the set, by SHA-256."""
    known = known_sums(jars.folder)
    sums = {path.name: _sum_of(path) for path in sorted(folder.iterdir())}
    for jar in sorted(known.keys() | sums.keys()):
        if sums.get(jar) == known.get(jar):
            continue
        if jar not in sums:
            why = f"{jar} is missing"
        elif jar not in known:
            why = f"{jar} does not belong to it"
        else:
            why = f"{jar} is a different file: its SHA-256 is {sums[jar]}, expected {known[jar]}"
        raise EnvironmentMissing(
            f"{jars.what} was downloaded, but {why}; nothing was installed; check which server the "
            f"jars came from (a proxy?), move Ivy's copies in {cache / 'ivy'} away, and try again"
        )


def _sum_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
