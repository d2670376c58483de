# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Has the kernel kill a process when its parent ends.

As a program, this module does so for another program, and then becomes that program. A
process that has threads may not do it between its fork and its exec.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import Sequence

PR_SET_PDEATHSIG = 1


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
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL) < 0:
        raise OSError(ctypes.get_errno(), "prctl")
    return os.getppid() == parent


def main(argv: Sequence[str]) -> int:
    """Become a program that is killed when its parent ends. It blocks no signal, and
    ignores none of those that Python ignores.

    Args:
        argv: the process ID of the parent, a file descriptor to which the ``errno`` is
            written if the program cannot be run, and the program: its absolute path
            and its arguments.

    Returns:
        1. It returns only if the program cannot be run.
    """
    parent, failure, *command = argv
    os.set_inheritable(int(failure), False)
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(ignored, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    try:
        if die_with(int(parent)):
            os.execv(command[0], command)
    except OSError as error:
        os.write(int(failure), str(error.errno).encode())
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
