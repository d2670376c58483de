# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Setup and Teardown: storage on Rabbits is made, and given back."""

from __future__ import annotations

from typing import Collection, Optional

from flux_k8s.formats.timestamps import format_timestamp, parse_timestamp
from flux_k8s.objects.datamovement import DIRECTIVE_LABEL
from flux_k8s.ports import (
    CLIENTMOUNT,
    DIRECTIVEBREAKDOWN,
    NNF_GROUP,
    NNFDATAMOVEMENT,
    PERSISTENTSTORAGE,
    SERVERS,
    WORKFLOW,
    Json,
)
from rabbitsim.dws import objects
from rabbitsim.dws.breakdown import UserError, check_servers
from rabbitsim.dws.cluster import Cluster, Key
from rabbitsim.dws.directive import parse
from rabbitsim.dws.objects import Owner
from rabbitsim.dws.proposal import find_persistent, owned_by, servers_name
from rabbitsim.dws.task import (
    DONE,
    Outcome,
    Task,
    TrackedWorkflow,
    failed,
    running,
    transient,
)

CANNOT_ALLOCATE = "could not allocate storage"


def usage(servers: Optional[Json]) -> dict[str, int]:
    """Bytes that a Servers object holds on each Rabbit."""
    held: dict[str, int] = {}
    for entry in ((servers or {}).get("status") or {}).get("allocationSets") or ():
        for rabbit, storage in entry["storage"].items():
            held[rabbit] = held.get(rabbit, 0) + storage["allocationSize"]
    return held


def wanted(spec: Json) -> dict[str, int]:
    """Bytes that a Servers' spec asks for on each Rabbit."""
    total: dict[str, int] = {}
    for entry in spec.get("allocationSets") or ():
        for storage in entry["storage"]:
            size = entry["allocationSize"] * storage["allocationCount"]
            total[storage["name"]] = total.get(storage["name"], 0) + size
    return total


def servers_status(
    spec: Json, now: float, *, ready: bool, made: frozenset[str] = frozenset()
) -> Json:
    """``status`` of a Servers whose storage exists on the Rabbits ``made``."""
    return {
        "allocationSets": [
            {
                "label": entry["label"],
                "storage": {
                    storage["name"]: {
                        "allocationSize": (
                            entry["allocationSize"] * storage["allocationCount"]
                            if storage["name"] in made
                            else 0
                        ),
                        "ready": storage["name"] in made,
                    }
                    for storage in entry["storage"]
                },
            }
            for entry in spec.get("allocationSets") or ()
        ],
        "lastUpdate": format_timestamp(now),
        "ready": ready,
    }


def follow_spec(cluster: Cluster, key: Key, servers: Json, now: float) -> None:
    """Show the storage of a Servers' spec in its status, before the storage is made."""
    status = servers.get("status") or {}
    spec = servers.get("spec") or {}
    if spec.get("allocationSets") and not status.get("allocationSets"):
        cluster.patch_status(key, servers_status(spec, now, ready=False))


def setup(task: Task) -> Outcome:
    if task.directive.command == "persistentdw":
        return _attach(task)
    key = Key(SERVERS, task.namespace, servers_name(task))
    servers = task.cluster.get(*key)
    try:
        spec = _checked(task, servers)
    except UserError as error:
        # The workload manager may have written to it a moment ago.
        return failed(error) if task.fresh(key) else running("allocation")
    if servers is None or not task.due:
        return running("allocation set not ready")
    if not (servers.get("status") or {}).get("ready"):
        return _allocate(task, key, spec)
    if task.directive.command == "create_persistent":
        return _activate(task)
    return DONE


def _checked(task: Task, servers: Optional[Json]) -> Json:
    """The spec of a Servers that satisfies its breakdown."""
    breakdown = task.cluster.get(DIRECTIVEBREAKDOWN, task.namespace, task.base)
    if servers is None or breakdown is None:
        raise UserError(CANNOT_ALLOCATE, f"Servers of '{task.base}' not found")
    spec: Json = servers.get("spec") or {}
    check_servers(breakdown["status"]["storage"], spec, task.world.topology.rabbits)
    return spec


