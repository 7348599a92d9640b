"""The CPU time and memory of a program and of all processes that it has started."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.copier import end_session
from benchmarks.process_tree import ProcessTree, members_of, parse_pss, parse_stat, read_processes

STAT = "{pid} ({name}) S {parent} {pid} {session} 0 -1 4194304 1 2 3 4 {times} 20 0 1 0 {start} 9 9"

BUSY = "import time; end = time.process_time() + {}\nwhile time.process_time() < end: pass\n"


def stat_line(
    pid: int,
    parent: int,
    session: int,
    *,
    times: tuple[int, int, int, int] = (0, 0, 0, 0),
    name: str = "x",
) -> str:
    words = " ".join(map(str, times))
    return STAT.format(
        pid=pid, parent=parent, session=session, times=words, name=name, start=100 + pid
    )


def fake_proc(folder: Path, *lines: str) -> Path:
    for line in lines:
        home = folder / line.split()[0]
        home.mkdir(exist_ok=True)
        (home / "stat").write_text(line)
        (home / "cmdline").write_bytes(b"program\0--number\0" + line.split()[0].encode())
        (home / "smaps_rollup").write_text(
            "00-ff ---p\nRss:  90 kB\nPss:  10 kB\nPss_Dirty: 7 kB\n"
        )
    return folder


def test_name_may_hold_spaces_and_parentheses() -> None:
    stat = parse_stat(stat_line(12, 1, 12, times=(100, 50, 30, 20), name="a) R (b c"))
    assert (stat.pid, stat.parent, stat.session, stat.started_ticks) == (12, 1, 12, 112)
    assert [stat.own_s, stat.waited_s] == pytest.approx([1.5, 0.5])


@pytest.mark.parametrize(("text", "expected"), [(b"Pss:    3 kB\nPss_Anon: 9 kB", 3072), (b"", 0)])
def test_pss_is_the_sum_line_only(text: bytes, expected: int) -> None:
    assert parse_pss(text) == expected


def test_orphans_of_the_session_and_descendants_of_other_sessions_are_members(
    tmp_path: Path,
) -> None:
    proc = fake_proc(
        tmp_path,
        stat_line(10, 1, 10),
        stat_line(11, 10, 10),
        stat_line(12, 1, 10),  # its parent has died
        stat_line(13, 11, 13),  # has created its own session
        stat_line(20, 1, 20),
    )
    found = members_of(10, read_processes(proc))
    assert sorted(stat.pid for stat in found) == [10, 11, 12, 13]


def test_time_of_ended_children_counts_once(tmp_path: Path) -> None:
    fake_proc(tmp_path, stat_line(10, 1, 10), stat_line(11, 10, 10, times=(300, 0, 0, 0)))
    tree = ProcessTree(10, tmp_path)
    assert tree.cpu_s() == pytest.approx(3)
    gone = tmp_path / "11"
    for file in gone.iterdir():
        file.unlink()
    gone.rmdir()
    fake_proc(tmp_path, stat_line(10, 1, 10, times=(0, 0, 300, 0)))
    assert tree.cpu_s() == pytest.approx(3)


def test_time_of_a_child_that_nobody_waited_for_is_not_lost(tmp_path: Path) -> None:
    fake_proc(tmp_path, stat_line(10, 1, 10), stat_line(11, 10, 10, times=(200, 0, 0, 0)))
    tree = ProcessTree(10, tmp_path)
    tree.look()
    for file in (tmp_path / "11").iterdir():
        file.unlink()
    fake_proc(tmp_path, stat_line(10, 1, 10, times=(50, 0, 0, 0)))
    assert tree.cpu_s() == pytest.approx(2.5)


def test_peak_memory_is_kept_and_appearances_are_found_by_command_line(tmp_path: Path) -> None:
    fake_proc(tmp_path, stat_line(10, 1, 10), stat_line(11, 10, 10))
    tree = ProcessTree(10, tmp_path)
    assert tree.pss_bytes() == 2 * 10 * 1024
    (tmp_path / "11" / "stat").unlink()
    assert tree.pss_bytes() == 10 * 1024
    assert tree.peak_pss_bytes == 2 * 10 * 1024
    assert tree.first_seen("program", "11") is not None
    assert tree.first_seen("program", nth=3) is None
    assert tree.seen_between(0, time.monotonic()) == 2


def test_a_process_that_becomes_another_program_appears_again(tmp_path: Path) -> None:
    fake_proc(tmp_path, stat_line(10, 1, 10))
    tree = ProcessTree(10, tmp_path)
    tree.look()
    (tmp_path / "10" / "cmdline").write_bytes(b"java\0Main")
    tree.look()
    assert tree.first_seen("program") is not None
    assert tree.first_seen("java", "Main") is not None
    assert tree.seen_between(0, time.monotonic()) == 1


def test_real_processes_are_added_up_also_after_their_end() -> None:
    parent = (
        "import subprocess, sys, time\n"
        f"subprocess.run([sys.executable, '-c', {BUSY.format(0.3)!r}], check=True)\n"
        + BUSY.format(0.2)
        + "print('done', flush=True); time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", parent], stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"done\n"
            tree = ProcessTree(process.pid)
            assert 0.4 < tree.cpu_s() < 3
            assert tree.pss_bytes() > 1_000_000
        finally:
            end_session(process)
    assert process.poll() is not None
