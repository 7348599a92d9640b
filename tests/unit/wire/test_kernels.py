"""The compiled loops and their twin: one verdict and result; what happens without a library."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hatch_build import compile_kernels
from tests.support.kernel_fuzz import Difference, Fuzzer, use
from tests.support.records import SAMPLE
from twinlog.control.process.slow_kernels import say_slow_kernels
from twinlog.errors import CorruptData
from twinlog.wire import kernels
from twinlog.wire.kernels.chosen import CHOSEN, VARIABLE, Chosen
from twinlog.wire.kernels.library import NAME, VERSION, Library, NotLoaded
from twinlog.wire.kernels.twin import TWIN
from twinlog.wire.record_batch import HEADER_BYTES, Codec
from twinlog.wire.records import decode_batch, encode_batch, first_record

FOLDER = Path(kernels.__file__).parent
compiled = pytest.mark.skipif(
    not CHOSEN.is_compiled, reason=f"the kernels are not compiled here: {CHOSEN.why_slow}"
)
with_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")


@pytest.fixture
def _twin() -> Iterator[None]:
    with use(TWIN):
        yield


@compiled
@pytest.mark.parametrize("seed", range(4))
def test_damaged_batches_get_the_same_verdict(seed: int) -> None:
    fuzzer = Fuzzer(seed)
    fuzzer.run(5_000)
    assert fuzzer.accepted > 1_000
    assert fuzzer.refused > 1_000


@with_compiler
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("if (at != end) return 0;", ""),
        ("one.delta <= last_delta ||", ""),
        ("count > state[FEW]", "0"),
        ("delta, records + n) - out", "delta, n) - out"),
        ("value ^= (u32)data[n]", "value += (u32)data[n] + 1"),
        ("if (!state[IS_CHECKED] && big32(head + 17)", "if (0 && big32(head + 17)"),
        ("raw &= 0xFFFFFFFFu", "raw &= 0xFFFFFFFFFu"),
        ("else *at = 0;", "else *at = 2;"),
    ],
    ids=["fields end", "deltas rise", "few", "numbers", "rest of a key", "crc", "32 bits", "none"],
)
def test_a_kernel_that_is_wrong_is_found(tmp_path: Path, right: str, wrong: str) -> None:
    source = (FOLDER / "kernels.c").read_text()
    assert source.count(right) == 1
    (tmp_path / "kernels.c").write_text(source.replace(right, wrong))
    assert compile_kernels(tmp_path / "kernels.c", tmp_path / NAME)
    library = Library(tmp_path / NAME)
    with pytest.raises(Difference):
        for seed in range(20):
            Fuzzer(seed, library).run(1_000)


@compiled
def test_a_lane_loads_them_in_no_time() -> None:
    """CPU time of a fresh process; the goal is 0.2 s, and a hundredth of it is usual."""
    program = (
        "import time; t = time.process_time(); import ctypes; a = time.process_time()\n"
        "from pathlib import Path; from twinlog.wire.kernels.library import Library\n"
        f"b = time.process_time(); Library(Path({str(FOLDER / NAME)!r}))\n"
        "print(time.process_time() - b + a - t)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert float(done.stdout) < 0.2


@with_compiler
def test_set_up_compiles_them_and_leaves_none_of_an_older_source(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compile_kernels(FOLDER / "kernels.c", tmp_path / NAME)
    assert Library(tmp_path / NAME)
    (tmp_path / "bad.c").write_text("int twinlog_version(void) { return }")
    assert not compile_kernels(tmp_path / "bad.c", tmp_path / NAME)
    assert "Twinlog will be slower" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [tmp_path / "bad.c"]


def test_a_missing_compiler_is_said_and_may_be_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    assert not compile_kernels(FOLDER / "kernels.c", tmp_path / NAME)
    assert "no-such-compiler" in capsys.readouterr().err
    monkeypatch.setenv(VARIABLE, "compiled")
    with pytest.raises(SystemExit, match="kernels are not compiled"):
        compile_kernels(FOLDER / "kernels.c", tmp_path / NAME)


def test_without_a_library_the_twin_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    chosen = Chosen(tmp_path / NAME)
    assert chosen.kernels is TWIN
    assert not chosen.is_compiled
    assert NAME in str(chosen.why_slow)


def test_a_mirror_says_once_that_it_is_slow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    say_slow_kernels(Chosen(tmp_path / NAME))
    (line,) = caplog.messages
    assert "[KERNELS_MISSING]" in line
    assert NAME in line


@compiled
def test_a_mirror_says_nothing_of_kernels_that_are_there(
    caplog: pytest.LogCaptureFixture,
) -> None:
    say_slow_kernels(Chosen(FOLDER / NAME))
    assert caplog.messages == []


def test_what_is_no_library_is_not_loaded(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(b"\x7fELF and nothing more")
    with pytest.raises(NotLoaded):
        Library(tmp_path / NAME)


@with_compiler
def test_a_library_of_another_release_is_not_loaded(tmp_path: Path) -> None:
    source = (FOLDER / "kernels.c").read_text()
    other = source.replace(f"return {VERSION};", f"return {VERSION + 1};")
    assert other != source
    (tmp_path / "kernels.c").write_text(other)
    assert compile_kernels(tmp_path / "kernels.c", tmp_path / NAME)
    with pytest.raises(NotLoaded, match="another release"):
        Library(tmp_path / NAME)


def test_the_twin_can_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, VARIABLE, "python")
    assert Chosen(FOLDER / NAME).kernels is TWIN


@pytest.mark.usefixtures("_twin")
def test_the_twin_reads_what_is_written_and_says_what_is_wrong() -> None:
    batch = bytes(encode_batch(SAMPLE, codec=Codec.ZSTD))
    assert decode_batch(memoryview(batch)) == SAMPLE
    assert first_record(memoryview(batch)) == SAMPLE[0]
    plain = bytearray(encode_batch(SAMPLE, codec=Codec.NONE))
    plain[HEADER_BYTES] = 0x7F
    with pytest.raises(CorruptData, match="record 0 of 5 is corrupt: its length leads to byte"):
        decode_batch(memoryview(plain))