def _allocate(task: Task, key: Key, spec: Json) -> Outcome:
    ledger = task.world.ledger
    sizes = wanted(spec)
    if task.cluster.busy(key):
        return running("allocation set not ready")
    for rabbit in sizes:
        if ledger.down(rabbit):
            task.wait_for_rabbits()
            return transient(CANNOT_ALLOCATE, f"Rabbit '{rabbit}' is not available")
    for rabbit, size in sizes.items():
        free = ledger.free(rabbit, key)
        if size > free:
            task.wait_for_rabbits()
            return transient(
                CANNOT_ALLOCATE,
                f"Rabbit '{rabbit}' has {free} bytes free, {size} are needed",
            )
    broken = _broken(task, tuple(sizes))
    made = frozenset(r for r in sizes if r not in broken)
    held = {r: s if r in made else 0 for r, s in sizes.items()}
    _make(task, spec)
    if not broken or usage(task.cluster.get(*key)) != held:
        ledger.reserve(key, held)
        now = task.world.clock.now()
        status = servers_status(spec, now, ready=not broken, made=made)
        task.cluster.patch_status(key, status)
    return running("allocation set not ready")


def _broken(task: Task, rabbits: tuple[str, ...]) -> tuple[str, ...]:
    """The Rabbits on which a fault keeps storage from being made."""
    broken: dict[str, None] = {}
    options = task.world.options
    for fault in options.faults_of_nodes(task.name, "Setup", task.elapsed):
        broken.update((r, None) for r in rabbits if fault.matches_node(r))
    return tuple(broken)


def unmade(task: Task) -> bool:
    """Whether storage is missing on a Rabbit where a Servers asks for it. Setup
    was forced then, and NNF waits for that Rabbit when it is to mount it there."""
    servers = task.cluster.get(SERVERS, task.namespace, servers_name(task)) or {}
    held = usage(servers)
    return any(held.get(rabbit, 0) == 0 for rabbit in wanted(servers.get("spec") or {}))


def _make(task: Task, spec: Json) -> None:
    size = None
    if task.directive.args["type"] == "raw":
        size = spec["allocationSets"][0]["allocationSize"]
    if task.directive.command == "create_persistent":
        task.world.files.create_persistent(task.directive.name, size)
    else:
        task.world.files.create(task.path, size)


def _activate(task: Task) -> Outcome:
    key = Key(PERSISTENTSTORAGE, task.namespace, task.directive.name)
    persistent = task.cluster.get(*key)
    if persistent is None:
        return running("allocation set not ready")
    if (persistent.get("status") or {}).get("state") != "Active":
        task.cluster.patch_status(key, {"state": "Active"})
        return running("allocation set not ready")
    return DONE


def consumer(task: Task) -> Json:
    """The reference by which a Workflow holds on to persistent storage."""
    return objects.reference("Workflow", task.base, task.namespace)


def _attach(task: Task) -> Outcome:
    try:
        persistent = find_persistent(task, task.directive.name)
    except UserError as error:
        return failed(error)
    consumers = persistent["spec"].get("consumerReferences") or []
    if consumer(task) not in consumers:
        key = Key(PERSISTENTSTORAGE, task.namespace, task.directive.name)
        patch = {"spec": {"consumerReferences": [*consumers, consumer(task)]}}
        task.cluster.patch(key, patch)
        return running("allocation")
    if not task.due:
        return running("allocation")
    task.world.files.attach(task.path, task.directive.name)
    return DONE


def teardown(task: Task) -> Outcome:
    """Give back the storage of a directive; also when a Workflow is deleted without
    ever having come to Teardown."""
    task.tracked.copies.pop(task.index, None)
    stuck = _stuck(task)
    computes = frozenset(task.computes())
    others_gone = remove_children(task, (CLIENTMOUNT, NNFDATAMOVEMENT), stuck)
    if not others_gone or any(awaited(task, key, computes) for key in stuck):
        return running("delete")
    command = task.directive.command
    if command == "persistentdw":
        return _detach(task)
    if command == "destroy_persistent":
        return _destroy(task)
    if command not in ("jobdw", "create_persistent"):
        return DONE if task.due else running("delete")
    key = Key(SERVERS, task.namespace, servers_name(task))
    if command == "create_persistent":
        if _is_active(task):
            done = _hand_over(task) and task.due
            return DONE if done else running("delete")
        if not ours(task):
            return DONE
    if not task.due:
        return running("delete")
    held = usage(task.cluster.get(*key))
    if any(size and _lost(task, rabbit) for rabbit, size in held.items()):
        task.wait_for_rabbits()
        return running("delete")
    if any(held.values()):
        note_harm(task, "deleted")
    # Directories go first: who restarts in between finds the storage still held.
    if command == "jobdw":
        task.world.files.remove(task.path)
    else:
        task.world.files.remove_persistent(task.directive.name)
    if not any(held.values()):
        return running("delete") if task.cluster.busy(key) else DONE
    release(task.cluster, key, task.world.clock.now())
    return running("delete")


