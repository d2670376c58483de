# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Stories: what happens to a job, and what becomes of it, as rows of a table.

A story has a job, the troubles that it has, and its course: what can be seen from
outside, in order, in words.

====================  ================================================================
word                  what happens
====================  ================================================================
``Proposal`` ...      this state of the job's Workflow is asked for
``gone``              the Workflow is deleted
``alloc``             the job gets its nodes
``start``, ``finish``  its tasks begin, and end
``clean``             the job has ended
``setup-timeout!``    a fatal exception, by its reason (:mod:`flux_k8s.reasons`), or by
                      its type where another program raises it: ``cancel!``
``unmount-failed``    an exception that is not fatal
``drain:HOST``        a node is drained (``undrain:HOST``: put back)
``disable:RABBIT``    a Rabbit is Disabled (``enable:RABBIT``: Enabled again)
====================  ================================================================

The second job of a story has ``2:`` before its words, and so on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Callable, Mapping, Optional

from flux_k8s.config.table import Config
from flux_k8s.dws.workflowmarks import REQUESTED, requested_note
from flux_k8s.dws.workflowstate import State
from flux_k8s.ports import WORKFLOW, Json
from rabbitsim.dws.options import Fault as DwsFault
from rabbitsim.torture.plan import FENCE

if TYPE_CHECKING:
    from rabbitsim.torture.life import StorySystem

RUN = "Proposal alloc Setup DataIn PreRun start finish"
"""A job to the end of its tasks."""

END = "PostRun DataOut Teardown clean gone"
"""What follows then without trouble."""

LIFE = f"{RUN} {END}"
"""A job without trouble."""

XFS = "#DW jobdw type=xfs capacity=10GiB name=p1"
COPY_IN = "#DW copy_in source=/lustre/in destination=$DW_JOB_p1/"
COPY_OUT = "#DW copy_out source=$DW_JOB_p1/ destination=/lustre/out"

NODE = "compute-02"
"""The node of the job to which something happens."""

Deed = Callable[["StorySystem"], None]
"""What somebody does, or what happens to the machine."""


@dataclass(frozen=True)
class Job:
    """A job that is submitted.

    Attributes:
        nodes: how many it has; it may lose ``tolerance`` of them.
        release, stage: its ``dw_release`` and ``dw_stage``.
        seconds: how long its tasks run.
        awaits: the number of the job, from 1, whose data it waits for; 0 for none.
        attributes: others of ``attributes.system``.
    """

    directives: tuple[str, ...] = (XFS, COPY_IN, COPY_OUT)
    nodes: int = 2
    tolerance: int = 0
    release: str = "teardown"
    stage: str = "prolog"
    seconds: float = 0.0
    awaits: int = 0
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class When:
    """A deed that is done ``after`` seconds from the moment at which a word is first
    in the course; "" is the beginning."""

    word: str
    deed: Deed
    after: float = 0.0


@dataclass(frozen=True)
class Story:
    """What happens to a job, and what becomes of it.

    Attributes:
        name: a sentence, or its subject.
        course: what happens, in words; "" if a row does not say.
        data: what becomes of the job's data, as ``rabbit_data_out`` says: "out", or
            the reason for which it is not; "" if the record is not looked at.
        job: the first job.
        troubles: what goes wrong within DWS, and what others do, at which moments.
        others: more jobs, submitted right after the first one.
        latency: the seconds that a state takes.
        machine: arguments of :class:`rabbitsim.system.VirtualSystem`.
        epilog_timeout: of the plugin.
        spans: the seconds from one word to another, to a second.
        may: the words of more fatal exceptions that the job may have where a machine
            interrupts it as well.
        spared: the word of one that it may be spared then: right after the start of a
            service no time limit is over.
        freed: if it is cancelled before a node of it has failed to unmount, nothing but
            an administrator lets it go.
    """

    name: str
    course: str = ""
    data: str = ""
    job: Job = Job()
    troubles: tuple[DwsFault | When, ...] = ()
    others: tuple[Job, ...] = ()
    config: Config = field(default_factory=Config)
    latency: Mapping[str, float] = field(default_factory=dict)
    machine: Mapping[str, Any] = field(default_factory=dict)
    epilog_timeout: Optional[float] = None
    spans: tuple[tuple[str, str, float], ...] = ()
    may: tuple[str, ...] = ()
    spared: str = ""
    freed: bool = False

    def __str__(self) -> str:
        return self.name

    @property
    def faults(self) -> tuple[DwsFault, ...]:
        return tuple(each for each in self.troubles if isinstance(each, DwsFault))

    @property
    def deeds(self) -> tuple[When, ...]:
        return tuple(each for each in self.troubles if isinstance(each, When))

    @property
    def fatal(self) -> frozenset[str]:
        """The reasons and types of the fatal exceptions that its jobs may have."""
        words = (word.rpartition(":")[2] for word in self.course.split())
        return frozenset(word[:-1] for word in words if word[-1] == "!") | {*self.may}


# Deeds


def cancel(system: StorySystem) -> None:
    """The job's user cancels it."""
    system.instance.cancel(system.jobids[0])


def submit(job: Job) -> Deed:
    """Another job is submitted."""
    return lambda system: system.submit(job)


def lose_watches(system: StorySystem) -> None:
    """Kubernetes is out of reach for a moment."""
    if system.service_kube is not None:
        system.service_kube.drop_watches()


def strip(system: StorySystem) -> None:
    """Another program removes the annotations of the Workflows."""
    _annotate(system, None)


def postdate(system: StorySystem) -> None:
    """The times on the Workflows come to be in the future, as after a clock was set
    back."""
    late = dict.fromkeys(State, system.loop.now() + 3600.0)
    _annotate(system, {REQUESTED: requested_note(late)})


def _annotate(system: StorySystem, annotations: Optional[Json]) -> None:
    body = {"metadata": {"annotations": annotations}}
    for workflow in system.workflows():
        name = workflow["metadata"]["name"]
        system.store.merge_patch(WORKFLOW, "default", name, body)


def unlink(seconds: float) -> Deed:
    """``NODE`` loses its Rabbit for some seconds."""

    def deed(system: StorySystem) -> None:
        set_link = system.controllers.rabbits.set_link
        set_link(NODE, False)
        system.loop.call_later(seconds, partial(set_link, NODE, True))

    return deed


def fence(system: StorySystem) -> None:
    """An administrator fences ``NODE``."""
    system.instance.programs[FENCE] = lambda arguments: NODE
    system.controllers.rabbits.fence(NODE)


def unload(seconds: float) -> Deed:
    """The module is unloaded for some seconds."""
    return lambda system: system.unload_for(seconds)


def rescue(every: float) -> Deed:
    """The job's data is copied again each time after so many seconds, until its storage
    is gone."""

    def deed(system: StorySystem) -> None:
        if system.workflows():
            payload = {"id": system.jobids[0]}
            system.instance.request("dws.rescue", payload, lambda *answer: None)
            system.loop.call_later(every, partial(deed, system))

    return deed
