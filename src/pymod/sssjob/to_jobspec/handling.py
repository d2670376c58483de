# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The handling of each element when a job object is submitted to Flux.

An element is *converted* into a part of the jobspec. Or it is *passed over*, which
section 9 of the specification allows where that causes no incorrect result: it
describes the past, or names something. Or Flux does not *support* it, and its
awarenessPolicy decides.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from types import MappingProxyType
from typing import Mapping

from sssjob.schema.properties import (
    DELIVERED,
    ENVIRONMENT,
    JOB,
    JOB_DEFAULTS,
    JOB_GROUP,
    REQUESTED,
    TASK,
    TASK_DEFAULTS,
    TASK_GROUP,
    TASK_GROUP_DEFAULTS,
)


class Kind(enum.Enum):
    """The kinds of handling."""

    CONVERTED = "said to Flux"
    PASSED_OVER = "passed over"
    UNSUPPORTED = "goes by awarenessPolicy"


@dataclass(frozen=True)
class Handling:
    """The handling of an element, and the reason."""

    kind: Kind
    reason: str


def _converted(reason: str) -> Handling:
    return Handling(Kind.CONVERTED, reason)


def _passed_over(reason: str) -> Handling:
    return Handling(Kind.PASSED_OVER, reason)


def _unsupported(reason: str) -> Handling:
    return Handling(Kind.UNSUPPORTED, reason)


_PAST = _passed_over("tells what was, not what to do")
_IDENTITY = _passed_over("names it, for dependencies and for people")
_PERMISSION = _passed_over("allows what Flux does not do")
_PRICE = _unsupported("Flux knows no rates or quotes")
_AMOUNT = _unsupported("jobspec version 1 asks for nodes, cores and GPUs only")
_NODE_KIND = _unsupported("Flux tells nodes apart by their names and Features only")
_INHERITED = _converted("as what it holds for")

_OF_JOB: Mapping[str, Handling] = MappingProxyType(
    {
        "Id": _IDENTITY,
        "GlobalId": _IDENTITY,
        "Name": _converted("attributes.system.job.name"),
        "Type": _unsupported("what it means depends on who wrote it"),
        "State": _converted("Hold holds the job; the others tell what was"),
        "Hold": _converted("urgency 0"),
        "StatusMessage": _PAST,
        "Project": _converted("attributes.system.project"),
        "Account": _converted("attributes.system.bank"),
        "GlobalUser": _unsupported("Flux knows users by their local names"),
        "Group": _unsupported("Flux runs a job with the groups of its user"),
        "User": _converted("is who submits"),
        "Application": _unsupported("Flux knows no applications, only commands"),
        "Executable": _converted("tasks[0].command"),
        "Arguments": _converted("tasks[0].command"),
        "InitialWorkingDirectory": _converted("attributes.system.cwd"),
        "Shell": _converted("tasks[0].command"),
        "Interactive": _converted("false is what every submitted job is"),
        "Checkpointable": _PERMISSION,
        "Restartable": _PERMISSION,
        "Suspendable": _PERMISSION,
        "Machine": _converted("is where it is submitted"),
        "Partition": _unsupported("Flux has queues, not partitions"),
        "Queue": _converted("attributes.system.queue"),
        "QualityOfService": _unsupported("Flux has queues, not qualities of service"),
        "Reservation": _unsupported("Flux has no reservations"),
        "ReservationTime": _PAST,
        "ResourceManagerType": _converted("is Flux"),
        "Architecture": _NODE_KIND,
        "OperatingSystem": _NODE_KIND,
        "NetworkType": _NODE_KIND,
        "NodeCount": _converted("resources"),
        "Node": _converted("attributes.system.constraints"),
        "Feature": _converted("attributes.system.constraints"),
        "Processors": _converted("resources"),
        "Memory": _AMOUNT,
        "Swap": _AMOUNT,
        "Disk": _AMOUNT,
        "Network": _AMOUNT,
        "Resource": _converted("GPU: resources; Storage: attributes.system.dw"),
        "SubmitTime": _PAST,
        "SubmitHost": _PAST,
        "EligibleTime": _converted("a dependency begin-time"),
        "DeadlineTime": _unsupported("Flux knows no time by which a job must end"),
        "StagedTime": _PAST,
        "StartTime": _PAST,
        "EndTime": _PAST,
        "Duration": _converted("attributes.system.duration"),
        "CpuDuration": _PAST,
        "SuspendDuration": _PAST,
        "StartCount": _PAST,
        "Priority": _PAST,
        "TimeCategory": _PRICE,
        "ExitCode": _PAST,
        "Quote": _PRICE,
        "Charge": _PAST,
        "InputFile": _converted("attributes.system.shell.options.input"),
        "OutputFile": _converted("attributes.system.shell.options.output"),
        "ErrorFile": _converted("attributes.system.shell.options.output"),
        "NotificationList": _converted("None is what Flux sends"),
        "ResourceLimit": _converted("attributes.system.shell.options.rlimit"),
        "TaskDistribution": _converted("attributes.system.shell.options"),
        "Dependency": _converted("attributes.system.dependencies"),
        "Extension": _converted("the place that it names"),
        "Environment": _converted("attributes.system.environment"),
        "Requested": _INHERITED,
        "Delivered": _PAST,
        "JobGroup": _IDENTITY,
        "TaskGroupDefaults": _INHERITED,
        "TaskGroup": _INHERITED,
    }
)
_OF_TASK_GROUP: Mapping[str, Handling] = MappingProxyType(
    {
        **{name: _OF_JOB[name] for name in _OF_JOB if not name.startswith("TaskGroup")},
        "Id": _IDENTITY,
        "Name": _IDENTITY,
        "TaskCount": _converted("tasks[0].count"),
        "TaskDefaults": _INHERITED,
        "Task": _INHERITED,
    }
)
_OF_TASK: Mapping[str, Handling] = MappingProxyType(
    {
        **{
            name: _unsupported("jobspec version 1 says nothing of single tasks")
            if handling.kind is Kind.CONVERTED
            else handling
            for name, handling in _OF_JOB.items()
        },
        "Name": _IDENTITY,
        "State": _PAST,
        "Requested": _INHERITED,
        "Node": _PAST,
        "Session": _PAST,
        "Process": _PAST,
    }
)
_OF_GROUP: Mapping[str, Handling] = MappingProxyType(
    {
        "Id": _IDENTITY,
        "Name": _IDENTITY,
        "State": _PAST,
        "Description": _IDENTITY,
        "CreationTime": _PAST,
        "JobDefaults": _INHERITED,
        "Job": _INHERITED,
    }
)