def _stuck(task: Task) -> set[Key]:
    """The ClientMounts of nodes that do not unmount. One of a node that is not
    waited for stays as it is, and goes with the Workflow."""
    faults = [
        fault
        for fault in task.world.options.faults
        if fault.kind == "mount" and fault.is_active(task.name, "PostRun", task.elapsed)
    ]
    for fault in faults:
        if fault.duration:
            task.world.wake(task.tracked, task.tracked.began + fault.duration)
    return {
        key
        for key in task.tracked.children
        if key.kind == CLIENTMOUNT
        and key.namespace not in task.world.topology.rabbits
        and any(fault.matches_node(key.namespace) for fault in faults)
        and _is_mounted(task.cluster.get(*key))
    }


def awaited(task: Task, key: Key, computes: Collection[str]) -> bool:
    """Whether DWS waits for a ClientMount. It does not for nodes that have left the
    Computes, or that the SystemStatus says are out of service."""
    if task.world.disabled(key.namespace):
        return False
    rabbits = task.world.topology.rabbits
    return key.namespace in rabbits or key.namespace in computes


def note_harm(task: Task, what: str) -> None:
    """Note that the file system of a directive is deleted, or mounted a second time,
    while nodes have it mounted, and could write. DWS does not look."""
    for key in task.cluster.keys():
        clientmount = task.cluster.get(*key) if key.kind == CLIENTMOUNT else None
        if clientmount is None or not _holds(clientmount):
            continue
        since = parse_timestamp(clientmount["metadata"]["creationTimestamp"]) or 0.0
        if _is_of(task, clientmount) and task.world.ledger.reaches(
            key.namespace, since
        ):
            task.world.harm[task.name, key.namespace] = what


def _is_of(task: Task, clientmount: Json) -> bool:
    """Whether a node mounts the file system of a directive: for this Workflow, or for
    another one that has let go of the same persistent storage, and whose job is over.
    Active jobs that share storage may mount it at the same time."""
    labels = clientmount["metadata"]["labels"]
    index, name = int(labels[DIRECTIVE_LABEL]), labels[objects.WORKFLOW_NAME]
    if name == task.name:
        return index == task.index
    workflow = task.cluster.get(WORKFLOW, task.namespace, name)
    wanted = clientmount["spec"]["desiredState"] == "mounted"
    if workflow is None or wanted or task.world.is_active(name):
        return False
    other, own = parse(workflow["spec"]["dwDirectives"][index]), task.directive
    both = own.command == other.command == "persistentdw"
    return both and own.args["name"] == other.args["name"]


def _holds(clientmount: Json) -> bool:
    """Whether the node of a ClientMount has mounted, and has not unmounted: the state
    is that which it works on, until it is ready."""
    mounts = (clientmount.get("status") or {}).get("mounts") or ()
    return any((mount["state"] == "mounted") is mount["ready"] for mount in mounts)


def _is_mounted(clientmount: Optional[Json]) -> bool:
    mounts = ((clientmount or {}).get("status") or {}).get("mounts") or ()
    return any(mount["state"] == "mounted" for mount in mounts)


def _lost(task: Task, rabbit: str) -> bool:
    """Whether a Rabbit that storage should be removed from is away. One that an
    administrator has disabled is not waited for."""
    return task.world.ledger.down(rabbit) and not task.world.disabled(rabbit)


def release(cluster: Cluster, key: Key, now: float) -> None:
    """Give back the storage of a Servers. As NNF has it, ``ready`` stays."""
    servers = cluster.get(*key)
    if servers is not None:
        ready = bool((servers.get("status") or {}).get("ready"))
        spec = servers.get("spec") or {}
        cluster.patch_status(key, servers_status(spec, now, ready=ready))


