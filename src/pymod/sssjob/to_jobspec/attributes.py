# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Program, user, place and files of a job: from a job object to ``tasks``
and ``attributes``."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Collection, Mapping, Optional, Sequence

from flux_k8s.errors import show
from flux_k8s.formats import constraints, hostlist
from flux_k8s.formats.constraints import AND, HOSTLIST
from flux_k8s.json_reader import INT64_MAX
from flux_k8s.ports import Json
from sssjob.expression import from_tree, names_in
from sssjob.schema.model import items_of
from sssjob.schema.relations import Bracket, Leaf, leaves
from sssjob.terms import (
    ELSEWHERE,
    LIMITS,
    OPTIONS,
    SYSTEM,
    TEXTS,
    UNLIMITED,
    names_variable,
)
from sssjob.to_jobspec.building import CONSTRAINTS, DURATION, Assignment, Builder
from sssjob.to_jobspec.files import add_files
from sssjob.to_jobspec.requests import MAX_NAMES, Nodes, Problems, Request, Requests

CWD = (*SYSTEM, "cwd")
ENVIRONMENT = (*SYSTEM, "environment")

_WORDS = re.compile(
    r"""([ \t\r\n]+)|'([^']*)'|"((?:[^"\\]|\\.)*)"|\\(.)|([^ \t\r\n'"\\]+)""",
    re.DOTALL,
)
_ESCAPED = re.compile(r"""\\(["\\])""")
_UNENDED = {
    "'": "no closing quotation",
    '"': "no closing quotation",
    "\\": "no escaped character",
}

_LIMITS = {limit: name for name, limit in LIMITS.items()}
_LIMIT = re.compile(r"[0-9]{1,19}", re.ASCII)


