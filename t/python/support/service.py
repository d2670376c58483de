# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The service in a whole system under virtual time, and its jobs."""

from __future__ import annotations

from collections import Counter
from typing import Any, Callable, Iterable

from flux_k8s.formats.jobid import f58, workflow_name
from flux_k8s.ports import (
    SERVERS,
    WORKFLOW,
    Json,
)
from rabbitsim.dws import Options, Topology
from rabbitsim.dws.breakdown import Profiles
from rabbitsim.dws.directive import read_data
from rabbitsim.dws.topology import RABBIT_LABEL, Rabbit
from rabbitsim.flux.broker import ALL_WRITTEN
from rabbitsim.flux.events import Event, JobState
from rabbitsim.flux.options import submit_jobspec
from rabbitsim.system import VirtualSystem

TIB = 2**40
HOUR = 3600.0
DAY = 24 * HOUR
XFS = "#DW jobdw type=xfs capacity=10GiB name=p1"
OPTION = f"dw={XFS}"
"""The jobspec attributes of ``flux submit -S``."""
LUSTRE = "#DW jobdw type=lustre capacity=10GiB name=p1"
MGT = LUSTRE + " profile=standalone-mgt"
COPY_OUT = "#DW copy_out source=$DW_JOB_p1/x destination=/lustre/x"
KEEP = "#DW create_persistent type=xfs capacity=1GiB name=keep"
USE = "#DW persistentdw name=keep"

LIFE = [
    "submit",
    "validate",
    "dependency-add",
    "jobspec-update",
    "dependency-remove",
    "depend",
    "priority",
    "alloc",
    "prolog-start",
    "dws_environment",
    "prolog-finish",
    "start",
    "finish",
    "epilog-start",
    "release",
    "epilog-finish",
    "free",
    "clean",
]


def jobspec(dw: Any = XFS, nodes: int = 2, **system: Any) -> dict[str, Any]:
    slot = {
        "type": "slot",
        "count": 1,
        "label": "task",
        "with": [{"type": "core", "count": 1}],
    }
    attributes = {"duration": 0, "dw": dw, **system}
    return {
        "version": 1,
        "resources": [{"type": "node", "count": nodes, "with": [slot]}],
        "tasks": [
            {"command": ["sleep", "1"], "slot": "task", "count": {"per_slot": 1}}
        ],
        "attributes": {"system": attributes},
    }


def names(system: VirtualSystem, jobid: int) -> list[str]:
    """A job's events, as LIFE has them."""
    skipped = ("memo", "annotations")
    events = system.instance.eventlog(jobid)
    return [event.name for event in events if event.name not in skipped]


def exceptions(system: VirtualSystem, jobid: int) -> list[dict[str, Any]]:
    return [
        event.context or {}
        for event in system.instance.eventlog(jobid)
        if event.name == "exception"
    ]


def more(jobid: int) -> str:
    """The end of a note about trouble that the job's user cannot mend."""
    return f"; flux dws show {f58(jobid)} says more"


def memos(system: VirtualSystem, jobid: int) -> Json:
    """The memos of a job in the end."""
    found: Json = {}
    for event in system.instance.eventlog(jobid):
        if event.name == "memo":
            found.update(event.context or {})
    return found


def memo(system: VirtualSystem, jobid: int, key: str) -> Any:
    return memos(system, jobid).get(key)


def lines(system: VirtualSystem, text: str) -> list[str]:
    """The lines of the log with a text."""
    return [line for _, _, line in system.log if text in line]


def started(**options: Any) -> VirtualSystem:
    system = VirtualSystem(**options)
    system.start()
    return system


def settle(system: VirtualSystem, timeout: float = HOUR) -> None:
    """Run until all jobs are inactive and all Workflows gone, and check what
    must hold after every run."""

    def done() -> bool:
        return system.instance.idle() and not system.workflows()

    assert system.loop.run(done, timeout=timeout), (
        f"stuck: jobs {system.instance.manager.active_jobs}, "
        f"Workflows {system.workflows()}, log {system.log[-20:]}"
    )
    system.loop.run(timeout=ALL_WRITTEN)
    for job in system.instance.manager.jobs.values():
        check_job(job.events)


