# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The elements of a job object: their places, numbers and attributes.

The tables of the specification lost their column of names. Each :class:`Rule` says
where its name comes from:

``example``
    the specification's examples have the element;
``text``
    the specification's text names it;
``published``
    the SSS job object as its authors published it. The rows of a table are in
    the alphabetical order of the names that version 3.0 used (``JobId`` for
    ``Id``), which together with a row's description leaves one name;
``ours``
    nothing tells: the name is made from the row's description.

The order of the rules is the order in which :mod:`~sssjob.xml.writing` writes elements.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Mapping, Optional

from sssjob.schema.values import Datatype

JOB_GROUP = "JobGroup"
JOB = "Job"
JOB_DEFAULTS = "JobDefaults"
TASK_GROUP = "TaskGroup"
TASK_GROUP_DEFAULTS = "TaskGroupDefaults"
TASK = "Task"
TASK_DEFAULTS = "TaskDefaults"
REQUESTED = "Requested"
DELIVERED = "Delivered"
ENVIRONMENT = "Environment"

ROOTS = (JOB, JOB_GROUP)
"""The elements that may stand alone (sections 4 and 5)."""

REFERENCES = (JOB_GROUP, JOB, TASK_GROUP, TASK)
"""The elements that, with text alone, refer to one with this id (sections 4.2,
5.2, 6.2 and 7.2)."""

STRING = Datatype.STRING
INTEGER = Datatype.INTEGER
FLOAT = Datatype.FLOAT
BOOLEAN = Datatype.BOOLEAN
DATETIME = Datatype.DATETIME
DURATION = Datatype.DURATION


@dataclass(frozen=True)
class Attribute:
    """An attribute of an element.

    Attributes:
        choices: what it may say; empty for anything.
        listed: it is a comma-separated list of ``choices``.
    """

    name: str
    datatype: Datatype = STRING
    choices: tuple[str, ...] = ()
    required: bool = False
    listed: bool = False


@dataclass(frozen=True)
class Rule:
    """The rule of an element within a certain other.

    Attributes:
        datatype: of its text; None when it has no text.
        attributes: those that are its own. All elements have ``awarenessPolicy``.
        many: it may be there more than once.
        required: it must be there.
        requested: it may stand in Requested (R in the tables).
        delivered: it may stand in Delivered (D).
        choices: what its text, a comma-separated list, may contain.
        source: where its name comes from.
    """

    name: str
    datatype: Optional[Datatype] = STRING
    attributes: tuple[Attribute, ...] = ()
    many: bool = False
    required: bool = False
    requested: bool = False
    delivered: bool = False
    choices: tuple[str, ...] = ()
    source: str = "example"

    def attribute(self, name: str) -> Optional[Attribute]:
        return next((a for a in self.attributes if a.name == name), None)


REJECT = "Reject"
WARN = "Warn"
IGNORE = "Ignore"

AWARENESS_POLICY = Attribute("awarenessPolicy", choices=(REJECT, WARN, IGNORE))
"""The values of awarenessPolicy, for parts that are not understood (section 9)."""

REQUEST_ATTRIBUTES = (
    Attribute("op", choices=("EQ", "NE", "LT", "GT", "LE", "GE", "Match")),
    Attribute("conj", choices=("And", "Or", "Nand", "Nor")),
    Attribute("group", INTEGER),
    Attribute("preference", INTEGER),
    Attribute("performanceFactor", FLOAT),
)
"""Attributes of each property in Requested (section 8.1)."""

DELIVERY_ATTRIBUTES = (Attribute("group", INTEGER),)
"""Attributes of each property in Delivered (section 8.2)."""

_AGGREGATION = Attribute("aggregation", choices=("List", "Pattern"))
_DELIMITER = Attribute("delimiter")
_UNITS = Attribute("units")
_TYPE = Attribute("type")
_NAME = Attribute("name", required=True)

CONSUMABLE = (
    Attribute("context", choices=("Configured", "Available", "Used", "Dedicated")),
    _UNITS,
    Attribute("metric"),
    Attribute("duration", DURATION),
    Attribute("consumptionRate", FLOAT),
    Attribute("dynamic", BOOLEAN),
)
"""Attributes of each consumable resource (section 5.1)."""


def _redirect(*choices: str) -> tuple[Attribute, ...]:
    return (Attribute("redirectList", choices=choices, listed=True),)


