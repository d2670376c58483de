# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The rules about the events of a job."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Callable, Mapping, Optional, Sequence

from flux_k8s.formats import hostlist
from flux_k8s.formats.jobid import decode, f58
from flux_k8s.jobs.outcomes import DATA_OUT
from flux_k8s.reasons import NODE_FAILURE, Reason
from rabbitsim.flux.events import Event
from rabbitsim.flux.job import Job
from rabbitsim.torture.record import NEVER, RESOLUTION, Record, Told
from rabbitsim.torture.workflowrules import is_complete, is_ours, waits

if TYPE_CHECKING:
    from rabbitsim.torture.monitor import Monitor

PAIRS = (
    ("dependency-add", "dependency-remove"),
    ("prolog-start", "prolog-finish"),
    ("epilog-start", "epilog-finish"),
)

TEARDOWN_PATIENCE = 60.0
"""Seconds of Teardown after which the owner of a job is to be warned."""

ABOUT_TEARDOWN = (
    Reason.TEARDOWN_LATE,
    Reason.TEARDOWN_FAILED,
    Reason.UNMOUNT_FAILED,
)
"""The reasons by which that is told."""

_AWAITED = re.compile(r"dws-out=(\w+)")
"""What Flux calls a dependency on the data of another job."""


def check_plain(monitor: Monitor, job: Job, event: Event) -> None:
    """A job without directives is not our business."""
    if "dws" in str(event.context).replace("dws-out", ""):
        monitor.fail("plain", f"{job} has no directives, but {event}")
    if event.name == "clean":
        check_log(monitor, job, event)


def check_alloc(monitor: Monitor, job: Job, event: Event) -> None:
    """A job has no storage that is made for another one."""
    monitor.storage.allocated(job)


def check_start(monitor: Monitor, job: Job, event: Event) -> None:
    """A job runs when its storage is there, with its environment."""
    record = monitor.record(job.id)
    if monitor.allowances.unguarded(job):
        return
    if "PreRun" not in record.reached:
        monitor.fail("start", f"{job} ran before its PreRun was complete")
    elif not job.was_posted("dws_environment"):
        monitor.fail("start", f"{job} ran without its environment")
    elif not (record.fatal or monitor.allowances.twice(job.id)):
        monitor.storage.starts(job, record)


def told_by(monitor: Monitor, job: Job, event: Event) -> Optional[Told]:
    """What a fatal exception tells; None for another event."""
    context = event.context or {}
    if event.name != "exception" or context["severity"] != 0:
        return None
    desired = monitor.record(job.id).desired
    return Told(context["type"], context["note"], event.reason, desired)


def check_exception(monitor: Monitor, job: Job, event: Event) -> None:
    """A job fails for a reason, and is told once."""
    record, told = monitor.record(job.id), told_by(monitor, job, event)
    if told is None:
        if event.reason is not None and not monitor.allowances.may_tell(event.reason):
            monitor.fail("unexplained", f"{job} was told {event}")
        return
    if not monitor.allowances.fatal(job, record, told, monitor.now()):
        text = f"{told.type}: {told.note} [{told.cause}]"
        monitor.fail("exception", f"{job} failed without a cause: {text}")
    # Without the plugin a new service does not know what an earlier one has told.
    if told.type == "dws" and not monitor.allowances.unguarded(job):
        for other in record.fatal:
            if other.type == "dws" and other.reason == told.reason:
                monitor.fail("exception twice", f"{job} was told twice: {told.note}")


def check_awaited(monitor: Monitor, job: Job, event: Event) -> None:
    """A job that waited for the data of another goes on if that is out, and fails if
    it is not, and will not be."""
    told = told_by(monitor, job, event)
    if event.name == "dependency-remove":
        match = _AWAITED.match((event.context or {})["description"])
        awaited = None if match is None else monitor.jobs().get(decode(match[1]))
        if awaited is None and match is not None:
            monitor.fail("awaited", f"{job} goes on, and {match[1]} is purged")
        elif awaited is not None and not is_out(awaited):
            recorded = awaited.kvs.get(DATA_OUT)
            text = f"{job} goes on, and the data of {awaited}: {recorded}"
            monitor.fail("awaited", text)
    elif told is not None and told.type == "dependency":
        waits_for = [_AWAITED.match(text) for text in _dependencies(job)]
        ids = [decode(match[1]) for match in waits_for if match is not None]
        known = [monitor.jobs()[id] for id in ids if id in monitor.jobs()]
        if len(known) == len(waits_for) and all(map(is_out, known)):
            monitor.fail("awaited", f"{job} fails, and the data it waits for is out")
        elif len(waits_for) == 1:
            unrecorded = (each for each in known if DATA_OUT not in each.kvs)
            monitor.unrecorded += ((job, awaited) for awaited in unrecorded)


def _dependencies(job: Job) -> list[str]:
    """What a job waits for."""
    found: list[str] = []
    for event in job.events:
        text: str = (event.context or {}).get("description", "")
        if event.name == "dependency-add":
            found.append(text)
        elif event.name == "dependency-remove":
            found.remove(text)
    return found


def check_nodes(monitor: Monitor, job: Job, event: Event) -> None:
    """A job goes on without some of its nodes, or has left some mounted."""
    exception = event.context or {}
    if exception["type"] != NODE_FAILURE:
        return
    hosts = hostlist.decode(exception["note"].partition(": ")[0])
    if event.reason is not Reason.NODES_EXCLUDED:
        for host in hosts:
            if not monitor.drained(host):
                monitor.fail("nodes", f"{host} was left mounted and is not drained")
        return
    record, system = monitor.record(job.id), job.jobspec["attributes"]["system"]
    record.failed_nodes.update(hosts)
    for host in hosts:
        if not monitor.allowances.node(job, host):
            monitor.fail("nodes", f"{job} goes on without {host} for no reason")
        if not monitor.drained(host):
            monitor.fail("nodes", f"{host} failed {job} and is not drained")
    tolerance = system.get("dw_failure_tolerance", 0)
    if exception["severity"] == 0 or len(record.failed_nodes) > tolerance:
        monitor.fail("nodes", f"{job} tolerates {tolerance}: {exception['note']}")


