# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The tasks of a jobspec, and their nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Mapping, Optional, Sequence

from flux_k8s.ports import Json
from rabbitsim.flux.execution import Launch
from rabbitsim.flux.fluid import encode


@dataclass(frozen=True)
class Task:
    """One task: its rank, the node (index into the job's hosts), and what it
    runs with which variables."""

    rank: int
    node: int
    argv: tuple[str, ...]
    environment: Mapping[str, str]


def slot_count(resources: Any, label: str) -> int:
    """The number of slots of this label in ``resources``."""
    total = 0
    for resource in resources if isinstance(resources, list) else ():
        count = resource.get("count", 1)
        count = count["min"] if isinstance(count, dict) else count
        if resource.get("type") == "slot" and resource.get("label") == label:
            total += count
        else:
            total += count * slot_count(resource.get("with"), label)
    return total


def task_count(jobspec: Json, nodes: int) -> int:
    """The number of tasks of a job on so many nodes.

    Raises:
        ValueError: the jobspec does not say.
    """
    task = jobspec["tasks"][0]
    options = shell_options(jobspec)
    per_resource = options.get("per-resource")
    if isinstance(per_resource, dict) and per_resource.get("type") == "node":
        return nodes * int(per_resource.get("count", 1))
    count = task["count"]
    if "total" in count:
        return int(count["total"])
    if "per_slot" in count:
        return int(count["per_slot"]) * slot_count(jobspec["resources"], task["slot"])
    raise ValueError(f"cannot tell how many tasks {count} are")


def shell_options(jobspec: Json) -> Json:
    """``attributes.system.shell.options``."""
    system = jobspec.get("attributes", {}).get("system", {})
    options: Json = system.get("shell", {}).get("options", {})
    return options


def is_batch(jobspec: Json) -> bool:
    """Whether the job is one of ``flux batch`` (or alloc): a nested instance,
    which runs one script on the job's first node."""
    return list(jobspec["tasks"][0]["command"][:2]) == ["flux", "broker"]


def make_tasks(
    launch: Launch, tmpdir: str, variables: Sequence[Mapping[str, str]]
) -> list[Task]:
    """The tasks of a job, in the order of their ranks, dealt out to the nodes
    in blocks.

    Args:
        tmpdir: the job's directory, what ``{{tmpdir}}`` stands for.
        variables: for each of the job's shells, the environment of its tasks.
    """
    jobspec = launch.jobspec
    nodes = len(launch.hosts)
    size = task_count(jobspec, nodes)
    argv = [
        _expand(str(arg), launch.jobid, tmpdir)
        for arg in jobspec["tasks"][0]["command"]
    ]
    ranks = range(size)
    if is_batch(jobspec):
        argv = _initial_program(argv)
        ranks = range(1)
    tasks: list[Task] = []
    for rank in ranks:
        node = rank * nodes // size
        local = sum(task.node == node for task in tasks)
        environment = {
            **variables[node],
            "FLUX_JOB_ID": encode(launch.jobid),
            "FLUX_JOB_SIZE": str(size),
            "FLUX_JOB_NNODES": str(nodes),
            "FLUX_JOB_TMPDIR": tmpdir,
            "FLUX_TASK_RANK": str(rank),
            "FLUX_TASK_LOCAL_ID": str(local),
        }
        if is_batch(jobspec):
            environment["FLUX_ENCLOSING_ID"] = encode(launch.jobid)
        tasks.append(Task(rank, node, tuple(argv), environment))
    return tasks


def _initial_program(argv: list[str]) -> list[str]:
    """The program of ``flux broker [OPTIONS] PROGRAM [ARGS]``."""
    words = argv[2:]
    while words and words[0].startswith("-"):
        del words[0]
    return words


def output_path(launch: Launch, stream: str) -> Optional[str]:
    """The file that ``stdout`` or ``stderr`` goes to, or None; without a file
    of its own, stderr goes where stdout goes."""
    output = shell_options(launch.jobspec).get("output", {})
    entry = output.get(stream) or output.get("stdout") or {}
    if entry.get("type") != "file":
        return None
    return _expand(str(entry["path"]), launch.jobid, "")


def _expand(text: str, jobid: int, tmpdir: str) -> str:
    """Fill in the ``{{...}}`` that Flux knows and that make sense here."""
    names = {"id": encode(jobid), "jobid": encode(jobid), "tmpdir": tmpdir}
    for name, value in names.items():
        text = text.replace("{{" + name + "}}", value)
    return text