@dataclass(frozen=True)
class Submitter:
    """The user who submits, and the environment of the submission.

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


def add_attributes(
    requests: Requests, submitter: Submitter, builder: Builder, problems: Problems
) -> None:
    """Say all attributes but those of storage and dependencies."""
    for name, keys in {**TEXTS, "Queue": (*SYSTEM, "queue")}.items():
        request = requests.one(name, problems)
        if request is not None:
            builder.assign(keys, request.text, request.path)
    duration = requests.one("Duration", problems, ("EQ", "LE"))
    if duration is not None and duration.value == 0:
        problems.unsupported(duration, "is 0 seconds, which to Flux is no limit")
    elif duration is not None:
        builder.assign(DURATION, duration.value, duration.path)
    cwd = requests.one("InitialWorkingDirectory", problems)
    if cwd is not None:
        builder.assign(CWD, _at_home(cwd.text, submitter), cwd.path)
    _add_environment(requests, submitter, builder, problems)
    add_files(requests, lambda path: _at_home(path, submitter), builder, problems)
    _add_limits(requests, builder, problems)
    _add_constraints(requests, builder, problems)


def check_place(requests: Requests, submitter: Submitter, problems: Problems) -> None:
    """Whether the job is for this user and this system, and wants no more of it
    than Flux does."""
    user = requests.one("User", problems)
    users = submitter.users
    if user is not None and users is not None and user.text not in users:
        problem = f"is {show(user.text)}, but {_one_of(users)} submits the job"
        problems.unsupported(user, problem)
    machine = requests.one("Machine", problems)
    if machine is not None and machine.text != submitter.machine:
        here = submitter.machine
        known = "nobody said what this system is" if here is None else f"this is {here}"
        problems.unsupported(machine, f"is {show(machine.text)}, but {known}")
    manager = requests.one("ResourceManagerType", problems)
    if manager is not None and manager.text.lower() != "flux":
        problems.unsupported(manager, f"is {show(manager.text)}, but this is Flux")
    interactive = requests.one("Interactive", problems)
    if interactive is not None and interactive.value:
        problems.unsupported(
            interactive, "no terminal can be given to what is submitted"
        )
    for notification in requests.all("NotificationList"):
        if set(items_of(notification.text)) != {"None"}:
            problems.unsupported(notification, "Flux sends no notifications")


def command_of(requests: Requests, problems: Problems) -> list[str]:
    """The command line."""
    shell = requests.one("Shell", problems)
    program = requests.one("Executable", problems)
    if program is None or not program.text:
        where = requests.path if program is None else program.path
        problems.wrong(where, "has no Executable: Flux needs a command to run")
        return []
    if ELSEWHERE.match(program.text):
        problem = f"{show(program.text)} has to be fetched, expected a path"
        problems.wrong(program.path, problem)
    before = [] if shell is None else [shell.text]
    return [*before, program.text, *(_arguments(requests, problems) or [])]


def check_command(requests: Requests, given: Assignment, problems: Problems) -> None:
    """Whether an Extension that gives ``tasks`` agrees with the elements."""
    task = given.value[0] if isinstance(given.value, list) and given.value else None
    command = task.get("command") if isinstance(task, dict) else None
    if not isinstance(command, list) or not command:
        problems.wrong(given.path, f"is {show(given.value)}, expected tasks (RFC 14)")
        return
    program = requests.one("Executable", problems)
    words = _arguments(requests, problems)
    for request, ours, theirs in (
        (program, program and program.text, command[0]),
        (requests.one("Arguments", problems), words, command[1:]),
    ):
        if request is not None and ours != theirs:
            problem = f"is {show(ours)}, but {given.path} has {show(theirs)}"
            problems.wrong(request.path, problem)


def _arguments(requests: Requests, problems: Problems) -> Optional[list[str]]:
    request = requests.one("Arguments", problems)
    if request is None:
        return None
    try:
        return _words(request.text)
    except ValueError as error:
        problem = f"is {show(request.text)}: {error}, expected words as in sh"
        problems.wrong(request.path, problem)
        return None


def _words(text: str) -> list[str]:
    """The words that ``shlex.split`` makes of a text, in linear time.

    Raises:
        ValueError: a quotation has no end.
    """
    words: list[str] = []
    word: list[str] = []
    at = 0
    for match in _WORDS.finditer(text):
        if match.start() != at:
            break
        at = match.end()
        blank, single, double, escaped, plain = match.groups()
        if blank is not None and word:
            words.append("".join(word))
            word = []
        elif double is not None:
            word.append(_ESCAPED.sub(r"\1", double))
        elif blank is None:
            word.append(
                next(part for part in (single, escaped, plain, "") if part is not None)
            )
    if at != len(text):
        raise ValueError(_UNENDED[text[at]])
    return [*words, "".join(word)] if word else words


def _one_of(names: Collection[str]) -> str:
    return next(iter(names), "nobody")


def _at_home(path: str, submitter: Submitter) -> str:
    """A path, with what a shell makes of a ``~`` at its beginning."""
    if submitter.home is None or (path != "~" and not path.startswith("~/")):
        return path
    return submitter.home + path[1:]


def _check_same(first: Request, request: Request, problems: Problems) -> None:
    """Whether an element says what the first about the same thing does."""
    if request.text != first.text:
        problem = f"is {show(request.text)}, but {first.path} is {show(first.text)}"
        problems.wrong(request.path, problem)


def _add_environment(
    requests: Requests, submitter: Submitter, builder: Builder, problems: Problems
) -> None:
    """Without an Environment, the job gets what Flux sets, and no more: section 5.1
    lets the submitter's through with ``export`` only."""
    found = requests.all("Environment")
    exported = any(request.element.attribute("export") is True for request in found)
    if found:
        builder.put(ENVIRONMENT, dict(submitter.environment) if exported else {})
    said: dict[str, Request] = {}
    for request in found:
        for variable in request.inside():
            name = variable.attribute("name") or ""
            if not names_variable(name):
                expected = "expected a name that is not empty and has no ="
                problems.wrong(variable.path, f"has name={show(name)}, {expected}")
                continue
            _check_same(said.setdefault(name, variable), variable, problems)
            builder.assign((*ENVIRONMENT, name), variable.text, variable.path)


