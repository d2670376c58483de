# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Proposal: the check of directives, and their requirements."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Sequence
from typing import Optional

from flux_k8s.ports import (
    DIRECTIVEBREAKDOWN,
    DWS_GROUP,
    PERSISTENTSTORAGE,
    SECRET,
    SERVERS,
    Json,
)
from rabbitsim.dws import objects
from rabbitsim.dws.breakdown import (
    UnknownProfile,
    UserError,
    error_status,
    persistentdw_status,
    storage_status,
)
from rabbitsim.dws.cluster import Key
from rabbitsim.dws.directive import Directive, capacity
from rabbitsim.dws.files import global_root
from rabbitsim.dws.objects import Owner
from rabbitsim.dws.task import DONE, Outcome, Task, failed, running

REQUIRES = {
    "copy-offload": ("copy-offload", "container-auth"),
    "user-container-auth": ("container-auth",),
}
"""The value of a Workflow's ``status.requires`` for each daemon of a directive."""


def check(task: Task) -> None:
    """Refuse a Workflow whose directives cannot be satisfied together, before
    anything is made for it. Raises :class:`UserError`."""
    directives = task.tracked.directives
    for directive in directives:
        _check_storage(task, directive)
        if directive.command in ("copy_in", "copy_out"):
            _check_copy(task, directive, directives)
        elif directive.command == "container":
            profile = directive.args["profile"]
            raise UserError(
                f"NnfContainerProfile '{profile}' not found",
                f'NnfContainerProfile.nnf.cray.hpe.com "{profile}" not found',
            )
    needs = [need for d in directives for need in d.requires]
    if needs:
        daemons = [daemon for need in needs for daemon in REQUIRES[need]]
        task.status["requires"] = list(dict.fromkeys(daemons))
        if not task.world.options.user_container_tls:
            raise UserError(
                "",
                "the administrator must configure the user container TLS secret for "
                "the system. See the copy-offload docs: Secret "
                '"nnf-dm-usercontainer-server-tls" not found',
                type="Internal",
            )


def _check_storage(task: Task, directive: Directive) -> None:
    if directive.command in ("jobdw", "create_persistent"):
        if "capacity" in directive.args and not capacity(directive.args["capacity"]):
            raise UserError("'capacity' must be a non-zero value")
        with contextlib.suppress(UnknownProfile):  # its breakdown says that
            for entry in task.world.options.profiles.sets(directive):
                entry.minimum_capacity(0 if "capacity" in directive.args else None)
    if directive.command == "create_persistent":
        _check_new(task, directive.name)
    elif directive.command == "persistentdw":
        find_persistent(task, directive.name)
    elif directive.command == "destroy_persistent":
        found = find_persistent(task, directive.name)
        owner = found["spec"]["userID"]
        if owner != task.workflow["spec"]["userID"]:
            raise UserError(
                f"PersistentStorageInstance '{directive.name}' belongs to another user"
            )
        if found["spec"].get("consumerReferences"):
            raise UserError(f"PersistentStorageInstance '{directive.name}' is in use")


def _check_new(task: Task, name: str) -> None:
    found = task.cluster.get(PERSISTENTSTORAGE, task.namespace, name)
    if found is None:
        return
    breakdown = task.cluster.get(DIRECTIVEBREAKDOWN, task.namespace, task.base)
    if breakdown is None or not owned_by(found, breakdown):
        raise UserError(f"PersistentStorageInstance '{name}' already exists")


def owned_by(obj: Json, owner: Json) -> bool:
    references = obj["metadata"].get("ownerReferences") or ()
    return any(r["uid"] == owner["metadata"]["uid"] for r in references)


def find_persistent(task: Task, name: str) -> Json:
    """The PersistentStorageInstance that a directive names, or UserError."""
    found = task.cluster.get(PERSISTENTSTORAGE, task.namespace, name)
    if found is None or found["spec"]["state"] == "Destroying":
        raise UserError(
            f"PersistentStorageInstance '{name}' not found",
            f'PersistentStorageInstance.{DWS_GROUP} "{name}" not found',
        )
    return found


def _check_copy(
    task: Task, directive: Directive, directives: Sequence[Directive]
) -> None:
    """Both ends of a copy_in or copy_out must be storage that the Workflow has,
    or a global file system."""
    for argument in ("source", "destination"):
        path = directive.place(argument)
        if not path.startswith("$"):
            if global_root(path, task.world.files.roots) is None:
                text = f"global Lustre file system containing '{path}' not found"
                raise UserError(text, f"Invalid {argument} argument: '{path}': {text}")
            continue
        variable = path[1:].partition("/")[0]
        named = [d for d in directives if job_variable(d) == variable]
        if not named:
            text = f"Unable to find the storage of '{path}'"
            raise UserError(text, f"Invalid {argument} argument: '{path}'")
        if named[0].args.get("type") == "raw":
            raise UserError("Data movement is not supported for raw allocations")


def job_variable(directive: Directive) -> str:
    """The environment variable that names a directive's storage, or ""."""
    if directive.command == "jobdw":
        return f"DW_JOB_{directive.variable}"
    if directive.command == "persistentdw":
        return f"DW_PERSISTENT_{directive.variable}"
    return ""


