# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What a job runs, for whom, where and with what: from a job object to ``tasks``
and ``attributes``."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field
from typing import Any, Collection, Mapping, Optional

from flux_k8s import constraints
from flux_k8s.errors import show
from flux_k8s.fields import INT64_MAX
from flux_k8s.jobobject.asking import Ask, Asks, Problems
from flux_k8s.jobobject.building import CONSTRAINTS, DURATION, Builder, Saying
from flux_k8s.jobobject.expression import from_elements
from flux_k8s.jobobject.model import items_of, paths
from flux_k8s.jobobject.properties import REQUESTED
from flux_k8s.jobobject.terms import (
    ELSEWHERE,
    LIMITS,
    OPTIONS,
    SYSTEM,
    TEXTS,
    UNLIMITED,
)
from flux_k8s.jobobject.tofiles import say_files

Json = dict[str, Any]

CWD = (*SYSTEM, "cwd")
ENVIRONMENT = (*SYSTEM, "environment")

_LIMITS = {limit: name for name, limit in LIMITS.items()}
_LIMIT = re.compile(r"[0-9]{1,19}", re.ASCII)


@dataclass(frozen=True)
class Submitter:
    """Who submits, and from where.

    Attributes:
        users: the names and numbers by which an object may call the user; None
            for any.
        machine: what this system is called; None when nobody said.
        environment: what ``export`` exports.
        cwd: where a job runs that does not say it; None for where Flux puts it.
        home: what ``~`` at the beginning of a path stands for; None for nothing.
    """

    users: Optional[Collection[str]] = None
    machine: Optional[str] = None
    environment: Mapping[str, str] = field(default_factory=dict)
    cwd: Optional[str] = None
    home: Optional[str] = None


def say_attributes(
    asks: Asks, submitter: Submitter, builder: Builder, problems: Problems
) -> None:
    """Say all attributes but those of storage and dependencies."""
    for name, keys in {**TEXTS, "Queue": (*SYSTEM, "queue")}.items():
        ask = asks.one(name, problems)
        if ask is not None:
            builder.say(keys, ask.text, ask.path)
    duration = asks.one("Duration", problems, ("EQ", "LE"))
    if duration is not None:
        builder.say(DURATION, duration.value, duration.path)
    cwd = asks.one("InitialWorkingDirectory", problems)
    if cwd is not None:
        builder.say(CWD, _at_home(cwd.text, submitter), cwd.path)
    _say_environment(asks, submitter, builder, problems)
    say_files(asks, lambda path: _at_home(path, submitter), builder, problems)
    _say_limits(asks, builder, problems)
    _say_constraints(asks, builder, problems)


def check_place(asks: Asks, submitter: Submitter, problems: Problems) -> None:
    """Whether the job is for this user and this system, and wants no more of it
    than Flux does."""
    user = asks.one("User", problems)
    users = submitter.users
    if user is not None and users is not None and user.text not in users:
        problem = f"is {show(user.text)}, but {_one_of(users)} submits the job"
        problems.cannot(user, problem)
    machine = asks.one("Machine", problems)
    if machine is not None and machine.text != submitter.machine:
        here = submitter.machine
        known = "nobody said what this system is" if here is None else f"this is {here}"
        problems.cannot(machine, f"is {show(machine.text)}, but {known}")
    manager = asks.one("ResourceManagerType", problems)
    if manager is not None and manager.text.lower() != "flux":
        problems.cannot(manager, f"is {show(manager.text)}, but this is Flux")
    interactive = asks.one("Interactive", problems)
    if interactive is not None and interactive.value:
        problems.cannot(interactive, "no terminal can be given to what is submitted")
    for notification in asks.all("NotificationList"):
        if set(items_of(notification.text)) != {"None"}:
            problems.cannot(notification, "Flux sends no notifications")


def command_of(asks: Asks, problems: Problems) -> list[str]:
    """The command line."""
    shell = asks.one("Shell", problems)
    program = asks.one("Executable", problems)
    if program is None or not program.text:
        where = asks.path if program is None else program.path
        problems.wrong(where, "has no Executable: Flux needs a command to run")
        return []
    if ELSEWHERE.match(program.text):
        problem = f"{show(program.text)} has to be fetched, expected a path"
        problems.wrong(program.path, problem)
    before = [] if shell is None else [shell.text]
    return [*before, program.text, *(_arguments(asks, problems) or [])]


def check_command(asks: Asks, given: Saying, problems: Problems) -> None:
    """Whether an Extension that gives ``tasks`` agrees with the elements."""
    task = given.value[0] if isinstance(given.value, list) and given.value else None
    command = task.get("command") if isinstance(task, dict) else None
    if not isinstance(command, list) or not command:
        problems.wrong(given.path, f"is {show(given.value)}, expected tasks (RFC 14)")
        return
    program = asks.one("Executable", problems)
    words = _arguments(asks, problems)
    for ask, ours, theirs in (
        (program, program and program.text, command[0]),
        (asks.one("Arguments", problems), words, command[1:]),
    ):
        if ask is not None and ours != theirs:
            problem = f"is {show(ours)}, but {given.path} has {show(theirs)}"
            problems.wrong(ask.path, problem)


