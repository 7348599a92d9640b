"""The compiled kernels and their Python twin return the same results, and the fallback to the twin
works.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from array import array
from collections.abc import Iterator
from operator import sub
from pathlib import Path
from typing import Final

import pytest

from hatch_build import compile_kernels
from tests.support.kernel_fuzz import Difference, Fuzzer, use
from tests.support.records import SAMPLE
from tests.support.sweeps import sweep
from twinlog.control.process.run import warn_of_slow_kernels
from twinlog.errors import CorruptData
from twinlog.wire import kernels
from twinlog.wire.kernels.chosen import CHOSEN, VARIABLE, ChosenKernels
from twinlog.wire.kernels.library import NAME, VERSION, Library, NotLoaded
from twinlog.wire.kernels.shapes import Kernels, Strings
from twinlog.wire.kernels.twin import TWIN
from twinlog.wire.primitives import encode_varint
from twinlog.wire.record_batch import HEADER_BYTES, Codec
from twinlog.wire.records import decode_batch, encode_batch, encode_headers, first_record

FOLDER = Path(kernels.__file__).parent
compiled = pytest.mark.skipif(
    not CHOSEN.is_compiled,
    reason=f"the kernels are not compiled here: {CHOSEN.not_compiled_reason}",
)
with_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")

QUICKLY = "-O0"
"""Compiler option with which compiling takes a fifth of the usual time."""
FOUND_BY: Final = {
    "deltas rise": 1,
    "headers end": 2,
    "rewritten few": 2,
    "rewritten runs of codecs": 37,
    "lz4 descriptor": 9,
    "lz4 content sum": 2,
    "rewritten fingerprints": 2,
}
"""The first seed that detects a fault in this kernel, if it is not 0. It is tried before the other
seeds.
"""


@pytest.fixture
def _twin() -> Iterator[None]:
    with use(TWIN):
        yield


@pytest.fixture(params=["compiled", "Python"])
def each(request: pytest.FixtureRequest) -> Kernels:
    if request.param == "Python":
        return TWIN
    if not CHOSEN.is_compiled:
        pytest.skip(f"the kernels are not compiled here: {CHOSEN.not_compiled_reason}")
    return CHOSEN.kernels


@compiled
@pytest.mark.parametrize("seed", sweep(range(4), in_gate=1))
def test_damaged_batches_have_the_same_result(seed: int) -> None:
    fuzzer = Fuzzer(seed)
    fuzzer.run(5_000)
    assert fuzzer.accepted > 1_000
    assert fuzzer.refused > 1_000


@with_compiler
def test_kernels_for_processors_without_crc_instructions(tmp_path: Path) -> None:
    assert compile_kernels(FOLDER / "kernels.c", tmp_path / NAME, "-DPORTABLE")
    Fuzzer(1, Library(tmp_path / NAME)).run(5_000)


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
        ("if (at != ends[n]) return BAD;", ""),
        ("if (first == 0xED) high = 0x9F;", "if (first == 0xED) high = 0x9E;"),
        ("has_value[header >> 3] |= (u8)(1u << (header & 7));", "has_value[header >> 3] |= 1;"),
        ("|| key_size < 0) return BAD;", ") return BAD;"),
        ("if (big32(head + 17) != ~after) break;", ""),
        ("if (count > (i64)SEQUENCE_MASK + 1 - sequence) break;", ""),
        ("head[22] &= KEPT_ATTRIBUTES;", ""),
        ("|| length > state[REWRITE_LIMIT]", ""),
        ("offset >= state[REWRITE_END] || offset >", "offset >"),
        ("== next + count)", "== next)"),
        ("!(state[REWRITE_CODECS] >> codec & 1) ||", ""),
        ("if (count < 1 ||", "if ("),
        ("shifted(change, length - HEADER_BYTES)", "shifted(change, length)"),
        ("head[22] & LOG_APPEND_TIME ||", ""),
        ("|| (begins && codec)", ""),
        ("begins = is_control;", "begins = 0;"),
        ("put32(numbers, one.value_size < 0", "put32(numbers, one.key_size < 0"),
        ("match += 4;", "match += 3;"),
        ("if (after && little32(in + at + length) != xxh32(in + at, length)) return BAD;", ""),
        ("if (size <= at || in[at] != (xxh32(in + 4, at - 4) >> 8 & 0xFF)) return BAD;", ""),
        ("little32(in + at) == xxh32(out, filled) ?", "1 ?"),
    ],
    ids=[
        "fields end",
        "deltas rise",
        "few",
        "numbers",
        "rest of a key",
        "crc",
        "32 bits",
        "none",
        "headers end",
        "text",
        "null values",
        "null keys",
        "rewritten crc",
        "rewritten wrap",
        "rewritten attributes",
        "rewritten size",
        "rewritten end",
        "rewritten few",
        "rewritten codec",
        "rewritten count",
        "rewritten shift",
        "rewritten times",
        "rewritten runs of codecs",
        "rewritten runs",
        "rewritten fingerprints",
        "lz4 matches",
        "lz4 block sums",
        "lz4 descriptor",
        "lz4 content sum",
    ],
)
def test_wrong_kernels_are_detected(
    request: pytest.FixtureRequest, tmp_path: Path, right: str, wrong: str
) -> None:
    source = (FOLDER / "kernels.c").read_text()
    assert source.count(right) == 1
    (tmp_path / "kernels.c").write_text(source.replace(right, wrong))
    assert compile_kernels(tmp_path / "kernels.c", tmp_path / NAME, QUICKLY)
    library = Library(tmp_path / NAME)
    found_by = FOUND_BY.get(request.node.callspec.id, 0)
    with pytest.raises(Difference):
        for seed in (found_by, *range(20)):
            Fuzzer(seed, library).run(1_000)


@compiled
@pytest.mark.parametrize("text", [b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82"])
def test_a_key_that_is_not_utf_8_is_handled_by_the_twin(text: bytes) -> None:
    data = b"\x02" + encode_varint(len(text)) + text + b"\x01"
    spans = array("q", [0]), array("q", [len(data)])
    assert CHOSEN.kernels.unpack_headers(data, *spans) is None
    found = TWIN.unpack_headers(data, *spans)
    assert found.keys.decode() == text.decode("utf-8", "replace")


def test_many_headers_of_a_row(each: Kernels) -> None:
    """A row has so many headers that their number has three bytes, and their ends exceed 16 bits.
    Both kernels read all of them.
    """
    headers = [(f"key-{at}", b"%d" % at if at % 3 else None) for at in range(70_000)]
    data = encode_headers(headers)
    found = each.unpack_headers(data, array("q", [0]), array("q", [len(data)]))
    assert found is not None
    assert (found.headers, found.nulls, found.value_nulls) == (70_000, 0, 23_334)
    assert found.keys == b"".join(key.encode() for key, _ in headers)
    columns = [
        Strings(bytes(text), array("q", ends[:-1]), array("q", map(sub, ends[1:], ends)))
        for text, ends in (
            (found.keys, array("i", bytes(found.key_ends))),
            (found.values, array("i", bytes(found.value_ends))),
        )
    ]
    for at in range(0, 70_000, 3):
        columns[1].sizes[at] = -1
    assert each.pack_headers(array("q", [70_000]), *columns).data == data


@compiled
def test_loading_the_kernels_is_fast() -> None:
    """Loading the kernels takes less than 0.2 s of CPU time in a new process. It usually takes a
    hundredth of that.
    """
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
def test_set_up_compiles_them_and_removes_older_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compile_kernels(FOLDER / "kernels.c", tmp_path / NAME)
    assert Library(tmp_path / NAME)
    (tmp_path / "bad.c").write_text("int twinlog_version(void) { return }")
    assert not compile_kernels(tmp_path / "bad.c", tmp_path / NAME)
    assert "Twinlog will be slower" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [tmp_path / "bad.c"]


def test_a_missing_compiler_is_reported_and_may_be_an_error(
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
    chosen = ChosenKernels(tmp_path / NAME)
    assert chosen.kernels is TWIN
    assert not chosen.is_compiled
    assert NAME in str(chosen.not_compiled_reason)


def test_a_mirror_warns_once_about_missing_kernels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    warn_of_slow_kernels(ChosenKernels(tmp_path / NAME))
    (line,) = caplog.messages
    assert "[KERNELS_MISSING]" in line
    assert NAME in line


@compiled
def test_a_mirror_does_not_warn_about_existing_kernels(
    caplog: pytest.LogCaptureFixture,
) -> None:
    warn_of_slow_kernels(ChosenKernels(FOLDER / NAME))
    assert caplog.messages == []


def test_a_file_that_is_no_library_is_not_loaded(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(b"\x7fELF and nothing more")
    with pytest.raises(NotLoaded):
        Library(tmp_path / NAME)


@with_compiler
def test_a_library_of_another_release_is_not_loaded(tmp_path: Path) -> None:
    source = (FOLDER / "kernels.c").read_text()
    other = source.replace(f"return {VERSION};", f"return {VERSION + 1};")
    assert other != source
    (tmp_path / "kernels.c").write_text(other)
    assert compile_kernels(tmp_path / "kernels.c", tmp_path / NAME, QUICKLY)
    with pytest.raises(NotLoaded, match="another release"):
        Library(tmp_path / NAME)


def test_the_twin_can_be_selected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, VARIABLE, "python")
    assert ChosenKernels(FOLDER / NAME).kernels is TWIN


@pytest.mark.usefixtures("_twin")
def test_the_twin_decodes_batches_and_names_corrupt_records() -> None:
    batch = bytes(encode_batch(SAMPLE, codec=Codec.ZSTD))
    assert decode_batch(memoryview(batch)) == SAMPLE
    assert first_record(memoryview(batch)) == SAMPLE[0]
    plain = bytearray(encode_batch(SAMPLE, codec=Codec.NONE))
    plain[HEADER_BYTES] = 0x7F
    with pytest.raises(CorruptData, match="record 0 of 5 is corrupt: its length is"):
        decode_batch(memoryview(plain))
