# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The size of a job: from a job object to ``resources`` and ``tasks``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from flux_k8s.errors import BadObject, show
from flux_k8s.json_reader import INT64_MAX
from flux_k8s.ports import Json
from sssjob.schema.values import Datatype, Value
from sssjob.shape import (
    SLOT,
    Amount,
    Contradiction,
    Layout,
    Shape,
    known_option,
    layout_of,
    totals_of,
)
from sssjob.terms import GPU, OPTIONS, RULES
from sssjob.to_jobspec.building import Assignment, Builder, find
from sssjob.to_jobspec.requests import Problems, Request, Requests

RESOURCES = ("resources",)
TASKS = ("tasks",)
_PER_RESOURCE = (*OPTIONS, "per-resource")
_TASKMAP = (*OPTIONS, "taskmap")

_SCHEMES = {rule: scheme for scheme, rule in RULES.items()}
_PER_NODE = "TasksPerNode"
_PER_TASK = "ProcessorsPerTask"


@dataclass(frozen=True)
class _Said:
    """A number that a job object says.

    Attributes:
        amount: the numbers that will do.
        request: the first element that says it.
    """

    amount: Amount
    request: Request

    @property
    def number(self) -> int:
        """The one to ask for: the least, where that is given."""
        return self.amount.low or self.amount.high or 0

    @property
    def text(self) -> str:
        return _text(self.amount)


class ResourceBuilder:
    """Makes ``resources`` and ``tasks`` of a jobspec from the elements of a job."""

    def __init__(self, requests: Requests, problems: Problems) -> None:
        self._path = requests.path
        self._problems = problems
        gpus = [
            request for request in requests.all("Resource") if self._is_gpu(request)
        ]
        said = {
            "NodeCount": self._amount(requests.all("NodeCount")),
            "Processors": self._amount(requests.all("Processors")),
            GPU: self._amount(gpus),
            "TaskCount": self._amount(requests.all("TaskCount")) or _listed(requests),
        }
        self._distribution = requests.one("TaskDistribution", problems)
        if self._distribution is not None:
            kind = self._distribution.attribute("type") or ""
            if kind in (_PER_NODE, _PER_TASK):
                said[kind] = self._amount([self._distribution])
            elif self._distribution.text not in _SCHEMES or kind not in ("Rule", ""):
                rules = " or ".join(_SCHEMES)
                problem = f"Flux knows the rules {rules}, tasks per node and processors"
                problems.unsupported(self._distribution, f"{problem} per task")
                self._distribution = None
        self._amounts = {name: one for name, one in said.items() if one is not None}

    def add_to(self, builder: Builder) -> Json:
        """Say ``resources``, and what the job shell has to know of tasks. What an
        Extension says of these is left to it.

        Returns:
            ``tasks[0].count``.
        """
        self._add_distribution(builder)
        given = builder.extension(RESOURCES)
        if given is not None:
            return self._count_with(given)
        layout = self._layout()
        builder.assign(RESOURCES, layout.resources, self._path)
        return layout.count

    def check(self, jobspec: Json, builder: Builder) -> None:
        """Whether Extensions agree with the elements.

        Args:
            jobspec: what became of them.
        """
        given = builder.extension(RESOURCES) or builder.extension(TASKS)
        if given is None:
            return
        option = find(jobspec, _PER_RESOURCE)
        try:
            totals = totals_of(
                jobspec["resources"], _task(jobspec), known_option(option)
            )
        except BadObject as error:
            self._problems.wrong(given.path, str(error))
            return
        amounts = {
            "NodeCount": totals.nodes or Amount(0, 0),
            "Processors": totals.processors,
            GPU: totals.gpus,
            # Where it depends on the nodes that the job gets, none is wrong.
            "TaskCount": totals.tasks,
        }
        for name, said in self._amounts.items():
            amount = amounts.get(name)
            if amount is not None and amount != said.amount:
                self._problems.wrong(
                    said.request.path,
                    f"{name} is {said.text}, but {given.path} has {_text(amount)}",
                )

    def _is_gpu(self, request: Request) -> bool:
        """Whether this asks for GPUs of the only kind that Flux knows."""
        if request.attribute("name") != GPU:
            return False
        for name in ("type", "units"):
            value = request.attribute(name)
            if value is not None:
                problem = f"jobspec version 1 has no GPUs of {name}={show(value)}"
                self._problems.unsupported(request, problem)
                return False
        return True

    def _amount(self, requests: list[Request]) -> Optional[_Said]:
        """The amount of all elements of one name."""
        found: Optional[_Said] = None
        for request in requests:
            amount = self._amount_of(request)
            if amount is None:
                continue
            if found is None:
                found = _Said(amount, request)
                continue
            both = _both(amount, found.amount)
            if both is not None:
                found = _Said(both, found.request)
            elif not (request.vague or found.request.vague):
                problem = (
                    f"is {_text(amount)}, but {found.request.path} is {found.text}"
                )
                self._problems.wrong(request.path, problem)
                return None
        return found

    def _amount_of(self, request: Request) -> Optional[Amount]:
        """The amount of one element."""
        try:
            number = _whole(request.value)
        except ValueError:
            problem = f"is {show(request.value)}, expected a whole number"
            self._problems.wrong(request.path, problem)
            return None
        op = request.attribute("op") or "EQ"
        if op not in _AMOUNTS:
            self._problems.unsupported(request, f'Flux knows no amounts with op="{op}"')
            return None
        return _AMOUNTS[op](number)

    def _add_distribution(self, builder: Builder) -> None:
        request = self._distribution
        each = self._amounts.get(_PER_NODE)
        if each is not None:
            builder.assign((*_PER_RESOURCE, "type"), "node", each.request.path)
            builder.assign((*_PER_RESOURCE, "count"), each.number, each.request.path)
        elif request is not None and request.text in _SCHEMES:
            # As Flux's own commands write it.
            builder.assign((*_TASKMAP, "scheme"), _SCHEMES[request.text], request.path)
            builder.assign((*_TASKMAP, "value"), "", request.path)

    def _layout(self) -> Layout:
        """The resources that the elements request, within jobspec version 1."""
        if not self._are_large_enough():
            return layout_of(Shape())
        for said in self._amounts.values():
            if said.amount.exact is None:
                self._problems.unsupported(
                    said.request,
                    f"{said.text} is a range, which jobspec version 1 has none of",
                    f"taken for {said.number}",
                )
        numbers = {name: said.number for name, said in self._amounts.items()}
        shape = Shape(
            nodes=numbers.get("NodeCount"),
            processors=numbers.get("Processors"),
            gpus=numbers.get(GPU),
            tasks=numbers.get("TaskCount"),
            tasks_per_node=numbers.get(_PER_NODE),
            processors_per_task=numbers.get(_PER_TASK),
        )
        try:
            return layout_of(shape)
        except Contradiction as error:
            self._problems.wrong(self._path, str(error))
            return layout_of(Shape())

    def _are_large_enough(self) -> bool:
        """Whether each number can be one of a job; what cannot is told."""
        small = [
            (said, least)
            for name, said in self._amounts.items()
            for least in (0 if name == GPU else 1,)
            if said.amount.high is not None and said.amount.high < least
        ]
        for said, least in small:
            problem = f"is {said.text}, expected {least} or more"
            self._problems.wrong(said.request.path, problem)
        return not small

    def _count_with(self, given: Assignment) -> Json:
        """``tasks[0].count`` for resources that an Extension gives."""
        said = self._amounts.get("TaskCount")
        each_slot = {"per_slot": 1}
        if said is None or _PER_NODE in self._amounts:
            return each_slot
        try:
            totals = totals_of(given.value, {"slot": SLOT, "count": each_slot})
        except BadObject:
            return each_slot  # check() tells
        return each_slot if totals.tasks == said.amount else {"total": said.number}


