# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""DataIn and DataOut: data is copied, and NnfDataMovements tell how it goes."""

from __future__ import annotations

from typing import Iterable

from flux_k8s.formats.timestamps import format_timestamp, parse_timestamp
from flux_k8s.objects.datamovement import STATE_LABEL
from flux_k8s.ports import NNFDATAMOVEMENT, SERVERS, Json
from rabbitsim.dws import objects
from rabbitsim.dws.breakdown import UserError
from rabbitsim.dws.cluster import Cluster, Key
from rabbitsim.dws.directive import Directive
from rabbitsim.dws.files import Copy, CopyError, Progress
from rabbitsim.dws.objects import Owner
from rabbitsim.dws.proposal import find_persistent, job_variable, servers_name
from rabbitsim.dws.storage import note_harm, unmade
from rabbitsim.dws.task import DONE, Outcome, Task, failed, running
from rabbitsim.dws.topology import DM_NAMESPACE

_WRITING = running("data movement pending")


def move(task: Task) -> Outcome:
    """Do what one copy_in or copy_out asks for."""
    index, _ = _storage(task)
    if unmade(Task(task.world, task.tracked, task.workflow, index, {})):
        return running("status pending")
    keys = _keys(task)
    outcome = _move(task, keys)
    busy = task.cluster.busy
    task.tracked.follow(filter(busy, keys), lambda key: _WRITING if busy(key) else None)
    return outcome


def _move(task: Task, keys: list[Key]) -> Outcome:
    """Do what there is to do now. ``keys`` are those of the NnfDataMovements."""
    found = [(key, task.cluster.get(*key)) for key in keys]
    for key, obj in found:
        if obj is None:
            task.cluster.create(NNFDATAMOVEMENT, _body(task, key))
    movements = [(key, obj) for key, obj in found if obj is not None]
    if len(movements) < len(found) or not task.due:
        return running("data movement pending")
    _start_again(task, movements)
    if task.index not in task.tracked.copies:
        owner = Task(task.world, task.tracked, task.workflow, _storage(task)[0], {})
        if _type(owner) == "xfs":  # the others may be mounted many times
            note_harm(owner, "mounted a second time")
    if all(_state(obj) == "Finished" for _, obj in movements):
        return _result(task, movements)
    copies = task.tracked.copies
    try:
        copy, finished = _advance(task)
    except CopyError as error:
        progress = copies[task.index].progress if task.index in copies else Progress()
        return _report(task, movements, ("Failed", str(error)), progress)
    if finished:
        return _report(task, movements, ("Success", ""), copy.progress)
    task.world.wake(task.tracked, task.tracked.next_steps[task.index])
    return _running(task, movements, copy)


def goes_on(cluster: Cluster, keys: Iterable[Key], state: str) -> bool:
    """Whether there is a data movement of a state that has not finished (any more)."""
    found = (cluster.get(*key) or {} for key in keys if key.kind == NNFDATAMOVEMENT)
    return any(
        obj["metadata"]["labels"][STATE_LABEL] == state and _state(obj) != "Finished"
        for obj in found
        if obj
    )


def _start_again(task: Task, movements: list[tuple[Key, Json]]) -> None:
    """Begin to copy anew if the status of a data movement was removed: nnf-dm runs one
    without a status."""
    busy = task.cluster.busy
    if any(not (obj.get("status") or busy(key)) for key, obj in movements):
        task.tracked.copies.pop(task.index, None)
        task.tracked.next_steps.pop(task.index, None)


def _result(task: Task, movements: list[tuple[Key, Json]]) -> Outcome:
    for _, obj in movements:
        status = obj["status"]
        if status["status"] != "Success":
            text = (
                f"data movement operation failed during '{task.tracked.state}', "
                f"message: {status.get('message', '')}"
            )
            return failed(UserError(text, type="Internal"))
    return DONE


def _advance(task: Task) -> tuple[Copy, bool]:
    """Copy a little; the copy, and whether it is complete."""
    copies = task.tracked.copies
    copy = copies.get(task.index)
    if copy is None:
        copy = task.world.files.copy(
            task.directive.place("source"),
            task.directive.place("destination"),
            _variables(task),
        )
        copies[task.index] = copy
    now, options, steps = (
        task.world.clock.now(),
        task.world.options,
        task.tracked.next_steps,
    )
    if now < steps.get(task.index, now):
        return copy, False
    if _stalls(task, copy.progress):
        steps[task.index] = now + options.report_interval
        return copy, False
    finished = copy.step(options.copy_step)
    rate = options.copy_rate
    pause = copy.pause if rate is None else options.copy_step / rate
    steps[task.index] = now + pause
    return copy, finished


def _stalls(task: Task, progress: Progress) -> bool:
    """Whether a fault keeps the copy from going on."""
    options, state = task.world.options, task.tracked.state
    fault = options.fault_of_copy("stall", task.name, state, task.elapsed, task.index)
    return fault is not None and 2 * progress.bytes >= progress.bytes_total


def _variables(task: Task) -> dict[str, str]:
    files = task.world.files
    return {
        job_variable(directive): files.mount_path(task.uid, index)
        for index, directive in enumerate(task.tracked.directives)
        if job_variable(directive)
    }


def _storage(task: Task) -> tuple[int, Directive]:
    """The directive whose storage the data goes to or comes from."""
    for argument in ("destination", "source"):
        variable = task.directive.place(argument).partition("/")[0]
        for index, directive in enumerate(task.tracked.directives):
            if job_variable(directive) and f"${job_variable(directive)}" == variable:
                return index, directive
    return task.index, task.directive


