# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The rows and the details of jobs that queries answer with (doc/queries.md).

:func:`row` and :func:`details` are pure functions of a job's ``WorkflowInfo`` and of
what else is known of it (:class:`Known`, by :mod:`flux_k8s.jobs.progress`). Whatever a
column of ``flux dws list`` shows of an active job is decided here; of one that ended,
:mod:`dwscli.ended` decides.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Mapping, Optional, Sequence

from flux_k8s.formats import hostlist
from flux_k8s.formats.timestamps import format_seconds
from flux_k8s.jobs.losses import losses, with_losses
from flux_k8s.jobs.records import begun_of, durations
from flux_k8s.jobs.timelimits import Moment, running_limits, unmoved_since
from flux_k8s.jobs.workflowinfo import Goal, WorkflowInfo
from flux_k8s.objects.datamovement import Movement, Progress
from flux_k8s.objects.storageusage import StorageUsage
from flux_k8s.objects.workflowstate import State
from flux_k8s.objects.workflowview import WorkflowView
from flux_k8s.ports import Json
from flux_k8s.text import NOTE, SHOWN, printable

NONE = "none"
"""The state of a job without a Workflow."""

USERID_UNKNOWN = 0xFFFFFFFF
"""FLUX_USERID_UNKNOWN."""

FREED, COPIED, LOST, NOTHING = "freed", "copied", "lost", "nothing"
"""What a cancel does to a job's storage: it goes, after the tasks of a job that runs,
and no data that is to be copied out is lost; the data is copied out when the tasks have
ended, which they may be doing already; the storage goes at once with data that is not
copied out; or nothing that does not come by itself."""

MOVEMENTS = 64
"""The most data movements in the details of a job: those that have not ended first."""

TYPES = 8
"""The most types of file systems in the row of a job. DWS has fewer; a guest may make
more up, which are in the row until DWS refuses them."""

WANTS: Mapping[Goal, str] = MappingProxyType(
    {Goal.PLANNED: "planned", Goal.READY: "ready", Goal.RELEASED: "released"}
)


@dataclass(frozen=True)
class MountCount:
    """How far mounting or unmounting is.

    Attributes:
        wanted: the number of nodes that mount storage of the job.
        mounted: the number of nodes on which all of it is mounted.
        done: the number of nodes that the state does not wait for any more.
    """

    wanted: int
    mounted: int
    done: int


@dataclass(frozen=True)
class Known:
    """The state of a job that is not in its ``WorkflowInfo``.

    Attributes:
        nodes: the job's nodes, as a hostlist.
        nnodes: their number.
        usage: the job's Servers, by name.
        waits: why the job waits, or "".
        out: the Rabbits that take no jobs, each with the reason; or "".
        progress: how far the data movement of its state is.
        movements: all of its data movements.
        mounts: how far mounting or unmounting is.
        waiting: the nodes that it waits for, as a hostlist.
    """

    nodes: str = ""
    nnodes: int = 0
    usage: Mapping[str, StorageUsage] = field(default_factory=dict)
    waits: str = ""
    out: str = ""
    progress: Optional[Progress] = None
    movements: tuple[Movement, ...] = ()
    mounts: Optional[MountCount] = None
    waiting: str = ""


def state_of(info: WorkflowInfo) -> str:
    """The state that a job's Workflow was asked for."""
    view = info.view
    return NONE if view is None or view.desired is None else view.desired.name


def types_of(info: WorkflowInfo) -> tuple[str, ...]:
    """The types of the file systems that a job makes."""
    if info.request is not None:
        return info.request.types
    return () if info.view is None else info.view.types


def kept_until(hosts: str) -> str:
    """What storage is kept for that these nodes have mounted, and could write to."""
    return (
        f"{hosts} to unmount, or to be off: its broker gone, and its link to the Rabbit"
        " Offline; or fenced. The storage is kept until then"
    )


