# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Watches that no job needs: where Kubernetes forbids one, or does not know the kind,
queries show less, and :mod:`flux_k8s.jobs.copies` knows less well when data has moved.

The rules for directives are always watched. A cluster has many NnfDataMovements and
ClientMounts, most of which are of states that take a second. So there is a watch of
each kind only while a job has been in such a state for :data:`PATIENCE`, and it keeps
objects of jobs only.
"""

from __future__ import annotations

import abc
import syslog
from typing import Any, Callable, Generic, Optional, Sequence, TypeVar

from flux_k8s.config.context import Context
from flux_k8s.control.kubecalls import Watched, absent_or_forbidden
from flux_k8s.errors import DirectiveError
from flux_k8s.formats.directives import Directive
from flux_k8s.formats.jobid import jobid_of_workflow
from flux_k8s.jobs.jobtable import JobTable
from flux_k8s.jobs.workflowinfo import WorkflowInfo
from flux_k8s.objects import datamovement
from flux_k8s.objects.clientmount import ClientMount
from flux_k8s.objects.datamovement import Movement
from flux_k8s.objects.decoding import plain
from flux_k8s.objects.metadata import names_of
from flux_k8s.objects.storageusage import WORKFLOW_LABEL
from flux_k8s.ports import (
    CLIENTMOUNT,
    DWDIRECTIVERULE,
    NNFDATAMOVEMENT,
    Encoded,
    KubeError,
    Seen,
    Timer,
)
from flux_k8s.reasons import Reason
from flux_k8s.rules.directiverules import read_rules

PATIENCE = 3.0
"""Seconds in a state until its objects are watched."""

LINGER = 30.0
"""Seconds that a watch stays open without a job that needs it: another one may soon,
and each watch begins with a list."""

OBJECTS = 100_000
"""The most objects of one kind that are kept."""

MOVEMENTS = 8192
MOUNTS = 32768
"""The most objects of one job that are kept: to go through them takes 5 ms. A user
decides how many there are, by the number of nodes and of directives. Nothing is known
of a job that has more."""

T = TypeVar("T")
Key = tuple[str, str]


class OptionalWatch(Watched):
    """A watch that Kubernetes may forbid, or whose kind it may not know. Like any
    watch, it tries again by itself.

    Attributes:
        unseen: the words for the log about what is not seen without it.
    """

    unseen: str

    def __init__(self, context: Context) -> None:
        super().__init__(context.kube)
        self._flux = context.flux
        self._logged = False

    def close(self) -> None:
        super().close()
        self.clear()

    @abc.abstractmethod
    def clear(self) -> None:
        """Keep no object: a new watch does not show the deletions since the last
        one."""

    def trouble(self, error: KubeError) -> None:
        """After another error the objects stay as they were."""
        super().trouble(error)
        if not absent_or_forbidden(error):
            return
        self.listed = False
        if not self._logged:
            self._logged = True
            text = f"{self.kind.plural}: {error}; queries do not show {self.unseen}"
            self._flux.log(syslog.LOG_INFO, text, Reason.OBJECTS_UNSEEN)


class DirectiveRules(OptionalWatch):
    """The live DWDirectiveRules, which change when DWS or NNF is upgraded. DWS applies
    them, and here they explain what it has refused."""

    kind, unseen = DWDIRECTIVERULE, "them"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._specs: dict[Key, list[Any]] = {}

    @property
    def rules(self) -> Optional[list[Any]]:
        """The rules, one for each command; None while they are not known."""
        if not (self.listed and self._specs):
            return None
        return [rule for _, specs in sorted(self._specs.items()) for rule in specs]

    def explain(self, directives: Sequence[Directive]) -> str:
        """The word that is wrong in directives that DWS has refused, as far as its
        rules say so; "" if they do not."""
        try:
            read_rules(self.rules).check(directives)
        except DirectiveError as error:
            return str(error)
        return ""

    def clear(self) -> None:
        self._specs.clear()

    def event(self, type: str, object: Seen) -> None:
        key = object.namespace, object.name
        spec = plain(object.encoded).get("spec")
        self._specs.pop(key, None)
        if type != "DELETED" and isinstance(spec, list):
            self._specs[key] = [r for r in spec if isinstance(r, dict)]


class JobObjects(OptionalWatch, Generic[T]):
    """A watch of objects of jobs that is open while jobs need it.

    Args:
        jobs: the jobs whose objects are kept.

    Attributes:
        most: the most objects of one job that are kept.
        changed: is called with a job one of whose objects has changed.
        moved: is called with a job, an object of it as it was known before (None for a
            new one), and as it is.
    """

    unseen = "progress"
    most: int

    def __init__(self, context: Context, jobs: JobTable) -> None:
        super().__init__(context)
        self.changed: Callable[[int], None] = lambda jobid: None
        self.moved: Callable[[WorkflowInfo, Optional[T], T], None] = lambda *args: None
        self._jobs = jobs
        self._needed: dict[int, Timer] = {}
        self._linger: Optional[Timer] = None
        self._objects: dict[int, Optional[dict[Key, T]]] = {}  # None: too many
        self._jobid_of: dict[Key, int] = {}

    @abc.abstractmethod
    def read(self, object: Encoded) -> Optional[T]:
        """Read an object; None for one that is not kept."""

    def of(self, jobid: int) -> Optional[dict[Key, T]]:
        """The objects of a job; None while they are not known."""
        return self._objects.get(jobid, {}) if self.listed else None

    def need(self, jobid: int, needed: bool) -> None:
        """A job is, or is not, in a state that the watch is for."""
        if needed == (jobid in self._needed):
            return
        if needed:
            self._needed[jobid] = self._flux.call_later(PATIENCE, self.open)
            return
        self._needed.pop(jobid).cancel()
        if self._linger is None:
            self._linger = self._flux.call_later(LINGER, self._close_unneeded)

    def _close_unneeded(self) -> None:
        self._linger = None
        if not self._needed:
            self.close()

    def forget(self, jobid: int) -> None:
        """A job is over."""
        self.need(jobid, False)
        self._drop(jobid)

    def stop(self) -> None:
        for timer in (*self._needed.values(), self._linger):
            if timer is not None:
                timer.cancel()
        self.close()

    def clear(self) -> None:
        self._objects.clear()
        self._jobid_of.clear()

    def _drop(self, jobid: int) -> None:
        """Keep no object of a job."""
        for key in self._objects.pop(jobid, None) or ():
            del self._jobid_of[key]

    def event(self, type: str, object: Seen) -> None:
        key = object.namespace, object.name
        if type == "DELETED":
            jobid = self._jobid_of.pop(key, None)
            kept = None if jobid is None else self._objects.get(jobid)
            if jobid is not None and kept is not None:
                del kept[key]
                self.changed(jobid)
            return
        workflow = names_of(object.encoded).label(WORKFLOW_LABEL)
        jobid = None if workflow is None else jobid_of_workflow(workflow)
        job = None if jobid is None else self._jobs.get(jobid)
        if jobid is None or job is None:
            return
        kept = self._objects.setdefault(jobid, {})
        if kept is None:
            return
        value, known = self.read(object.encoded), kept.get(key)
        if value is None or known == value:
            return
        if key not in kept and not self._has_room(len(kept)):
            self._drop(jobid)
            self._objects[jobid] = None
        else:
            kept[key] = value
            self._jobid_of[key] = jobid
            self.moved(job.info, known, value)
        self.changed(jobid)

    def _has_room(self, kept: int) -> bool:
        """Whether another object of a job that has ``kept`` of them may be kept."""
        return kept < self.most and len(self._jobid_of) < OBJECTS

    def synced(self) -> None:
        super().synced()
        for jobid in tuple(self._needed):
            self.changed(jobid)


class DataMovements(JobObjects[Movement]):
    """The data movements of jobs."""

    kind, most = NNFDATAMOVEMENT, MOVEMENTS

    def read(self, object: Encoded) -> Optional[Movement]:
        return datamovement.parse(object)


class ClientMounts(JobObjects[tuple[bool, bool]]):
    """The mounts of jobs on compute nodes: whether each is mounted, and whether it is
    unmounted. (It may be neither, on the way from one to the other.) Rabbits mount as
    well, for themselves."""

    kind, most = CLIENTMOUNT, MOUNTS

    def __init__(
        self, context: Context, jobs: JobTable, is_rabbit: Callable[[str], bool]
    ) -> None:
        super().__init__(context, jobs)
        self._is_rabbit = is_rabbit

    def read(self, object: Encoded) -> Optional[tuple[bool, bool]]:
        mount = ClientMount.read(object)
        if self._is_rabbit(mount.node):
            return None
        return mount.is_mounted, mount.is_unmounted
