# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The state of one job in the job manager."""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Mapping, Optional

from msgspec import to_builtins

from flux_k8s.ports import Json
from rabbitsim.flux.events import Event, JobState
from rabbitsim.flux.fluid import encode


def redact(jobspec: Json) -> Json:
    """The jobspec without its environment, as the job manager keeps it."""
    redacted: Json = to_builtins(jobspec)
    system = redacted.get("attributes", {}).get("system", {})
    if isinstance(system, dict):
        system.pop("environment", None)
    return redacted


def set_path(tree: Json, path: str, value: Any) -> None:
    """Set ``tree["a"]["b"]`` for the path ``a.b``; objects that are missing
    are made.

    Raises:
        ValueError: something on the way is no object.
    """
    *parents, last = path.split(".")
    for key in parents:
        tree = tree.setdefault(key, {})
        if not isinstance(tree, dict):
            raise ValueError(f"cannot set {path}: {key} is not an object")
    tree[last] = to_builtins(value)


@dataclass
class Job:
    """One job.

    Attributes:
        jobspec: the jobspec with all ``jobspec-update`` events applied, without
            the environment.
        kvs: the job's KVS directory: key to value, as text.
        R: the resource set that was allocated, with its ``scheduling`` key.
        events: the eventlog.
        queue: events that were posted and wait for their turn.
        hold: no event is processed now (the submission is being committed).
        dependencies: those that hold the job, in the order they were added.
        past_dependencies: all that it ever had; they cannot be added again.
        perilog_active: how many prolog or epilog actions are running.
        posted_before: how many events are older than the job manager.
    """

    id: int
    userid: int
    urgency: int
    flags: int
    jobspec: Json
    kvs: dict[str, str]
    t_submit: float
    state: JobState = JobState.NEW
    priority: int = -1
    R: Optional[Json] = None
    events: list[Event] = field(default_factory=list)
    queue: deque[Event] = field(default_factory=deque)
    hold: bool = False
    dependencies: list[str] = field(default_factory=list)
    past_dependencies: list[str] = field(default_factory=list)
    perilog_active: int = 0
    posted_before: int = 0
    depend_posted: bool = False
    alloc_queued: bool = False
    has_resources: bool = False
    start_pending: bool = False
    started: bool = False
    free_posted: bool = False
    end_event: Optional[Event] = None
    annotations: Json = field(default_factory=dict)

    def __str__(self) -> str:
        return encode(self.id)

    @property
    def active(self) -> bool:
        return self.state is not JobState.INACTIVE

    def is_queued(self, name: str) -> bool:
        """Whether an event of this name waits for its turn."""
        return any(event.name == name for event in self.queue)

    def was_posted(self, name: str) -> bool:
        """Whether the eventlog has an event of this name."""
        return any(event.name == name for event in self.events)

    def was_seen(self, name: str) -> bool:
        """The same, as far as the job manager remembers: not from before it was
        loaded."""
        return any(event.name == name for event in self.events[self.posted_before :])

    @property
    def jobspec_dependencies(self) -> list[Json]:
        """Those that the user asked for (RFC 26)."""
        system = self.jobspec.get("attributes", {}).get("system", {})
        dependencies: list[Json] = system.get("dependencies", [])
        return dependencies

    def update_jobspec(self, updates: Mapping[str, Any]) -> None:
        for path, value in updates.items():
            set_path(self.jobspec, path, value)

    def full_jobspec(self) -> Json:
        """The jobspec as submitted, with the environment and all updates."""
        jobspec: Json = json.loads(self.kvs["jobspec"])
        for event in self.events:
            if event.name == "jobspec-update":
                for path, value in (event.context or {}).items():
                    set_path(jobspec, path, value)
        return jobspec

    def jobtap_args(self) -> Json:
        """The arguments of a jobtap callback."""
        args: Json = {
            "jobspec": to_builtins(self.jobspec),
            "id": self.id,
            "userid": self.userid,
            "urgency": self.urgency,
            "state": int(self.state),
            "priority": self.priority,
            "t_submit": self.t_submit,
        }
        if self.R is not None:
            redacted = {key: self.R[key] for key in self.R if key != "scheduling"}
            args["R"] = to_builtins(redacted)
        if self.end_event is not None:
            args["end_event"] = self.end_event.as_json()
        return args

    @property
    def wait_status(self) -> Optional[int]:
        """The wait status of the ``finish`` event, if there was one."""
        for event in self.events:
            if event.name == "finish" and event.context is not None:
                return int(event.context["status"])
        return None

    @property
    def fatal_exception(self) -> Optional[Json]:
        """The context of the exception that ended the job, if one did."""
        if self.end_event is not None and self.end_event.name == "exception":
            return self.end_event.context
        return None

    @property
    def exit_code(self) -> int:
        """The exit status of ``flux job attach``: the tasks' exit code, 128
        and the signal, or 1 for a job that an exception kept from running."""
        status = self.wait_status
        if status is not None:
            if status & 0x7F:
                return 128 + (status & 0x7F)
            if status >> 8:
                return status >> 8
        return 1 if self.fatal_exception is not None else 0