def propose(task: Task) -> Outcome:
    """Make the objects for one directive, which have its requirements."""
    command = task.directive.command
    if task.directive.requires and not _token(task):
        return running("creating token")
    if command not in ("jobdw", "create_persistent", "persistentdw"):
        return DONE if task.due else running("status pending")
    key = Key(DIRECTIVEBREAKDOWN, task.namespace, task.base)
    breakdown = task.cluster.get(*key)
    if breakdown is None:
        task.cluster.create(DIRECTIVEBREAKDOWN, _breakdown(task))
        return running("status pending")
    status = breakdown.get("status") or {}
    try:
        _find_profile(task)
    except UnknownProfile as error:
        if not status:
            task.cluster.patch_status(key, error_status(error))
            return running("status pending")
        return failed(error)
    if not _storage_objects(task, breakdown):
        return running("status pending")
    if not status.get("ready"):
        task.cluster.patch_status(key, _breakdown_status(task))
        return running("status pending")
    return DONE if task.due else running("status pending")


def _find_profile(task: Task) -> None:
    if task.directive.command != "persistentdw":
        task.world.options.profiles.sets(task.directive)


def _token(task: Task) -> bool:
    """Make the secret that lets the job's user talk to its daemons."""
    reference = {"secretName": task.name, "secretNamespace": task.namespace}
    task.status["workflowToken"] = reference
    if task.workflow["status"].get("workflowToken") == reference:
        return True
    if task.cluster.get(SECRET, task.namespace, task.name) is not None:
        return True
    if task.cluster.busy(Key(SECRET, task.namespace, task.name)):
        return False
    token = f"{task.world.rng.getrandbits(256):064x}"
    meta = objects.owned(
        task.name,
        task.namespace,
        Owner.of(task.workflow),
        objects.workflow_labels(task.workflow),
    )
    body = {"metadata": meta, "type": "Opaque", "data": {"token": _base64(token)}}
    task.cluster.create(SECRET, body)
    return False


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _breakdown(task: Task) -> Json:
    return {
        "metadata": objects.owned(
            task.base,
            task.namespace,
            Owner.of(task.workflow),
            objects.workflow_labels(task.workflow, task.index),
            objects.BREAKDOWN_FINALIZER,
        ),
        "spec": {
            "directive": task.directive.text,
            "userID": task.workflow["spec"]["userID"],
        },
    }


def servers_name(task: Task) -> str:
    """The name of the Servers object for a directive's storage."""
    persistent = task.directive.command in ("create_persistent", "persistentdw")
    return task.directive.name if persistent else task.base


def _breakdown_status(task: Task) -> Json:
    name = servers_name(task)
    reference = objects.reference("Servers", name, task.namespace)
    if task.directive.command == "persistentdw":
        servers = task.cluster.get(SERVERS, task.namespace, name) or {}
        sets = (servers.get("spec") or {}).get("allocationSets") or ()
        return persistentdw_status(task.directive, reference, len(sets))
    lifetime = "job" if task.directive.command == "jobdw" else "persistent"
    profiles = task.world.options.profiles
    return storage_status(task.directive, profiles, reference, lifetime)


def _storage_objects(task: Task, breakdown: Json) -> bool:
    """Make the Servers (and, for persistent storage, its PersistentStorageInstance).
    Whether they are all there."""
    command = task.directive.command
    if command == "persistentdw":
        return True
    owner: Optional[Json] = breakdown
    if command == "create_persistent":
        owner = _persistent(task, breakdown)
    if owner is None:
        return False
    name = servers_name(task)
    if task.cluster.get(SERVERS, task.namespace, name) is None:
        task.cluster.create(SERVERS, _servers(task, name, owner))
        return False
    if command == "create_persistent" and not (owner.get("status") or {}):
        reference = objects.reference("Servers", name, task.namespace)
        task.cluster.patch_status(
            Key(PERSISTENTSTORAGE, task.namespace, name),
            {"servers": reference, "state": "Creating"},
        )
        return False
    return True


def _servers(task: Task, name: str, owner: Json) -> Json:
    if owner["kind"] == "PersistentStorageInstance":
        labels = {
            objects.PERSISTENT_NAME: name,
            objects.PERSISTENT_NAMESPACE: task.namespace,
        }
    else:
        labels = objects.workflow_labels(task.workflow, task.index)
    meta = objects.owned(
        name, task.namespace, Owner.of(owner), labels, objects.SERVERS_FINALIZER
    )
    return {"metadata": meta, "spec": {}}


def _persistent(task: Task, breakdown: Json) -> Optional[Json]:
    """The PersistentStorageInstance of a create_persistent; made if missing."""
    name = task.directive.name
    found = task.cluster.get(PERSISTENTSTORAGE, task.namespace, name)
    if found is not None:
        return found
    meta = objects.owned(
        name,
        task.namespace,
        Owner.of(breakdown),
        {},
        objects.PERSISTENT_FINALIZER,
    )
    spec = {
        "dwDirective": task.directive.text,
        "fsType": task.directive.args["type"],
        "name": name,
        "state": "Active",
        "userID": task.workflow["spec"]["userID"],
    }
    task.cluster.create(PERSISTENTSTORAGE, {"metadata": meta, "spec": spec})
    return None
