# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""A service that dies of jobs, and a supervisor that counts."""

from __future__ import annotations

from collections import Counter
from typing import Any, Optional

import pytest

from flux_k8s.jobs.work import Work
from rabbitsim.system import VirtualSystem
from support.service import started

DEATHS = 5


class Death(BaseException):
    """The end of a process, which no handler of exceptions sees."""


class Supervised:
    """A system whose service dies at each call of a method for a job in ``guilty``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> None:
        self.guilty: set[int] = set()
        self.work: Optional[Work] = None
        self.died_of: Optional[Work] = None
        self.deaths: Counter[Optional[Work]] = Counter()
        self.system: VirtualSystem = started(message_latency=0.01)
        self.system.note_work = self.note_work
        original = getattr(owner, name)

        def deadly(target: Any, *args: Any, **options: Any) -> Any:
            for arg in args:
                jobid = getattr(getattr(arg, "info", arg), "jobid", arg)
                if isinstance(jobid, dict):
                    jobid = jobid.get("jobid")
                if isinstance(jobid, int) and jobid in self.guilty:
                    self.died_of = self.work
                    raise Death
            return original(target, *args, **options)

        monkeypatch.setattr(owner, name, deadly)
        self.system.unload_module()
        self.system.load_module()

    def note_work(self, work: Optional[Work]) -> None:
        self.work = work

    def run(self, seconds: float) -> None:
        """Run, and do what the supervisor does at a death."""
        loop = self.system.loop
        end = loop.now() + seconds
        while loop.now() < end:
            try:
                loop.run(timeout=end - loop.now())
            except Death:
                self.deaths[self.died_of] += 1
                if self.died_of and self.deaths[self.died_of] >= DEATHS:
                    self.system.barred.add(self.died_of)
                self.work = None
                self.system.kill_module()
                loop.call_later(1.0, self.system.load_module)


def breaks(
    monkeypatch: pytest.MonkeyPatch, owner: type, name: str, guilty: list[int]
) -> None:
    """A method fails for a job whose ID is in ``guilty``."""
    original = getattr(owner, name)

    def fragile(self: Any, *args: Any, **options: Any) -> Any:
        for arg in args:
            jobid = getattr(getattr(arg, "info", arg), "jobid", None)
            if jobid in guilty:
                raise RuntimeError(f"it broke\nin {name}")
        return original(self, *args, **options)

    monkeypatch.setattr(owner, name, fragile)
