# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""PreRun and PostRun: file systems are mounted where the job runs."""

from __future__ import annotations

from functools import partial
from typing import Iterable, Optional

from flux_k8s.objects.datamovement import DIRECTIVE_LABEL
from flux_k8s.ports import CLIENTMOUNT, COMPUTES, SERVERS, Json
from rabbitsim.dws import objects
from rabbitsim.dws.breakdown import UserError
from rabbitsim.dws.cluster import Key, key_of
from rabbitsim.dws.directive import Directive, parse
from rabbitsim.dws.proposal import find_persistent, job_variable, servers_name
from rabbitsim.dws.storage import awaited, unmade
from rabbitsim.dws.task import (
    DONE,
    GONE,
    Outcome,
    Task,
    TrackedWorkflow,
    World,
    failed,
    running,
    transient,
)

PHYSICAL = ("raw", "xfs", "gfs2")
"""Types whose compute nodes reach their storage over PCIe only."""

RABBIT_MOUNTED = ("raw", "gfs2", "lustre")
"""Types that NNF also mounts on the Rabbits while the job runs."""

UNABLE = "unable to mount file system on client nodes"


def pre_run(task: Task) -> Outcome:
    try:
        directive = _created_by(task)
        type = directive.args["type"]
        nodes = _nodes(task, directive)
    except UserError as error:
        key = Key(COMPUTES, task.namespace, task.name)
        return failed(error) if task.fresh(key) else running("pending mount")
    made = {key.namespace for key, _ in _client_mounts(task)}
    missing = [node for node in nodes if node not in made]
    if missing and type in PHYSICAL and (_cut_off(task, nodes) or unmade(task)):
        task.wait_for_rabbits()
        return running("pending mount")
    bodies = [_body(task, type, node, nodes[node]) for node in missing]
    for body in bodies:
        task.cluster.create(CLIENTMOUNT, body)
    created = [key_of(CLIENTMOUNT, body) for body in bodies]
    follow = [key for key in created if not task.world.disabled(key.namespace)]
    task.tracked.follow(follow, partial(_advance, task, "mounted"))
    outcome = _settle(task, "mounted")
    return running("pending mount") if missing else outcome


def _cut_off(task: Task, nodes: Iterable[str]) -> bool:
    """Whether some node is not connected to its Rabbit. NNF makes no ClientMount
    at all until every node can see its storage."""
    return not all(task.world.ledger.linked(node) for node in nodes)


def _created_by(task: Task) -> Directive:
    """The directive that made the storage, maybe in another Workflow."""
    if task.directive.command == "jobdw":
        return task.directive
    spec = find_persistent(task, task.directive.name)["spec"]
    return parse(spec["dwDirective"])


def environment(
    world: World, tracked: TrackedWorkflow, workflow: Json, last: int
) -> dict[str, str]:
    """The variables by which a job finds its storage, up to a directive."""
    variables: dict[str, str] = {}
    for index, directive in enumerate(tracked.directives):
        if not job_variable(directive) or index > last:
            continue
        path = world.files.mount_path(workflow["metadata"]["uid"], index)
        entry = f"{directive.name}:{path}"
        if directive.command == "jobdw":
            group, every = f"DW_JOB_{directive.args['type'].upper()}", "DW_JOBS"
        else:
            # No type= here, and NNF leaves the end of the name open.
            group, every = "DW_PERSISTENT_", "DW_PERSISTENTS"
        variables[job_variable(directive)] = variables[group] = path
        others = variables.get(every)
        variables[every] = f"{others},{entry}" if others else entry
    return variables


def _nodes(task: Task, directive: Directive) -> dict[str, tuple[str, int]]:
    """Where to mount: for each node the Rabbit that its storage is on, and for
    a Rabbit the number of allocations there (0 for a compute node)."""
    type = directive.args["type"]
    sets = task.world.options.profiles.sets(directive)
    own = sets[0].strategy == "AllocatePerCompute"
    counts = _allocations(task)
    left = dict(counts)
    nodes: dict[str, tuple[str, int]] = {}
    for compute in task.computes():
        rabbit = task.world.topology.rabbit_of.get(compute, "")
        if not rabbit and compute not in task.world.topology.external:
            raise UserError(f"compute node '{compute}' is unknown", type="WLM")
        if type in PHYSICAL and left.get(rabbit, 0) < 1:
            raise UserError(
                f"there is no storage for compute node '{compute}' on its Rabbit",
                type="WLM",
            )
        left[rabbit] = left.get(rabbit, 0) - own
        nodes[compute] = (rabbit, 0)
    if type in RABBIT_MOUNTED:
        nodes.update((rabbit, (rabbit, count)) for rabbit, count in counts.items())
    return nodes


