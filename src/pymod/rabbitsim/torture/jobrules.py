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
from flux_k8s.jobs.workflow import TEARDOWN_PATIENCE
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

_AWAITED = re.compile(r"dws-out(?:=|: )(\w+)")


def check_plain(monitor: Monitor, job: Job, event: Event) -> None:
    """A job without directives is not our business."""
    if "dws" in str(event.context).replace("dws-out", ""):
        monitor.fail("plain", f"{job} has no directives, but {event}")
    if event.name == "clean":
        check_log(monitor, job, event)


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
        return
    if not monitor.allowances.fatal(job, record, told, monitor.now()):
        text = f"{told.type}: {told.note} [{told.cause}]"
        monitor.fail("exception", f"{job} failed without a cause: {text}")
    # Without the plugin a new service does not know what an earlier one has told.
    if told.type == "dws" and not monitor.allowances.unguarded(job):
        for other in record.fatal:
            if other.type == "dws" and other.note == told.note:
                monitor.fail("exception twice", f"{job} was told twice: {told.note}")


def check_awaited(monitor: Monitor, job: Job, event: Event) -> None:
    """A job that waited for the data of another goes on if that is out, and fails if
    it is not, and will not be."""
    told, out = told_by(monitor, job, event), event.name == "dependency-remove"
    text: str = (event.context or {}).get("description", "")
    if told is not None and told.type == "dependency":
        text = told.note
    match = _AWAITED.match(text)
    if match is None:
        return
    awaited = monitor.jobs().get(decode(match[1]))
    if awaited is None:
        if out:
            monitor.fail("awaited", f"{job} goes on, and {match[1]} is purged")
    elif is_out(awaited) is not out:
        what = "goes on" if out else "fails"
        recorded = awaited.kvs.get(DATA_OUT)
        monitor.fail("awaited", f"{job} {what}, and the data of {awaited}: {recorded}")
    elif DATA_OUT not in awaited.kvs:
        monitor.unrecorded.append((job, awaited))


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
    asked = record.asked.get("Teardown")
    if asked is None or monitor.allowances.unguarded(job):
        return
    ended = min(record.reached.get("Teardown", NEVER), monitor.now())
    late = ended - asked > TEARDOWN_PATIENCE + monitor.allowances.lateness
    told = any(
        "Teardown" in (event.context or {}).get("note", "") for event in job.events
    )
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
    "exception": (check_exception, check_awaited),
    "dependency-remove": (check_awaited,),
}
"""Those for the events of any job."""