def waits_of(info: WorkflowInfo, known: Known) -> str:
    """What a job waits for, or ""."""
    view = info.view
    if view is None:
        return known.waits
    copying = view.desired is State.DataOut and not view.complete
    if copying and view.failed_until is not None:
        return _rescue_hint(info, view.failed_until)
    if copying and view.in_error and info.data.going:
        return "copies that go on: another one of the job has failed"
    if not view.awaits_unmount:
        return known.waits or _held_by(info) or _nodes_and_rabbits(info, known)
    if info.mounts.found_at is None:
        return kept_until(view.kept_for)
    writers = info.mounts.writers
    return kept_until(hostlist.encode(writers)) if writers else known.waits


def _nodes_and_rabbits(info: WorkflowInfo, known: Known) -> str:
    """That a job whose storage is planned, or was made ahead, waits for nodes, and the
    Rabbits below which there are none now; "" for another job."""
    if info.goal is not Goal.PLANNED or not info.planned:
        return ""
    return f"nodes; out of service: {known.out}" if known.out else "nodes"


def _held_by(info: WorkflowInfo) -> str:
    """What keeps a job from getting its storage before it has nodes, or ""."""
    if not info.stages_ahead or info.request is None or not info.request.held:
        return ""
    if info.request.depends:
        return "another dependency of the job"
    return "an urgency above 0: the job is held"


def _rescue_hint(info: WorkflowInfo, until: float) -> str:
    when = format_seconds(until)
    return f"flux dws rescue {info.f58}: its data is not out, and is kept until {when}"


def when_cancelled(info: WorkflowInfo) -> str:
    """What a cancel would do to a job's storage now: :data:`FREED` or one of the words
    that follow it. The plugin decides (``dws_job_note_exception`` in
    ``src/jobtap/job.c``)."""
    view, ended = info.view, info.goal is Goal.RELEASED
    over = info.released or info.abandoned or info.failed or not info.ran
    if ended and (over or (view is not None and _is_settled(view))):
        return NOTHING
    if not (ended or info.mounted) or (view is not None and not losses(info, view)):
        return FREED
    return LOST if ended else COPIED


def _is_settled(view: WorkflowView) -> bool:
    """Whether it is decided what becomes of a job's storage."""
    gone = view.deleting or view.desired is State.Teardown
    return gone or view.given_up or view.copy_failed


def failure_of(info: WorkflowInfo) -> str:
    """Why the storage of a job has failed, or ""."""
    view = info.view
    if view is not None and view.failed_until is not None and not view.complete:
        return with_losses(view.failure, info, view).text
    return "" if info.told is None else info.told.text


def rabbits_of(usage: Mapping[str, StorageUsage]) -> dict[str, int]:
    """The bytes that a job has on each Rabbit."""
    sizes: dict[str, int] = {}
    for servers in usage.values():
        for rabbit, size in servers.unavailable.items():
            sizes[rabbit] = sizes.get(rabbit, 0) + size
    return sizes


def row(info: WorkflowInfo, known: Known) -> Json:
    """The row of a job."""
    view, progress = info.view, known.progress
    begun = view is not None and view.state is view.desired
    sizes = rabbits_of(known.usage)
    return {
        "id": info.jobid,
        "userid": USERID_UNKNOWN if info.userid is None else info.userid,
        "state": state_of(info),
        "status": printable(view.status, SHOWN) if view is not None and begun else "",
        "since": info.since,
        "ready": view is not None and view.complete,
        "wants": WANTS[info.goal],
        "nodes": known.nodes,
        "nnodes": known.nnodes,
        "rabbits": hostlist.encode_sorted(sizes),
        "capacity": sum(sizes.values()),
        "types": [printable(type, SHOWN) for type in types_of(info)[:TYPES]],
        "moved": None if progress is None else progress.moved,
        "total": None if progress is None else progress.total,
        "percent": None if progress is None else progress.percent,
        "waits": printable(waits_of(info, known), SHOWN),
        "cancel": when_cancelled(info),
    }