def _allocations(task: Task) -> dict[str, int]:
    """The number of allocations of the storage on each Rabbit."""
    servers = task.cluster.get(SERVERS, task.namespace, servers_name(task)) or {}
    counts: dict[str, int] = {}
    for entry in (servers.get("spec") or {}).get("allocationSets") or ():
        for storage in entry["storage"]:
            rabbit, count = storage["name"], storage["allocationCount"]
            counts[rabbit] = max(counts.get(rabbit, 0), count)
    return counts


def _body(task: Task, type: str, node: str, place: tuple[str, int]) -> Json:
    rabbit, count = place
    if not count:
        mounts = [_mount(task, type, rabbit, task.path, lvm=True)]
    elif type == "lustre":
        mounts = [_mount(task, type, rabbit, task.path, lvm=False)]
    else:
        paths = [f"{task.path}/{rabbit}-{i}" for i in range(count)]
        mounts = [_mount(task, type, rabbit, path, lvm=False) for path in paths]
    return objects.client_mount(
        task.workflow,
        task.index,
        node,
        mounts,
        storage=servers_name(task),
        rabbit=bool(count),
    )


def _mount(task: Task, type: str, rabbit: str, path: str, *, lvm: bool) -> Json:
    name = servers_name(task)
    device: Json
    if type == "lustre":
        target = objects.reference("NnfStorage", name, task.namespace)
        device = {
            "deviceReference": {"objectReference": target},
            "lustre": {"fileSystemName": "aaaaaaaa", "mgsAddresses": "1.2.3.4@tcp"},
            "type": "lustre",
        }
    else:
        node_storage = f"{task.namespace}-{name}-{type}-0"
        target = objects.reference("NnfNodeStorage", node_storage, rabbit)
        device = {"deviceReference": {"objectReference": target}, "type": "reference"}
        if lvm:
            info = {
                "deviceSerial": f"MOCK-{rabbit}-0",
                "namespaceGUID": "",
                "namespaceID": "1",
            }
            device["lvm"] = {"deviceType": "nvme", "nvmeInfo": [info]}
            device["type"] = "lvm"
    raw = type == "raw"
    return {
        "device": device,
        "mountPath": path,
        "options": "bind" if raw else "",
        "setPermissions": raw,
        "targetType": "file" if raw else "directory",
        "type": "none" if raw else type,
    }


def post_run(task: Task) -> Outcome:
    return _settle(task, "unmounted")


def unmount_late(task: Task, tell: bool) -> None:
    """Have nodes unmount after the end of PostRun: the nodes do that by themselves.

    Args:
        tell: also those that were not told to, since they were out of service.
    """
    computes = frozenset(task.computes())
    for key, obj in _client_mounts(task):
        told = obj["spec"]["desiredState"] == "unmounted"
        if awaited(task, key, computes) and (tell or told):
            _settle_one(task, key, obj, "unmounted")


def _settle(task: Task, target: str) -> Outcome:
    """Bring the ClientMounts of a directive to ``mounted`` or ``unmounted``."""
    pending = "pending mount" if target == "mounted" else "pending unmount"
    worst = DONE
    left = []
    computes = frozenset(task.computes())
    for key, obj in _client_mounts(task):
        if not awaited(task, key, computes):
            continue
        state = _settle_one(task, key, obj, target)
        if state is None:
            continue
        left.append(key)
        if state.status != "Running" or worst is DONE:
            worst = state
    task.tracked.follow(left, partial(_advance, task, target))
    if worst is DONE and not task.due:
        return running(pending)
    return worst


def _advance(task: Task, target: str, key: Key) -> Optional[Outcome]:
    """One ClientMount that has changed; None when it is where it should be."""
    obj = task.cluster.get(*key)
    return GONE if obj is None else _settle_one(task, key, obj, target)


