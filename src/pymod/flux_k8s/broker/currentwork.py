# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The work that the service is doing, in memory that outlives the service."""

from __future__ import annotations

import mmap
import struct
from typing import Optional

from flux_k8s.jobs.work import Work

_LAYOUT = struct.Struct("=QQ")
_NOTHING, _STORAGE, _RELEASE = range(3)


class CurrentWork:
    """Memory that the service writes and the supervisor reads.

    Args:
        fd: the descriptor of a file in memory. The caller closes it.
    """

    def __init__(self, fd: int) -> None:
        self._memory = mmap.mmap(fd, _LAYOUT.size)

    def set(self, work: Optional[Work]) -> None:
        """Note the work for a job; None while the service works for no single job."""
        if work is None:
            _LAYOUT.pack_into(self._memory, 0, _NOTHING, 0)
        else:
            kind = _RELEASE if work.releasing else _STORAGE
            _LAYOUT.pack_into(self._memory, 0, kind, work.jobid)

    def get(self) -> Optional[Work]:
        """The work that was noted last."""
        kind, jobid = _LAYOUT.unpack_from(self._memory)
        return None if kind == _NOTHING else Work(jobid, kind == _RELEASE)
