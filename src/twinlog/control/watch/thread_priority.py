"""Priority of driver threads below lanes, for when all cores are busy."""

from __future__ import annotations

import os
import sys
import threading


def give_way(nice: int) -> None:
    """Lower the priority of this thread and those that it starts. Only Linux has a priority per
    thread, see sched(7). The main thread is left alone, because everything that it starts would
    inherit the priority.
    """
    if sys.platform == "linux" and threading.current_thread() is not threading.main_thread():
        thread = threading.get_native_id()
        wanted = max(nice, os.getpriority(os.PRIO_PROCESS, thread))
        os.setpriority(os.PRIO_PROCESS, thread, wanted)