def details(info: WorkflowInfo, known: Known, at: Moment) -> Json:
    """The row of a job and more, without its serial."""
    view, mounts = info.view, known.mounts
    mounting = view is not None and view.desired is State.PreRun
    return {
        **row(info, known),
        "waits": printable(waits_of(info, known), NOTE),
        "directives": [printable(each) for each in _directives(info)],
        "message": "" if view is None else printable(view.message, NOTE),
        "states": _states(info),
        "allocations": allocations(info, known.usage),
        "mounts": None
        if mounts is None
        else {
            "wanted": mounts.wanted,
            "mounted": mounts.mounted,
            "unmounted": None if mounting else mounts.done,
            "waiting": known.waiting,
        },
        "movements": [each.to_json() for each in _first(known.movements)],
        "nmovements": len(known.movements),
        "limits": _limits(info, at),
        "failed": printable(failure_of(info), NOTE),
        "kept_until": None if view is None else view.failed_until,
    }


def _directives(info: WorkflowInfo) -> Sequence[str]:
    """The texts of a job's directives, as the user wrote them."""
    if info.request is not None:
        return [each.text for each in info.request.directives]
    return () if info.view is None else info.view.directives


def _states(info: WorkflowInfo) -> list[Json]:
    """The states that were requested, and how long DWS took for each that is over."""
    if info.view is None:
        return []
    begun, seconds = begun_of(info.view), durations(info)
    return [
        {"state": state.name, "begun": begun[state], "seconds": seconds.get(state)}
        for state in sorted(begun)
    ]


def allocations(info: WorkflowInfo, usage: Mapping[str, StorageUsage]) -> list[Json]:
    """The allocation sets of a job's Servers, which are named after the Workflow and
    the index of a directive."""
    # Once for all Servers: a guest may write many directives, and long ones.
    types = [_type_of(directive) for directive in _directives(info)]
    found: list[Json] = []
    for name, servers in sorted(usage.items()):
        index = _index_of(info, name)
        type = types[index] if index is not None and index < len(types) else None
        for each in servers.allocations:
            entry: Json = {"label": printable(each.label, SHOWN), "size": each.size}
            if type is not None:
                entry["type"] = printable(type, SHOWN)
            found.append({**entry, "rabbits": dict(each.counts)})
    return found


LONGEST_INDEX = 3
"""Digits of the number of a directive, at which the name of its Servers ends."""


def _index_of(info: WorkflowInfo, servers: str) -> Optional[int]:
    """The number of the directive that Servers are for; None if that is not known."""
    prefix, _, index = servers.rpartition("-")
    if prefix != info.name or not index.isdecimal() or len(index) > LONGEST_INDEX:
        return None
    return int(index)


def _type_of(directive: str) -> Optional[str]:
    """The type of the file system that a directive names."""
    words = (word for word in directive.split() if word.startswith("type="))
    return next((word[5:] for word in words), None)


def _first(movements: tuple[Movement, ...]) -> list[Movement]:
    """Movements that have not ended, then the others, both in the order of names."""
    return sorted(movements, key=lambda each: (each.finished, each.name))[:MOVEMENTS]


def _limits(info: WorkflowInfo, at: Moment) -> list[Json]:
    view = info.view
    if view is None or view.desired is None:
        return []
    if view.failed_until is not None and view.desired is State.DataOut:
        return [{"name": "keep_failed", "at": view.failed_until}]
    limits = running_limits(info, view, at)
    found: list[Json] = []
    for deadline, problem in sorted(limits, key=lambda limit: limit[0]):
        limit: Json = {"name": problem.key, "at": deadline}
        if problem.key == "stall_timeout":
            if info.data.refused is not None:
                continue  # nobody knows whether data moves
            limit["unmoved_since"] = unmoved_since(info, at)
        found.append(limit)
    return found