def _client_mounts(task: Task) -> list[tuple[Key, Json]]:
    index = str(task.index)
    found = []
    for key in task.tracked.children:
        obj = task.cluster.get(*key) if key.kind == CLIENTMOUNT else None
        if obj is None:
            continue
        if obj["metadata"]["labels"].get(DIRECTIVE_LABEL) == index:
            found.append((key, obj))
    return found


def _settle_one(task: Task, key: Key, obj: Json, target: str) -> Optional[Outcome]:
    """One ClientMount; None when it is where it should be."""
    pending = running("pending mount" if target == "mounted" else "pending unmount")
    if _settled(obj, target):
        return None
    if task.cluster.busy(key):
        return pending
    if obj["spec"]["desiredState"] != target:
        task.cluster.patch(key, {"spec": {"desiredState": target}})
        return pending
    if _hangs(task, key.namespace):
        return pending
    trouble = _trouble(task, key)
    if trouble:
        return _fail(task, key, obj, target, trouble)
    if task.due:
        task.cluster.patch_status(key, _status(obj, target, ready=True))
    elif task.slow and not _shows(obj, target):
        task.cluster.patch_status(key, _status(obj, target, ready=False))
    return pending


def _settled(obj: Json, target: str) -> bool:
    mounts = (obj.get("status") or {}).get("mounts") or ()
    return (
        obj["spec"]["desiredState"] == target
        and len(mounts) == len(obj["spec"]["mounts"])
        and all(m["state"] == target and m["ready"] for m in mounts)
    )


def _shows(obj: Json, target: str) -> bool:
    mounts = (obj.get("status") or {}).get("mounts") or ()
    return bool(mounts) and all(m["state"] == target for m in mounts)


def _hangs(task: Task, node: str) -> bool:
    """Whether a node does nothing, and says nothing."""
    options, state = task.world.options, task.tracked.state
    for fault in options.faults_of_nodes(task.name, state, task.elapsed):
        if fault.matches_node(node):
            if fault.duration:
                task.world.wake(task.tracked, task.tracked.began + fault.duration)
            return True
    return False


def _trouble(task: Task, key: Key) -> str:
    """The reason why a node cannot mount or unmount now; "" when it can."""
    options, world, node = task.world.options, task.world, key.namespace
    for fault in options.faults:
        if (
            fault.kind == "mount"
            and fault.is_active(task.name, task.tracked.state, task.elapsed)
            and fault.matches_node(node)
        ):
            if fault.duration:
                world.wake(task.tracked, task.tracked.began + fault.duration)
            return fault.message or f"mount failed on {node}"
    rabbit = world.topology.rabbit_of.get(node, node)
    if rabbit in world.topology.rabbits and world.ledger.down(rabbit):
        if not world.disabled(rabbit):
            task.wait_for_rabbits()
            return f"Rabbit '{rabbit}' is not available"
    if not world.ledger.linked(node):
        task.wait_for_rabbits()
        return f"{node} has no PCIe connection to its Rabbit"
    return ""


def _fail(task: Task, key: Key, obj: Json, target: str, trouble: str) -> Outcome:
    """Show the error in the ClientMount. A node that cannot unmount does
    nothing at all: it is taken to be dead."""
    if target == "unmounted":
        return running("pending unmount")
    error = objects.resource_error("mount/unmount failed", trouble)
    if (obj.get("status") or {}).get("error") != error:
        status = _status(obj, target, ready=False)
        task.cluster.patch_status(key, {**status, "error": error})
    return transient(UNABLE, f"ClientMount {key.namespace}/{key.name}: {trouble}")


def _status(obj: Json, target: str, *, ready: bool) -> Json:
    """``status`` of a ClientMount. ``error`` is cleared when all is well."""
    count = len(obj["spec"]["mounts"])
    # Seen on compute nodes, not on Rabbits: allReady stays true in an unmount.
    stays = objects.CLIENTMOUNT_FINALIZER in obj["metadata"].get("finalizers", ())
    before = (obj.get("status") or {}).get("allReady")
    status: Json = {
        "allReady": ready or (target == "unmounted" and stays and bool(before)),
        "mounts": [{"ready": ready, "state": target}] * count,
    }
    if ready and (obj.get("status") or {}).get("error"):
        status["error"] = None
    return status