def remove_children(
    task: Task, kinds: tuple[object, ...], spared: Collection[Key] = ()
) -> bool:
    """Delete the objects that were made for a directive, but not those ``spared``.
    Whether they are all gone."""
    left = []
    index = str(task.index)
    for key in task.tracked.children:
        if key.kind in kinds and key not in spared:
            obj = task.cluster.get(*key)
            labels = (obj or {}).get("metadata", {}).get("labels") or {}
            if labels.get(DIRECTIVE_LABEL) == index:
                left.append(key)
    remove_all(task.cluster, task.tracked, left)
    return not left


def remove_all(
    cluster: Cluster, tracked: TrackedWorkflow, keys: Collection[Key]
) -> None:
    """Delete objects of a Workflow, each by itself."""

    def advance(key: Key) -> Optional[Outcome]:
        remove(cluster, key)
        return None if cluster.get(*key) is None else running("delete")

    tracked.follow(keys, advance)
    for key in keys:
        remove(cluster, key)


def remove(cluster: Cluster, key: Key) -> None:
    """Delete an object; once it is being deleted, let it go."""
    obj = cluster.get(*key)
    if obj is None or cluster.busy(key):
        return
    if "deletionTimestamp" not in obj["metadata"]:
        cluster.delete(key)
    elif obj["metadata"].get("finalizers"):
        cluster.patch(key, {"metadata": {"finalizers": None}})


def ours(task: Task) -> bool:
    """Whether a create_persistent's instance is the one that it made."""
    persistent = task.cluster.get(
        PERSISTENTSTORAGE, task.namespace, task.directive.name
    )
    breakdown = task.cluster.get(DIRECTIVEBREAKDOWN, task.namespace, task.base)
    return bool(persistent and breakdown and owned_by(persistent, breakdown))


def _is_active(task: Task) -> bool:
    """Whether persistent storage is complete."""
    persistent = task.cluster.get(
        PERSISTENTSTORAGE, task.namespace, task.directive.name
    )
    return ((persistent or {}).get("status") or {}).get("state") == "Active"


def _hand_over(task: Task) -> bool:
    """Let persistent storage that is complete outlive its Workflow. Whether it
    will."""
    if not ours(task):
        return True
    key = Key(PERSISTENTSTORAGE, task.namespace, task.directive.name)
    labels = dict.fromkeys(objects.OWNER_LABELS)
    task.cluster.patch(key, {"metadata": {"labels": labels, "ownerReferences": None}})
    return False


def _detach(task: Task) -> Outcome:
    key = Key(PERSISTENTSTORAGE, task.namespace, task.directive.name)
    persistent = task.cluster.get(*key)
    task.world.files.remove(task.path)
    consumers = ((persistent or {}).get("spec") or {}).get("consumerReferences") or []
    if consumer(task) in consumers:
        rest = [c for c in consumers if c != consumer(task)]
        task.cluster.patch(key, {"spec": {"consumerReferences": rest or None}})
        return running("delete")
    return DONE if task.due else running("delete")


def _destroy(task: Task) -> Outcome:
    """Destroy persistent storage, unless the Workflow never got so far."""
    key = Key(PERSISTENTSTORAGE, task.namespace, task.directive.name)
    persistent = task.cluster.get(*key)
    proposed = any(
        d["dwdIndex"] == task.index and d["watchState"] == "Proposal" and d["completed"]
        for d in task.workflow["status"].get("drivers") or ()
    )
    if persistent is None or not proposed:
        return DONE
    user = task.workflow["spec"]["userID"]
    if persistent["spec"]["userID"] != user or not task.due:
        return running("delete")
    if persistent["spec"].get("consumerReferences"):
        return running(f"PersistentStorageInstance '{task.directive.name}' is in use")
    if persistent["spec"]["state"] != "Destroying":
        task.cluster.patch(
            key,
            {
                "metadata": {
                    "labels": {
                        **Owner.of(task.workflow).labels(),
                        DIRECTIVE_LABEL: str(task.index),
                        f"{NNF_GROUP}/job_id": str(task.workflow["spec"]["jobID"]),
                    },
                    "ownerReferences": Owner.of(task.workflow).references(),
                },
                "spec": {"state": "Destroying"},
            },
        )
    return running("delete")
