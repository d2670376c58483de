# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Runs programs of the administrator, on a thread that may wait for them."""

from __future__ import annotations

import errno
import signal
import subprocess
from typing import Sequence, Union


def run(argv: Sequence[str], timeout: float) -> Union[str, OSError]:
    """What a program prints, or why it failed, as
    :meth:`flux_k8s.ports.Flux.run_program`."""
    try:
        ended = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            timeout=timeout,
            check=True,
        )
        return ended.stdout.decode()
    except OSError as error:
        return error
    except subprocess.TimeoutExpired:
        return OSError(errno.ETIMEDOUT, f"it took more than {timeout:g} s")
    except subprocess.CalledProcessError as error:
        return OSError(errno.EIO, _end(error.returncode))
    except UnicodeDecodeError:
        return OSError(errno.EILSEQ, "it prints what is not UTF-8")


def _end(status: int) -> str:
    if status < 0:
        return f"it was killed by {signal.Signals(-status).name}"
    return f"it ended with status {status}"
