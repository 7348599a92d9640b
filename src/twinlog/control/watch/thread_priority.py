"""Threads of the driver that give way to lanes where all cores are busy."""

from __future__ import annotations

import os
import sys
import threading


def give_way(nice: int) -> None:
    """Only this thread and those that it starts: Linux alone has a priority for each, see sched(7).
    The main thread keeps its own, which all threads and processes that it starts would inherit.
    """
    if sys.platform == "linux" and threading.current_thread() is not threading.main_thread():
        thread = threading.get_native_id()
        wanted = max(nice, os.getpriority(os.PRIO_PROCESS, thread))
        os.setpriority(os.PRIO_PROCESS, thread, wanted)