def _keys(task: Task) -> list[Key]:
    """The NnfDataMovements: one for each allocation, on its Rabbit, for file
    systems that live on one Rabbit; one for all of Lustre."""
    index, _ = _storage(task)
    owner = Task(task.world, task.tracked, task.workflow, index, {})
    if _type(owner) == "lustre":
        return [Key(NNFDATAMOVEMENT, DM_NAMESPACE, task.base)]
    servers = task.cluster.get(SERVERS, task.namespace, servers_name(owner)) or {}
    sets = (servers.get("spec") or {}).get("allocationSets") or ()
    return [
        Key(NNFDATAMOVEMENT, storage["name"], f"{task.base}-{number}")
        for entry in sets
        for storage in entry["storage"]
        for number in range(storage["allocationCount"])
    ]


def _type(owner: Task) -> str:
    """The type of the file system that a directive makes or uses."""
    if owner.directive.command == "jobdw":
        return owner.directive.args["type"]
    spec = find_persistent(owner, owner.directive.name)["spec"]
    return str(spec["fsType"])


def _body(task: Task, key: Key) -> Json:
    labels = {
        **Owner.of(task.workflow).labels(),
        **objects.workflow_labels(task.workflow, task.index),
        STATE_LABEL: task.tracked.state,
        "dm.cray.hpe.com/initiator": task.directive.command,
    }
    profile = task.directive.args.get("profile", "default")
    args, spec = task.directive.args, task.workflow["spec"]
    return {
        "metadata": {"name": key.name, "namespace": key.namespace, "labels": labels},
        "spec": {
            "cancel": False,
            "destination": {
                "path": args["destination"],
                "storageReference": _reference(task, args["destination"]),
            },
            "groupId": spec["groupID"],
            "profileReference": objects.reference(
                "NnfDataMovementProfile", profile, "nnf-system"
            ),
            "source": {
                "path": args["source"],
                "storageReference": _reference(task, args["source"]),
            },
            "userId": spec["userID"],
        },
    }


def _reference(task: Task, path: str) -> Json:
    if not path.startswith("$"):
        return objects.reference("LustreFileSystem", path.split("/")[1], "default")
    index, directive = _storage(task)
    owner = Task(task.world, task.tracked, task.workflow, index, {})
    return objects.reference("NnfStorage", servers_name(owner), task.namespace)


def _state(obj: Json) -> str:
    return str((obj.get("status") or {}).get("state", ""))


def _running(task: Task, movements: list[tuple[Key, Json]], copy: Copy) -> Outcome:
    """Say how far the copy is, now and then."""
    now, interval = task.world.clock.now(), task.world.options.report_interval
    for key, obj in movements:
        status = obj.get("status") or {}
        last = (status.get("commandStatus") or {}).get("lastMessageTime", "")
        reported = parse_timestamp(last) if last else None
        if reported is None or now - reported >= interval:
            started = status.get("startTime") or format_timestamp(now)
            report = {
                "state": "Running",
                "startTime": started,
                "commandStatus": _command(task, copy.progress, started, now),
            }
            task.cluster.patch_status(key, report)
    return running("data movement in progress")


def _report(
    task: Task,
    movements: list[tuple[Key, Json]],
    ended: tuple[str, str],
    progress: Progress,
) -> Outcome:
    """Say how the copy ended, and why it failed, if it did. The Workflow goes on when
    that is written."""
    now = task.world.clock.now()
    options, state = task.world.options, task.tracked.state
    broken = options.fault_of_copy("copy", task.name, state, task.elapsed, task.index)
    for key, obj in movements:
        if _state(obj) == "Finished":
            continue
        result, message = ended
        if not message and broken is not None and broken.matches_node(key.namespace):
            result, message = "Failed", broken.message or "mpirun: it broke"
        started = (obj.get("status") or {}).get("startTime") or format_timestamp(now)
        status: Json = {
            "state": "Finished",
            "status": result,
            "startTime": started,
            "endTime": format_timestamp(now),
            "commandStatus": _command(task, progress, started, now),
        }
        if message:
            status["message"] = message
            status["error"] = objects.resource_error(
                "data movement operation failed", message, severity="Fatal"
            )
        task.cluster.patch_status(key, status)
    return running("data movement in progress")


def _command(task: Task, progress: Progress, started: str, now: float) -> Json:
    """``commandStatus``: progress in per cent, sizes and rates as text."""
    elapsed = max(0.0, now - (parse_timestamp(started) or now))
    total, done = progress.bytes_total, progress.bytes
    percent = 100 if done >= total else 100 * done // total
    args = task.directive.args
    data, rate = _amount(done), f"{_amount(done / elapsed if elapsed else 0.0)}/s"
    left = ""
    if done and elapsed:
        left = f"{round(elapsed * (total - done) / done)} secs left ..."
    return {
        "command": f"dcp {args['source']} {args['destination']}",
        "data": data,
        "directories": progress.directories,
        "elapsedTime": objects.duration(elapsed),
        "files": progress.files,
        "items": progress.files + progress.directories + progress.links,
        "lastMessage": f"Copied {data} ({percent}%) in {elapsed:.3f} secs"
        f" ({rate}) {left}".rstrip(),
        "lastMessageTime": format_timestamp(now),
        "links": progress.links,
        "progress": percent,
        "rate": rate,
        "seconds": f"{elapsed:.3f}",
    }


def _amount(size: float) -> str:
    """A size as dcp writes it: in the largest unit of which there is one."""
    units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]
    while size >= 1024 and len(units) > 1:
        size /= 1024
        units.pop(0)
    return f"{size:.3f} {units[0]}"