def check_epilog(monitor: Monitor, job: Job, event: Event) -> None:
    """A job is let go when its storage is torn down, or, where its data goes out after
    its end, unmounted."""
    record, workflow = monitor.record(job.id), monitor.workflow(job.id)
    if workflow is None or not is_ours(workflow) or monitor.allowances.unguarded(job):
        return
    record.outlives = record.nodes_released and not record.aborted
    if record.outlives:
        if not _may_outlive(monitor, job, record):
            monitor.fail("epilog", f"{job} was let go, and nobody has asked for that")
        unmounted = "PostRun" in record.reached or _is_late(monitor, record)
        if not (unmounted or record.kept):
            monitor.fail("epilog", f"{job} was let go before its PostRun was complete")
        monitor.storage.let_go(job, monitor.drained, waits(workflow))
        return
    _check_told(monitor, job, record)
    if not monitor.allowances.absent():
        monitor.storage.let_go(job, monitor.drained)
    alone = record.aborted or monitor.allowances.left_alone(job)
    made = workflow["spec"]["desiredState"] != "Proposal"
    if made and not alone and not is_complete(workflow, "Teardown"):
        monitor.fail("epilog", f"{job} was let go before its storage was torn down")


def _may_outlive(monitor: Monitor, job: Job, record: Record) -> bool:
    """Whether a job may be let go before its Teardown: the job, or the site, wants it,
    or its storage is kept, or it never ran."""
    config, system = monitor.allowances.config, job.jobspec["attributes"]["system"]
    if "requires=" in str(system["dw"]):
        return False  # a container runs on
    wanted = (system.get("dw_release") or config.release) == "unmounted"
    kept = config.keeps_mounted and (record.kept or _is_late(monitor, record))
    failed = record.failed and config.keep_failed is not None
    return wanted or kept or failed or not job.was_posted("start")


def _is_late(monitor: Monitor, record: Record) -> bool:
    """Whether nodes that are to unmount in Teardown, which somebody else may have
    asked for, do not hold up others."""
    config = monitor.allowances.config
    limit = config.postrun_timeout if config.keeps_mounted else None
    if limit is None:
        return False
    return monitor.now() >= record.asked.get("Teardown", NEVER) + limit - RESOLUTION


def _check_told(monitor: Monitor, job: Job, record: Record) -> None:
    """A Teardown that does not get on is told."""
    asked = record.moved.get("Teardown")
    if asked is None or monitor.allowances.unguarded(job):
        return
    ended = min(record.reached.get("Teardown", NEVER), monitor.now())
    late = ended - asked > TEARDOWN_PATIENCE + monitor.allowances.lateness
    told = any(event.reason in ABOUT_TEARDOWN for event in job.events)
    if late and not told:
        monitor.fail("silence", f"{job} waited {ended - asked:.0f}s for Teardown")


def check_log(monitor: Monitor, job: Job, event: Optional[Event] = None) -> None:
    """The eventlog of a job that has ended is complete."""
    names = [event.name for event in job.events]
    if names.count("clean") != 1 or names[-1] != "clean":
        monitor.fail("inactive", f"{job} ended {names.count('clean')} times: {names}")
    for begin, end in PAIRS:
        given_up = begin == "dependency-add" and "exception" in names
        if names.count(begin) != names.count(end) and not given_up:
            monitor.fail("action", f"{job} has {begin} without {end}: {names}")


def check_data(monitor: Monitor, job: Job, event: Optional[Event] = None) -> None:
    """A job's data is safe, or its owner is told, unless the data is still to go
    out."""
    record, allowances = monitor.record(job.id), monitor.allowances
    if record.outlives:
        return
    out = record.lost == "DataOut" and monitor.storage.is_out(job, record)
    unseen = record.unseen and record.nodes_released and not _is_awaited(monitor, job)
    allowed = allowances.lost(job, record) or unseen
    if record.lost and not (allowed or out):
        monitor.fail("data", f"{job} ran, and its data was given up in {record.lost}")
    untold = allowances.unguarded(job) or record.unattended or unseen
    monitor.storage.ends(job, record, allowed, untold)


def _is_awaited(monitor: Monitor, job: Job) -> bool:
    """Whether another job waits for the data of a job that has ended, or did."""
    what = "dependency-add", f"dws-out={f58(job.id)}"
    return any(
        (event.name, (event.context or {}).get("description")) == what
        for other in monitor.jobs().values()
        if other.events[-1].timestamp > job.events[-1].timestamp
        and not monitor.record(other.id).withdrawn
        for event in other.events
    )


def is_out(job: Job) -> bool:
    """Whether it is recorded that the data of a job is out."""
    return bool(json.loads(job.kvs.get(DATA_OUT, "{}")).get("success", False))


Rule = Callable[["Monitor", Job, Event], None]

OF_STORAGE: Mapping[str, Sequence[Rule]] = {
    "start": (check_start,),
    "exception": (check_nodes,),
    "epilog-finish": (check_epilog,),
    "clean": (check_log, check_data),
}
"""The rules for the events of a job that has directives."""

OF_ALL: Mapping[str, Sequence[Rule]] = {
    "alloc": (check_alloc,),
    "exception": (check_exception, check_awaited),
    "dependency-remove": (check_awaited,),
}
"""Those for the events of any job."""
