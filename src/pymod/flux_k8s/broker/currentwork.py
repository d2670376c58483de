# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What the service is working on, in memory that outlives it."""

from __future__ import annotations

import mmap
import struct
from typing import Optional

from flux_k8s.jobs.isolation import Work

_LAYOUT = struct.Struct("=QQ")
_NOTHING, _STORAGE, _RELEASE = range(3)


class CurrentWork:
    """Memory that the supervisor and the service share. The service writes.

    Args:
        fd: of a file in memory, which is closed by others.
    """

    def __init__(self, fd: int) -> None:
        self._memory = mmap.mmap(fd, _LAYOUT.size)

    def set(self, work: Optional[Work]) -> None:
        if work is None:
            _LAYOUT.pack_into(self._memory, 0, _NOTHING, 0)
        else:
            kind = _RELEASE if work.releasing else _STORAGE
            _LAYOUT.pack_into(self._memory, 0, kind, work.jobid)

    def get(self) -> Optional[Work]:
        kind, jobid = _LAYOUT.unpack_from(self._memory)
        return None if kind == _NOTHING else Work(jobid, kind == _RELEASE)