HANDLING: Mapping[str, Mapping[str, Handling]] = MappingProxyType(
    {
        JOB_GROUP: _OF_GROUP,
        JOB_DEFAULTS: _OF_JOB,
        JOB: _OF_JOB,
        TASK_GROUP_DEFAULTS: _OF_TASK_GROUP,
        TASK_GROUP: _OF_TASK_GROUP,
        TASK_DEFAULTS: _OF_TASK,
        TASK: _OF_TASK,
        REQUESTED: _OF_JOB,
        DELIVERED: MappingProxyType(dict.fromkeys(_OF_JOB, _PAST)),
        ENVIRONMENT: MappingProxyType({"Variable": _INHERITED}),
    }
)
"""By the element that contains it, and its name."""

CONVERTED_ATTRIBUTES: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "Node": frozenset({"aggregation", "delimiter", "op"}),
        "Feature": frozenset({"aggregation", "delimiter", "op"}),
        "NodeCount": frozenset({"op"}),
        "Processors": frozenset({"op"}),
        "Duration": frozenset({"op"}),
        "Resource": frozenset({"name", "type", "units", "op"}),
        "InputFile": frozenset({"redirectList"}),
        "OutputFile": frozenset({"redirectList"}),
        "ErrorFile": frozenset({"redirectList"}),
        "NotificationList": frozenset({"uri"}),
        "ResourceLimit": frozenset({"name", "type"}),
        "TaskDistribution": frozenset({"type"}),
        "Dependency": frozenset({"condition", "code", "designator"}),
        "Extension": frozenset({"name", "type"}),
        "Environment": frozenset({"export"}),
        "Variable": frozenset({"name"}),
    }
)
"""Attributes that are converted, or told apart where their element is."""

ASKS_NOTHING: Mapping[str, frozenset[object]] = MappingProxyType(
    {
        "op": frozenset({"EQ"}),
        # Flux gives a job cores and GPUs of its own.
        "context": frozenset({"Available", "Dedicated"}),
        "metric": frozenset({"Total"}),
        "dynamic": frozenset({False}),
    }
)
"""Values of attributes that ask for what Flux does anyway."""

HINTS = frozenset({"preference", "performanceFactor"})
"""Attributes without which an element asks for the same, or for what its writer would
take as well."""