_AMOUNTS = {
    "EQ": lambda number: Amount(number, number),
    "GE": lambda number: Amount(number, None),
    "GT": lambda number: Amount(number + 1, None),
    "LE": lambda number: Amount(0, number),
    "LT": lambda number: Amount(0, number - 1),
}


def _whole(value: Value) -> int:
    """A number of 0 or more, below 2^63, which may be written as a string or a
    fraction.

    Raises:
        ValueError: it is none.
    """
    number = int(Datatype.INTEGER.parse(value)) if isinstance(value, str) else value
    if number != int(number) or not 0 <= number <= INT64_MAX:
        raise ValueError(value)
    return int(number)


def _listed(requests: Requests) -> Optional[_Said]:
    """The number of tasks that a task group lists."""
    tasks = requests.all("Task")
    return _Said(Amount(len(tasks), len(tasks)), tasks[0]) if tasks else None


def _task(jobspec: Json) -> Json:
    """``tasks[0]`` of a jobspec.

    Raises:
        BadObject: there is none.
    """
    tasks = jobspec["tasks"]
    if not isinstance(tasks, list) or not tasks or not isinstance(tasks[0], dict):
        raise BadObject("jobspec", "tasks", tasks, "an array of objects")
    return dict(tasks[0])


def _both(one: Amount, other: Amount) -> Optional[Amount]:
    """The numbers that are in both; None for none."""
    low = max(one.low, other.low)
    highs = [amount.high for amount in (one, other) if amount.high is not None]
    high = min(highs, default=None)
    return None if high is not None and low > high else Amount(low, high)


def _text(amount: Amount) -> str:
    if amount.exact is not None:
        return str(amount.exact)
    if amount.high is None:
        return f"{amount.low} or more"
    if amount.low == 0:
        return f"{amount.high} or less"
    return f"{amount.low} to {amount.high}"