def check_job(events: Iterable[Event]) -> None:
    events = list(events)
    posted = [event.name for event in events]
    assert posted.count("clean") == 1 and posted[-1] == "clean"
    for action in ("dependency-add", "prolog-start", "epilog-start"):
        end = {"dependency-add": "dependency-remove"}.get(
            action, action.replace("start", "finish")
        )
        if action != "dependency-add" or "exception" not in posted:
            assert posted.count(action) == posted.count(end), posted
    storage = {"description": "dws-create"} in [event.context for event in events]
    if "start" in posted and storage:
        assert posted.index("dws_environment") < posted.index("start")


def wait(system: VirtualSystem, seconds: float) -> None:
    system.loop.run(timeout=seconds)


def time_of(system: VirtualSystem, jobid: int, name: str) -> float:
    """When the first event of a name was posted."""
    events = system.instance.eventlog(jobid)
    return next(event.timestamp for event in events if event.name == name)


def running(system: VirtualSystem, *jobids: int) -> None:
    """Run until these jobs do."""
    jobs = [system.instance.job(jobid) for jobid in jobids]
    assert system.loop.run(
        lambda: all("start" in [e.name for e in job.events] for job in jobs),
        timeout=DAY,
    ), [(job.state, exceptions(system, job.id), memos(system, job.id)) for job in jobs]


def long(dw: Any, nodes: int = 1, seconds: int = 600, **system: Any) -> Json:
    """The jobspec of a job that runs for a while."""
    spec = jobspec(dw, nodes, **system)
    test = {"run_duration": f"{seconds}s"}
    spec["attributes"]["system"]["exec"] = {"test": test}
    return spec


def placed(system: VirtualSystem, name: str = "") -> dict[str, Counter[str]]:
    """For each label, the allocations on each Rabbit of all Servers, or of one."""
    found: dict[str, Counter[str]] = {}
    for servers in system.store.list(SERVERS, None)["items"]:
        if name and servers["metadata"]["name"] != name:
            continue
        for entry in servers["spec"].get("allocationSets", ()):
            counts = found.setdefault(entry["label"], Counter())
            for storage in entry["storage"]:
                counts[storage["name"]] += storage["allocationCount"]
    return found


def settle_jobs(system: VirtualSystem) -> None:
    settle(system, DAY)


def labelled(**fast: str) -> Topology:
    return Topology.of(
        [
            Rabbit("rabbit-01", TIB, ("compute-01", "compute-02")),
            Rabbit("rabbit-02", TIB, ("compute-03", "compute-04"), fast),
        ]
    )


def wants(*labels: str) -> Options:
    data = {**read_data("profiles.yaml"), "labels": [f"{RABBIT_LABEL}=Rabbit", *labels]}
    return Options(profiles=Profiles(data))


def in_state(system: VirtualSystem, state: str) -> Callable[[], bool]:
    return lambda: any(w["spec"]["desiredState"] == state for w in system.workflows())


def submit(system: VirtualSystem, *args: str) -> int:
    test = "exec.test.run_duration=2s"
    return system.instance.submit(submit_jobspec(["app"], [*args, "-S", test]))


def run_until_inactive(
    system: VirtualSystem, jobid: int, timeout: float = HOUR
) -> None:
    job = system.instance.job(jobid)
    assert system.loop.run(lambda: job.state is JobState.INACTIVE, timeout=timeout), (
        names(system, jobid),
        system.log[-10:],
    )


def workflow(system: VirtualSystem, jobid: int) -> Json:
    return system.store.get(WORKFLOW, "default", workflow_name(jobid))


def annotations(system: VirtualSystem, jobid: int) -> Json:
    """Those of its Workflow."""
    found: Json = workflow(system, jobid)["metadata"]["annotations"]
    return found


def desired(system: VirtualSystem, jobid: int) -> str:
    state: str = workflow(system, jobid)["spec"]["desiredState"]
    return state


def run_until(system: VirtualSystem, jobid: int, event: str) -> None:
    job = system.instance.job(jobid)
    assert system.loop.run(lambda: job.was_posted(event), HOUR), names(system, jobid)
