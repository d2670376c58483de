# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Has the kernel kill a process when its parent ends."""

from __future__ import annotations

import ctypes
import os
import signal

PR_SET_PDEATHSIG = 1

# Looked up here: after a fork another thread may have had the lock of the loader.
_prctl = ctypes.CDLL(None, use_errno=True).prctl


def die_with(parent: int) -> bool:
    """Have the kernel kill this process when its parent ends, or the thread of the
    parent that has started it. A program that is run as another user is not killed.

    Args:
        parent: the process ID of the parent.

    Returns:
        False if the parent has ended already.

    Raises:
        OSError: the kernel refuses.
    """
    if _prctl(PR_SET_PDEATHSIG, signal.SIGKILL) < 0:
        raise OSError(ctypes.get_errno(), "prctl")
    return os.getppid() == parent
