# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The course of a story: what can be seen of it from outside, in order."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Callable, Iterable

from flux_k8s.formats.jobid import jobid_of_workflow
from flux_k8s.objects.workflowmarks import FAILED_UNTIL
from flux_k8s.ports import STORAGE, SYSTEMSTATUS, WORKFLOW, Kind
from rabbitsim.flux.events import Event
from rabbitsim.flux.job import Job
from rabbitsim.kube.store import Event as Change
from rabbitsim.torture.record import Told
from rabbitsim.torture.story import EVENTS

if TYPE_CHECKING:
    from rabbitsim.torture.life import StorySystem


class Course:
    """What happens, in the words of :mod:`rabbitsim.torture.story`.

    Attributes:
        words: with the UNIX time of each.
        heard: is called with each word.
    """

    def __init__(self, system: StorySystem) -> None:
        self.words: list[tuple[str, float]] = []
        self.heard: Callable[[str], None] = lambda word: None
        self._system = system
        self._desired: dict[int, tuple[str, bool]] = {}
        self._kept: set[int] = set()
        self._drained: set[str] = set()
        self._down: set[str] = set()
        self._disabled: dict[Kind, set[str]] = {STORAGE: set(), SYSTEMSTATUS: set()}
        system.instance.manager.listeners.append(
            lambda job, event, before: self._job_event(job, event)
        )
        system.instance.watch_nodes(self._nodes_changed)
        version = str(system.store.version)
        system.store.watch(WORKFLOW, None, self._workflow, resource_version=version)
        for kind in self._disabled:
            changed = partial(self._state, kind)
            system.store.watch(kind, None, changed, resource_version=version)

    def add(self, word: str) -> None:
        self.words.append((word, self._system.loop.now()))
        self.heard(word)

    def _of_job(self, jobid: int, word: str) -> None:
        if jobid in self._system.jobids:
            number = self._system.jobids.index(jobid) + 1
            self.add(f"{number}:{word}" if number > 1 else word)

    def _job_event(self, job: Job, event: Event) -> None:
        if event.name in EVENTS:
            self._of_job(job.id, event.name)
        elif event.name == "exception":
            fatal = (event.context or {})["severity"] == 0
            self._of_job(job.id, told_of(event).cause + "!" * fatal)

    def _workflow(self, change: Change) -> None:
        jobid = jobid_of_workflow(change.object["metadata"]["name"]) or 0
        if change.type == "DELETED":
            self._desired.pop(jobid, None)
            self._kept.discard(jobid)
            self._of_job(jobid, "gone")
            return
        spec, status = change.object["spec"], change.object.get("status", {})
        # (What is asked for with the next state is no matter until DWS takes that up.)
        forced = spec["forceReady"] and status.get("state") == spec["desiredState"]
        before = self._desired.get(jobid, ("", False))
        after = self._desired[jobid] = spec["desiredState"], forced
        if after[0] != before[0]:
            self._of_job(jobid, after[0])
        if forced and after != before:
            self._of_job(jobid, "force")
        annotations = change.object["metadata"].get("annotations") or {}
        kept = {jobid} if FAILED_UNTIL in annotations else set()
        if kept - self._kept:
            self._of_job(jobid, "kept")
        self._kept = self._kept - {jobid} | kept

    def _nodes_changed(self) -> None:
        nodes = self._system.instance.scheduler.pool.nodes
        drained = {node.host for node in nodes if node.drained is not None}
        down = {node.host for node in nodes if not node.up}
        before, self._drained = self._drained, drained
        self._changed("drain", drained - before)
        self._changed("undrain", before - drained)
        before, self._down = self._down, down
        self._changed("down", down - before)
        self._changed("up", before - down)

    def _state(self, kind: Kind, change: Change) -> None:
        """A Storage or SystemStatus was written."""
        object = change.object
        before = self._disabled[kind]
        if kind == STORAGE:
            name = {object["metadata"]["name"]}
            disabled = object["spec"].get("state") == "Disabled"
            after = before | name if disabled else before - name
        else:
            nodes = (object.get("data") or {}).get("nodes") or {}
            after = {host for host, state in nodes.items() if state == "Disabled"}
        self._disabled[kind] = after
        self._changed("disable", after - before)
        self._changed("enable", before - after)

    def _changed(self, how: str, names: Iterable[str]) -> None:
        for name in sorted(names):
            self.add(f"{how}:{name}")


def told_of(event: Event) -> Told:
    """What an exception tells."""
    context = event.context or {}
    return Told(context["type"], context["note"], event.reason)