def _rd(name: str, datatype: Datatype = STRING, source: str = "example") -> Rule:
    """A property of the categories R and D."""
    return Rule(name, datatype, requested=True, delivered=True, source=source)


def _consumable(rule: Rule) -> Rule:
    # Nothing says how often: the same memory has an average and a maximum.
    return replace(rule, attributes=(*rule.attributes, *CONSUMABLE), many=True)


GROUP_PROPERTIES = (  # table 1
    Rule("Id", required=True),
    Rule("Name"),
    Rule("State"),
    Rule("Description", source="published"),
    Rule("CreationTime", DATETIME, source="published"),
)

IDENTITY = (
    Rule("Id", required=True),
    Rule("GlobalId", source="published"),
    Rule("Name"),
    Rule("Type", source="published"),
    Rule("State"),
    Rule("Hold", many=True),
    Rule("StatusMessage"),
)
CREDENTIALS = (  # table 3
    _rd("Project"),
    # What version 3.0 called Project. An example of section 8.1 still has it.
    _rd("Account"),
    _rd("GlobalUser"),
    _rd("Group", source="published"),
    _rd("User"),
)
PROGRAM = (
    Rule("Application"),
    Rule("Executable"),
    Rule("Arguments"),
    Rule("InitialWorkingDirectory"),
    Rule("Shell", source="published"),
    Rule("Interactive", BOOLEAN, source="published"),
    Rule("Checkpointable", BOOLEAN, source="published"),
    Rule("Restartable", BOOLEAN, source="published"),
    Rule("Suspendable", BOOLEAN, source="published"),
)
PLACE = (
    _rd("Machine"),
    _rd("Partition", source="published"),
    _rd("Queue"),
    _rd("QualityOfService"),
    _rd("Reservation", source="published"),
    Rule("ReservationTime", DATETIME, source="published"),
    _rd("ResourceManagerType", source="ours"),
    _rd("Architecture", source="published"),
    _rd("OperatingSystem", source="published"),
    # Not Network, which table 4 has for an amount.
    _rd("NetworkType", source="ours"),
    _rd("NodeCount", INTEGER),
    replace(
        _rd("Node"),
        attributes=(
            replace(_AGGREGATION, choices=("List", "Pattern", "Range")),
            _DELIMITER,
            Attribute("count", INTEGER),
        ),
    ),
    replace(_rd("Feature"), attributes=(_AGGREGATION, _DELIMITER)),
)
RESOURCES = tuple(  # table 4
    map(
        _consumable,
        [
            _rd("Processors", INTEGER),
            _rd("Memory", FLOAT),
            _rd("Swap", FLOAT, source="published"),
            _rd("Disk", FLOAT, source="published"),
            _rd("Network", FLOAT, source="published"),
            replace(_rd("Resource", FLOAT), attributes=(_NAME, _TYPE)),
        ],
    )
)
TIMES = (
    Rule("SubmitTime", DATETIME),
    Rule("SubmitHost"),
    Rule("EligibleTime", DATETIME, source="published"),
    Rule("DeadlineTime", DATETIME, source="published"),
    Rule("StagedTime", DATETIME),
    Rule("StartTime", DATETIME),
    Rule("EndTime", DATETIME),
    _rd("Duration", DURATION),
    Rule("CpuDuration", DURATION, source="published"),
    Rule("SuspendDuration", INTEGER, source="published"),
    Rule("StartCount", INTEGER, source="published"),
    Rule("Priority", INTEGER),
    Rule("TimeCategory", source="published"),
    Rule("ExitCode", INTEGER, source="published"),
    Rule("Quote"),
    Rule("Charge", FLOAT, (_UNITS,)),
)
STRUCTURED = (
    Rule("InputFile", attributes=_redirect("Close")),
    Rule(
        "OutputFile", attributes=_redirect("Append", "Close", "Flush", "Keep", "Merge")
    ),
    Rule(
        "ErrorFile", attributes=_redirect("Append", "Close", "Flush", "Keep", "Merge")
    ),
    Rule(
        "NotificationList",
        attributes=(Attribute("uri"),),
        many=True,
        choices=("JobStart", "JobEnd", "All", "None"),
    ),
    Rule(
        "ResourceLimit",
        attributes=(_NAME, Attribute("type", choices=("Hard", "Soft"))),
        many=True,
    ),
    Rule(
        "TaskDistribution",
        attributes=(
            Attribute(
                "type",
                choices=("Rule", "TasksPerNode", "ProcessorsPerTask", "Geometry"),
            ),
        ),
    ),
    Rule(
        "Dependency",
        attributes=(
            Attribute("condition", choices=("OnSuccess", "OnFailure", "OnExit")),
            Attribute("code", INTEGER),
            Attribute("designator", choices=("JobId", "JobName")),
        ),
        many=True,
    ),
    Rule("Extension", attributes=(_NAME, _TYPE), many=True),
    Rule(ENVIRONMENT, None, (Attribute("export", BOOLEAN),)),
)
JOB_PROPERTIES = (  # table 2 and what section 5.1 adds to it
    *IDENTITY,
    *CREDENTIALS,
    *PROGRAM,
    *PLACE,
    *RESOURCES,
    *TIMES,
    *STRUCTURED,
)