def _arguments(asks: Asks, problems: Problems) -> Optional[list[str]]:
    ask = asks.one("Arguments", problems)
    if ask is None:
        return None
    try:
        return shlex.split(ask.text)
    except ValueError as error:
        problem = f"is {show(ask.text)}: {str(error).lower()}, expected words as in sh"
        problems.wrong(ask.path, problem)
        return None


def _one_of(names: Collection[str]) -> str:
    return next(iter(names), "nobody")


def _at_home(path: str, submitter: Submitter) -> str:
    """A path, with what a shell makes of a ``~`` at its beginning."""
    if submitter.home is None or (path != "~" and not path.startswith("~/")):
        return path
    return submitter.home + path[1:]


def _check_same(first: Ask, ask: Ask, problems: Problems) -> None:
    """Whether an element says what the first about the same thing does."""
    if ask.text != first.text:
        problem = f"is {show(ask.text)}, but {first.path} is {show(first.text)}"
        problems.wrong(ask.path, problem)


def _say_environment(
    asks: Asks, submitter: Submitter, builder: Builder, problems: Problems
) -> None:
    """Without an Environment, the job gets what Flux sets, and no more: section 5.1
    lets the submitter's through with ``export`` only."""
    for ask in asks.all("Environment"):
        exported = ask.element.attribute("export") is True
        builder.put(ENVIRONMENT, dict(submitter.environment) if exported else {})
        said: dict[str, Ask] = {}
        for path, variable in paths(ask.element.contents, ask.path):
            name = str(variable.attribute("name"))
            this = Ask(path, variable, variable.policy(ask.policy))
            _check_same(said.setdefault(name, this), this, problems)
            builder.say((*ENVIRONMENT, name), this.text, path)


def _say_limits(asks: Asks, builder: Builder, problems: Problems) -> None:
    """Flux sets soft limits only. One that is to be both is set as far as that, where
    no other is the soft one."""
    said: dict[tuple[str, bool], Ask] = {}
    for ask in sorted(asks.all("ResourceLimit"), key=_is_soft):
        name = ask.attribute("name") or ""
        value = _limit(ask.text.strip())
        if name not in _LIMITS:
            known = ", ".join(_LIMITS)
            problems.cannot(ask, f"Flux knows no limit name={show(name)}, but {known}")
        elif ask.attribute("type") == "Hard":
            problems.cannot(ask, "Flux sets soft limits only")
        elif value is None:
            problem = f"is {show(ask.text)}, expected a number or {UNLIMITED}"
            problems.wrong(ask.path, problem)
        else:
            _check_same(said.setdefault((name, _is_soft(ask)), ask), ask, problems)
            builder.say((*OPTIONS, "rlimit", _LIMITS[name]), value, ask.path)


def _limit(text: str) -> Optional[int]:
    """What ``rlimit`` has for a limit; None where it is none."""
    if text == UNLIMITED:
        return -1
    value = int(text) if _LIMIT.fullmatch(text) else INT64_MAX + 1
    return value if value <= INT64_MAX else None


def _is_soft(limit: Ask) -> bool:
    return limit.attribute("type") == "Soft"


def _say_constraints(asks: Asks, builder: Builder, problems: Problems) -> None:
    """What Features and Nodes say together."""
    found = asks.all("Feature", "Node")
    requested = [ask for ask in found if _is_requested(ask)]
    plain = [ask for ask in found if not _is_requested(ask)]
    twice = {ask.element.name for ask in requested}
    for ask in list(plain):
        if ask.element.name in twice:
            plain.remove(ask)
            theirs = [a for a in requested if a.element.name == ask.element.name]
            if [_bare(other) for other in theirs] != [_bare(ask)]:
                problem = f"is {show(ask.text)}, but {theirs[0].path} says otherwise"
                problems.wrong(ask.path, problem)
    both = [_constraint(part, problems) for part in (plain, requested) if part]
    if any(constraint is not None for constraint in both):
        builder.say(CONSTRAINTS, constraints.conjunction(*both), found[0].path)


def _constraint(asks: list[Ask], problems: Problems) -> Optional[Json]:
    def leave_out(index: int, problem: str) -> None:
        problems.cannot(asks[index], problem)

    try:
        return from_elements([ask.element for ask in asks], leave_out)
    except ValueError as error:
        problems.wrong(asks[0].path, str(error))
        return None


def _is_requested(ask: Ask) -> bool:
    return ask.path.rpartition("/")[0].endswith(f"/{REQUESTED}")


def _bare(ask: Ask) -> tuple[Any, ...]:
    """What an element says, without its place in an expression."""
    names = ("aggregation", "delimiter", "op")
    return (ask.value, *(ask.attribute(name) for name in names))