def _add_limits(requests: Requests, builder: Builder, problems: Problems) -> None:
    """Flux sets soft limits only. One that is to be both is set as far as that, where
    no other is the soft one."""
    said: dict[tuple[str, bool], Request] = {}
    for request in sorted(requests.all("ResourceLimit"), key=_is_soft):
        name = request.attribute("name") or ""
        value = _limit(request.text.strip())
        if name not in _LIMITS:
            known = ", ".join(_LIMITS)
            problems.unsupported(
                request, f"Flux knows no limit name={show(name)}, but {known}"
            )
        elif request.attribute("type") == "Hard":
            problems.unsupported(request, "Flux sets soft limits only")
        elif value is None:
            problem = f"is {show(request.text)}, expected a number or {UNLIMITED}"
            problems.wrong(request.path, problem)
        else:
            _check_same(
                said.setdefault((name, _is_soft(request)), request), request, problems
            )
            builder.assign((*OPTIONS, "rlimit", _LIMITS[name]), value, request.path)


def _limit(text: str) -> Optional[int]:
    """The value of ``rlimit`` for a limit; None where the text is no limit."""
    if text == UNLIMITED:
        return -1
    value = int(text) if _LIMIT.fullmatch(text) else INT64_MAX + 1
    return value if value <= INT64_MAX else None


def _is_soft(limit: Request) -> bool:
    return limit.attribute("type") == "Soft"


def _add_constraints(requests: Requests, builder: Builder, problems: Problems) -> None:
    """Write the constraint of all Features and Nodes."""
    found = [
        said
        for nodes in requests.nodes
        for said in (_plain(nodes, problems), _requested(nodes, problems))
        if said is not None
    ]
    if not found:
        return
    path = found[0][0]
    constraint = constraints.conjunction(*(said for _, said in found))
    if _is_nowhere(constraint):
        problems.wrong(path, f"asks for {show(constraint)}, which no node can be")
    builder.assign(CONSTRAINTS, constraint, path)


def _plain(nodes: Nodes, problems: Problems) -> Optional[tuple[str, Json]]:
    """The path of the first element outside of Requested, and the constraint of all
    of them. An element that Requested has as well must have the same value there."""
    requested = [request for request in nodes.requested if request is not None]
    left = []
    for request in nodes.plain:
        theirs = [a for a in requested if a.element.name == request.element.name]
        if not theirs:
            left.append(request)
        elif [_bare(other) for other in theirs] != [_bare(request)]:
            problem = f"is {show(request.text)}, but {theirs[0].path} says otherwise"
            problems.wrong(request.path, problem)
    tree = Bracket(AND, tuple(map(Leaf, range(len(left)))))
    return _constraint(tree, left, problems)


def _requested(nodes: Nodes, problems: Problems) -> Optional[tuple[str, Json]]:
    if nodes.tree is None:
        return None
    return _constraint(nodes.tree, nodes.requested, problems)


def _constraint(
    tree: Bracket, requests: Sequence[Optional[Request]], problems: Problems
) -> Optional[tuple[str, Json]]:
    """The constraint that a tree says, and the path of its first element; None where
    nothing is left of it."""

    def leave_out(index: int, problem: str) -> None:
        request = requests[index]
        assert request is not None
        problems.unsupported(request, problem)

    inside = [
        request for request in (requests[index] for index in leaves(tree)) if request
    ]
    names = sum(names_in(request.element) for request in inside)
    if not problems.has_room_for(names):
        problem = f"more than {MAX_NAMES} names of nodes and features in all"
        problems.wrong(inside[0].path, problem)
        return None
    elements = [None if request is None else request.element for request in requests]
    try:
        found = from_tree(tree, elements, leave_out)
    except ValueError as error:
        problems.wrong(inside[0].path, str(error))
        return None
    return None if found is None else (inside[0].path, found)


def _is_nowhere(constraint: Json) -> bool:
    """Whether no node can match, since none has two names."""
    parts = constraint.get(AND, [])
    names = [
        set(hostlist.decode(part[HOSTLIST][0])) for part in parts if HOSTLIST in part
    ]
    return bool(names) and not set.intersection(*names)


def _bare(request: Request) -> tuple[Any, ...]:
    """The element without its place in an expression."""
    names = ("aggregation", "delimiter", "op")
    return (request.value, *(request.attribute(name) for name in names))