TASK_GROUP_PROPERTIES = (  # table 6
    Rule("Id", source="published"),
    Rule("Name"),
    Rule("TaskCount", INTEGER),
)
TASK_PROPERTIES = (  # table 7
    Rule("Id", source="published"),
    Rule("Node"),
    Rule("Session", INTEGER, source="published"),
    # Of section 7, "like the process id", and the elaborate example.
    Rule("Process", INTEGER),
)
CATEGORIES = (Rule(REQUESTED, None), Rule(DELIVERED, None))


def _container(name: str, many: bool = False, required: bool = False) -> Rule:
    return Rule(name, None, many=many, required=required, source="text")


def _optional(rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
    return tuple(replace(rule, required=False) for rule in rules)


def _besides(own: tuple[Rule, ...], others: tuple[Rule, ...]) -> tuple[Rule, ...]:
    """``own`` properties, and those of ``others`` that have no own of the name."""
    names = {rule.name for rule in own}
    return (*own, *(rule for rule in _optional(others) if rule.name not in names))


def _by_name(*rules: Rule) -> Mapping[str, Rule]:
    return MappingProxyType({rule.name: rule for rule in rules})


_IN_JOB = (
    *CATEGORIES,
    _container(JOB_GROUP),
    _container(TASK_GROUP_DEFAULTS),
    _container(TASK_GROUP, many=True),
)
_IN_TASK_GROUP = (
    *_besides(TASK_GROUP_PROPERTIES, JOB_PROPERTIES),
    *CATEGORIES,
    _container(TASK_DEFAULTS),
    _container(TASK, many=True),
)
_IN_TASK = (*_besides(TASK_PROPERTIES, JOB_PROPERTIES), *CATEGORIES)

CONTENTS: Mapping[str, Mapping[str, Rule]] = MappingProxyType(
    {
        JOB_GROUP: _by_name(
            *GROUP_PROPERTIES,
            _container(JOB_DEFAULTS),
            _container(JOB, many=True, required=True),
        ),
        JOB_DEFAULTS: _by_name(*_optional(JOB_PROPERTIES), *_IN_JOB),
        JOB: _by_name(*JOB_PROPERTIES, *_IN_JOB),
        TASK_GROUP_DEFAULTS: _by_name(*_IN_TASK_GROUP),
        TASK_GROUP: _by_name(*_IN_TASK_GROUP),
        TASK_DEFAULTS: _by_name(*_IN_TASK),
        TASK: _by_name(*_IN_TASK),
        REQUESTED: _by_name(
            *(
                replace(r, many=True, attributes=(*r.attributes, *REQUEST_ATTRIBUTES))
                for r in JOB_PROPERTIES
                if r.requested
            )
        ),
        DELIVERED: _by_name(
            *(
                replace(r, many=True, attributes=(*r.attributes, *DELIVERY_ATTRIBUTES))
                for r in JOB_PROPERTIES
                if r.delivered
            )
        ),
        ENVIRONMENT: _by_name(Rule("Variable", attributes=(_NAME,), many=True)),
    }
)
"""The rules for what each element may contain. Elements that are not here have
text."""

IN_ORDER = (REQUESTED, DELIVERED, ENVIRONMENT)
"""Elements whose contents stay in the order that they have: ``conj`` and
``group`` relate a property to the one before (section 8.1), and what a variable
says may depend on those above."""

FILES = ("InputFile", "OutputFile", "ErrorFile")
"""Elements that stay in the order that they have among each other: what they do
together may depend on it (section 5.1)."""
