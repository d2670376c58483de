# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""A Workflow's way through its states, as DWS drives it.

:func:`reconcile` looks at the objects and takes the next step; it is called again
after each change. All state of DWS is in the objects, so it may stop at any point and
go on in another process.
"""

from __future__ import annotations

import contextlib
from typing import Callable, Optional

from flux_k8s.formats.timestamps import format_timestamp, parse_timestamp
from flux_k8s.ports import (
    CLIENTMOUNT,
    COMPUTES,
    DIRECTIVEBREAKDOWN,
    NNFDATAMOVEMENT,
    PERSISTENTSTORAGE,
    SECRET,
    SERVERS,
    Json,
)
from rabbitsim.dws import objects
from rabbitsim.dws.breakdown import UserError
from rabbitsim.dws.cluster import Key
from rabbitsim.dws.directive import InvalidDirective
from rabbitsim.dws.mounts import environment, post_run, pre_run, unmount_late
from rabbitsim.dws.movement import goes_on, move
from rabbitsim.dws.objects import Owner
from rabbitsim.dws.options import Fault
from rabbitsim.dws.proposal import check, propose, servers_name
from rabbitsim.dws.storage import ours, remove, setup, teardown, wanted
from rabbitsim.dws.task import (
    DONE,
    Outcome,
    Task,
    TrackedWorkflow,
    World,
    failed,
    running,
)

DRIVERS: dict[str, Callable[[Task], Outcome]] = {
    "Proposal": propose,
    "Setup": setup,
    "DataIn": move,
    "PreRun": pre_run,
    "PostRun": post_run,
    "DataOut": move,
    "Teardown": teardown,
}
"""The functions that do the work of each state."""

_TOGETHER = ("Setup", "PreRun")
"""States in which the work for all directives begins at once. NNF looks after one
only when those before it are done."""

_COPYING = ("DataIn", "DataOut")
"""States in which the work for all directives begins at once, and goes on when one has
failed. NNF reports on one only when those before it are done."""

_IN_TURN = ("PostRun", "Teardown")
"""States in which the work for a directive begins when that for those before it is
done: the file systems are unmounted one after the other."""

_SEVERITY = ("Error", "TransientCondition", "Running")


def reconcile(world: World, tracked: TrackedWorkflow, workflow: Json) -> None:
    """Do the next thing for a Workflow, if there is one to do now."""
    if world.cluster.busy(tracked.key):
        return
    tracked.moving.clear()
    status = workflow.get("status") or {}
    if "deletionTimestamp" in workflow["metadata"]:
        _delete(world, tracked, workflow)
    elif _unknown(workflow):
        _admit(world, tracked, workflow)
    elif status.get("state") != workflow["spec"]["desiredState"]:
        _begin(world, tracked, workflow)
    elif not status.get("ready"):
        _work(world, tracked, workflow)
    elif status["state"] == "PostRun":
        enter(world, tracked, workflow)
        _unmount_late(world, tracked, workflow, tell=True)


def _unknown(workflow: Json) -> bool:
    """Whether a new Workflow went past no webhook."""
    status = _status(workflow)
    new = not status.get("drivers") and not status.get("state")
    return new and workflow["spec"]["desiredState"] == "Proposal"


def _admit(world: World, tracked: TrackedWorkflow, workflow: Json) -> None:
    """Do the work of the webhooks, for an API server that does not call them."""
    try:
        directives = world.options.rules.validate(workflow["spec"]["dwDirectives"])
    except InvalidDirective as error:
        if not _status(workflow).get("message"):
            status = {
                "desiredStateChange": format_timestamp(world.clock.now()),
                "message": str(error),
                "ready": False,
                "state": workflow["spec"]["desiredState"],
                "status": "Error",
            }
            world.cluster.patch(tracked.key, {"status": status})
        return
    if not directives:
        _begin(world, tracked, workflow)
        return
    status = first_status(workflow, world.options.rules.drivers(directives))
    world.cluster.patch(tracked.key, {"status": status})


def first_status(workflow: Json, drivers: list[Json]) -> Json:
    """The status of a Workflow that was just created."""
    meta = workflow["metadata"]
    return {
        "computes": {},
        "drivers": drivers,
        "env": {
            "DW_WORKFLOW_NAME": meta["name"],
            "DW_WORKFLOW_NAMESPACE": meta["namespace"],
        },
        "ready": False,
    }


def _status(workflow: Json) -> Json:
    return workflow.get("status") or {}


def _begin(world: World, tracked: TrackedWorkflow, workflow: Json) -> None:
    """Enter the state that the workload manager wants."""
    status: Json = {
        "desiredStateChange": format_timestamp(world.clock.now()),
        "ready": False,
        "state": workflow["spec"]["desiredState"],
        "status": "DriverWait",
    }
    if _status(workflow).get("message"):
        status["message"] = None
    patch: Json = {"status": status}
    if workflow["spec"].get("forceReady") and _status(workflow).get("state"):
        patch["spec"] = {"forceReady": False}
    finalizers = workflow["metadata"].get("finalizers") or []
    missing = [f for f in objects.WORKFLOW_FINALIZERS if f not in finalizers]
    if missing:
        # A merge patch writes the whole list, so it must be the latest one.
        patch["metadata"] = {
            "finalizers": [*finalizers, *missing],
            "resourceVersion": workflow["metadata"]["resourceVersion"],
        }
    world.cluster.patch(tracked.key, patch)


def enter(world: World, tracked: TrackedWorkflow, workflow: Json) -> None:
    """Bring the kept state in line with the state of the Workflow."""
    status = _status(workflow)
    if not tracked.directives:
        texts = workflow["spec"]["dwDirectives"]
        with contextlib.suppress(InvalidDirective):
            tracked.directives = tuple(world.options.rules.validate(texts))
    since = status.get("desiredStateChange", "")
    if tracked.state == status.get("state") and tracked.since == since:
        return
    tracked.state, tracked.since = status.get("state", ""), since
    tracked.began = parse_timestamp(since) or world.clock.now()
    tracked.refreshed = set()
    options, name = world.options, workflow["metadata"]["name"]
    seconds = options.latency(tracked.state, world.rng)
    slow = options.fault("slow", name, tracked.state, 0.0)
    tracked.due = tracked.began + seconds + (slow.duration if slow else 0.0)
    for fault in options.faults:
        if fault.kind == "rabbit" and fault.is_active(name, tracked.state, 0.0):
            world.ledger.fail(fault.node, fault.duration)


def _work(world: World, tracked: TrackedWorkflow, workflow: Json) -> None:
    """Ask the driver about each directive, and write the changes."""
    enter(world, tracked, workflow)
    extra: Json = {}
    if tracked.state == "Proposal":
        _computes(world, tracked, workflow, extra)
        _breakdowns(world, tracked, extra)
    forced = workflow["spec"].get("forceReady")
    given_up = _status(workflow).get("status") == "Error" and not forced
    if given_up and tracked.state == "PostRun":
        _unmount_late(world, tracked, workflow, tell=False)
    if given_up and not (
        tracked.state in _TOGETHER
        or goes_on(world.cluster, tracked.children, tracked.state)
    ):
        _write(world, tracked, workflow, extra)
        return
    trouble = _fault(world, tracked, workflow)
    outcomes = _outcomes(world, tracked, workflow, extra, trouble)
    if given_up and tracked.state in _TOGETHER:
        return  # the work that was begun on Rabbits and nodes goes on
    if tracked.state == "PreRun":
        extra["env"] = environment(world, tracked, workflow, _at(workflow, outcomes))
    if forced:
        patch = _ready(world, tracked, workflow)
        patch["message"] = "Forced Ready"
        _write(world, tracked, workflow, {**extra, **patch})
        return
    drivers = _drivers(world, tracked, workflow, outcomes)
    complete = all(o.status == "Completed" for o in outcomes.values())
    if not outcomes and trouble is not None:
        _write(world, tracked, workflow, _trouble(trouble))
    elif complete and _over(world, tracked, workflow, bool(outcomes), extra):
        patch = _ready(world, tracked, workflow)
        _write(world, tracked, workflow, {**extra, **patch, "drivers": drivers})
    elif drivers != _status(workflow).get("drivers"):
        patch = _progress(workflow, drivers)
        _write(world, tracked, workflow, {**extra, **patch, "drivers": drivers})


def _computes(
    world: World, tracked: TrackedWorkflow, workflow: Json, extra: Json
) -> None:
    namespace, name = tracked.key.namespace, tracked.key.name
    if world.cluster.get(COMPUTES, namespace, name) is None:
        labels = objects.workflow_labels(workflow)
        meta = objects.owned(name, namespace, Owner.of(workflow), labels)
        world.cluster.create(COMPUTES, {"metadata": meta})
    else:
        extra["computes"] = objects.reference("Computes", name, namespace)


def _breakdowns(world: World, tracked: TrackedWorkflow, extra: Json) -> None:
    namespace, name = tracked.key.namespace, tracked.key.name
    names = [f"{name}-{index}" for index in range(len(tracked.directives))]
    found = [
        objects.reference("DirectiveBreakdown", item, namespace)
        for item in names
        if world.cluster.get(DIRECTIVEBREAKDOWN, namespace, item) is not None
    ]
    if found:
        extra["directiveBreakdowns"] = found


def _trouble(trouble: Outcome) -> Json:
    """The status of a Workflow in trouble in a state that needs no driver."""
    if trouble.status == "Running":
        return {"status": "DriverWait"}
    return {"status": trouble.status, "message": trouble.message}


def _over(
    world: World, tracked: TrackedWorkflow, workflow: Json, drivers: bool, extra: Json
) -> bool:
    """Whether a state whose drivers are done is over. The drivers have waited
    for the time that it takes, if there are any."""
    if tracked.state == "Proposal" and "computes" not in extra:
        return False
    if drivers:
        return True
    return Task(world, tracked, workflow, 0, {}).due


def _outcomes(
    world: World,
    tracked: TrackedWorkflow,
    workflow: Json,
    extra: Json,
    trouble: Optional[Outcome],
) -> dict[int, Outcome]:
    """The progress of each entry of ``status.drivers`` in this state, by position."""
    positions = [
        (position, entry)
        for position, entry in enumerate(_status(workflow).get("drivers") or ())
        if entry["watchState"] == tracked.state
    ]
    outcomes: dict[int, Outcome] = {}
    for position, entry in positions:
        task = Task(world, tracked, workflow, entry["dwdIndex"], extra)
        if entry["completed"]:
            outcome = DONE
        elif tracked.state == "Proposal" and not outcomes:
            outcome = _checked(task)
        else:
            outcome = DRIVERS[tracked.state](task)
        copying = tracked.state in _COPYING
        in_order = copying or tracked.state in _TOGETHER
        if outcome.status == "Error" and not copying:
            return {position: outcome}
        waits = any(before.status != "Completed" for before in outcomes.values())
        if in_order and waits and not entry["completed"]:
            outcome = running("waiting")
        elif trouble is not None and outcome.status in ("Completed", "Running"):
            outcome = trouble
        outcomes[position] = outcome
        if outcome.status == "Error" and not in_order:
            break
        if tracked.state in _IN_TURN and outcome.status != "Completed":
            break
    return outcomes


def _at(workflow: Json, outcomes: dict[int, Outcome]) -> int:
    """The index of the directive that DWS is at."""
    drivers = _status(workflow).get("drivers") or ()
    for position, outcome in outcomes.items():
        if outcome.status != "Completed":
            return int(drivers[position]["dwdIndex"])
    return len(workflow["spec"]["dwDirectives"])


def _checked(task: Task) -> Outcome:
    """The outcome of the first directive, which has the errors of all of them."""
    try:
        check(task)
    except UserError as error:
        return failed(error)
    return propose(task)


def _unmount_late(
    world: World, tracked: TrackedWorkflow, workflow: Json, tell: bool
) -> None:
    for index in range(len(tracked.directives)):
        unmount_late(Task(world, tracked, workflow, index, {}), tell)


def _fault(world: World, tracked: TrackedWorkflow, workflow: Json) -> Optional[Outcome]:
    """The outcome of a fault in the state now, or None."""
    name = workflow["metadata"]["name"]
    elapsed = world.clock.now() - tracked.began
    due = Task(world, tracked, workflow, 0, {}).due
    for kind in ("error", "transient", "never"):
        fault = world.options.fault(kind, name, tracked.state, elapsed)
        for other in world.options.faults_of_nodes(name, tracked.state, elapsed):
            if other.kind == kind and _concerns(world, tracked, workflow, other):
                fault = fault or other
        if fault is None or (kind != "never" and not due):
            continue
        if fault.duration:
            world.wake(tracked, tracked.began + fault.duration)
        if kind == "never":
            return running("waiting")
        error = UserError(fault.message or f"{tracked.state} failed", type="Internal")
        outcome = failed(error)
        if kind == "error":
            return outcome
        return Outcome("TransientCondition", outcome.message, outcome.error)
    return None


def _concerns(
    world: World, tracked: TrackedWorkflow, workflow: Json, fault: Fault
) -> bool:
    """Whether a fault is one of a Rabbit or node that the Workflow (still) uses."""
    tasks = [
        Task(world, tracked, workflow, i, {}) for i in range(len(tracked.directives))
    ]
    names: set[str] = set()
    for task in tasks:
        if tracked.state == "PreRun":
            names.update(task.computes())
        else:
            servers = world.cluster.get(SERVERS, task.namespace, servers_name(task))
            names.update(wanted((servers or {}).get("spec") or {}))
    return any(fault.matches_node(name) for name in names)


def _drivers(
    world: World, tracked: TrackedWorkflow, workflow: Json, outcomes: dict[int, Outcome]
) -> list[Json]:
    """``status.drivers`` with the outcomes in it."""
    now = world.clock.now()
    slow = Task(world, tracked, workflow, 0, {}).slow
    drivers = []
    for position, entry in enumerate(_status(workflow).get("drivers") or ()):
        outcome = outcomes.get(position)
        if outcome is None or entry["completed"]:
            drivers.append(entry)
            continue
        quiet = outcome.status == "Running" and not slow
        if quiet and entry["status"] in ("Pending", "Running"):
            drivers.append(entry)
            continue
        new = {k: v for k, v in entry.items() if k not in ("message", "error")}
        new["status"] = outcome.status
        if outcome.status == "Completed":
            new.update(completed=True, completeTime=format_timestamp(now))
        elif outcome.status == "Running":
            new["message"] = outcome.message
        else:
            new.update(message=outcome.message, error=outcome.error)
        drivers.append(new)
    return drivers


def _progress(workflow: Json, drivers: list[Json]) -> Json:
    """``status`` and ``message`` of a Workflow whose state is not over."""
    state = workflow["spec"]["desiredState"]
    for severity in _SEVERITY:
        for entry in drivers:
            if entry["watchState"] == state and entry["status"] == severity:
                index, text = entry["dwdIndex"], entry.get("message", "")
                return {
                    "message": f"DW Directive {index}: {text}",
                    "status": "DriverWait" if severity == "Running" else severity,
                }
    return {"status": "DriverWait"}


def _ready(world: World, tracked: TrackedWorkflow, workflow: Json) -> Json:
    now = world.clock.now()
    patch: Json = {
        "elapsedTimeLastState": objects.duration(now - tracked.began),
        "ready": True,
        "readyChange": format_timestamp(now),
        "status": "Completed",
    }
    if _status(workflow).get("message"):
        patch["message"] = None
    return patch


def _write(
    world: World, tracked: TrackedWorkflow, workflow: Json, status: Json
) -> None:
    current = _status(workflow)
    changed = {
        key: value
        for key, value in status.items()
        if key not in current or not _includes(current[key], value)
    }
    if changed:
        world.cluster.patch(tracked.key, {"status": changed})


def _includes(current: object, value: object) -> bool:
    """Whether merging ``value`` into ``current`` would change nothing."""
    if isinstance(current, dict) and isinstance(value, dict):
        return all(k in current and current[k] == v for k, v in value.items())
    return current == value


def _delete(world: World, tracked: TrackedWorkflow, workflow: Json) -> None:
    """Give everything back, delete all that belongs to the Workflow, and let it
    go."""
    if not _release(world, tracked, workflow):
        return
    cluster = world.cluster
    secret = Key(SECRET, tracked.key.namespace, tracked.key.name)
    if cluster.get(*secret) is not None:
        cluster.delete(secret)
    kinds = {key.kind for key in tracked.children}
    for key in tuple(tracked.children):
        # A breakdown stays until its Servers are gone, as with NNF.
        obj = cluster.get(*key) or {"metadata": {}}
        deleting = "deletionTimestamp" in obj["metadata"]
        if key.kind == DIRECTIVEBREAKDOWN and deleting and SERVERS in kinds:
            continue
        remove(cluster, key)
    if tracked.children or cluster.get(*secret) is not None:
        return
    finalizers = workflow["metadata"].get("finalizers") or []
    rest = [f for f in finalizers if f not in objects.WORKFLOW_FINALIZERS]
    if rest != finalizers:
        version = workflow["metadata"]["resourceVersion"]
        meta = {"finalizers": rest, "resourceVersion": version}
        cluster.patch(tracked.key, {"metadata": meta})


def _release(world: World, tracked: TrackedWorkflow, workflow: Json) -> bool:
    """Do the work of Teardown that is left. Whether all of it is done."""
    enter(world, tracked, workflow)
    tracked.due = 0.0
    done = True
    for index, directive in enumerate(tracked.directives):
        if directive.command != "destroy_persistent":
            task = Task(world, tracked, workflow, index, {})
            done = teardown(task) == DONE and done
            done = _persistent_gone(task) and done
    return done


def _persistent_gone(task: Task) -> bool:
    """Whether no persistent storage is left that was never completed."""
    if task.directive.command != "create_persistent" or not ours(task):
        return True
    key = Key(PERSISTENTSTORAGE, task.namespace, task.directive.name)
    found = task.cluster.get(*key)
    if found is not None and "deletionTimestamp" not in found["metadata"]:
        task.cluster.delete(key)
    return found is None


CHILDREN = (CLIENTMOUNT, COMPUTES, DIRECTIVEBREAKDOWN, NNFDATAMOVEMENT, SERVERS)
"""The kinds of objects that belong to one Workflow, and go with it."""
