# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The elements of a job's program: command, files, limits and dependencies."""

from __future__ import annotations

import re
import shlex
from typing import Any, Iterator, Optional

from flux_k8s.formats import jobid
from flux_k8s.json_reader import is_integer
from sssjob.from_flux.remainder import Remainder, extension
from sssjob.schema.model import Element, element
from sssjob.schema.values import Datatype, unwritable
from sssjob.shape import SLOT
from sssjob.terms import (
    BEGIN_TIME,
    CONDITIONS,
    ELSEWHERE,
    LIMITS,
    OPTIONS,
    STREAMS,
    SYSTEM,
    TEXTS,
    UNLIMITED,
    names_variable,
    path_name,
)

_CWD = (*SYSTEM, "cwd")
_DEPENDENCIES = (*SYSTEM, "dependencies")
_ENVIRONMENT = (*SYSTEM, "environment")
_MODE = (*OPTIONS, "output", "mode")
_RLIMIT = (*OPTIONS, "rlimit")
_APPEND = "append"

_SECRET = re.compile(
    r"token|secret|passw|passphrase|credential|api_?key|access_?key|private_?key"
    r"|(^|_)(pat|pin|pw|auth)($|_)|_pwd($|_)",
    re.IGNORECASE,
)
_PASSWORD = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,30}://[^/\s@]{0,999}:[^/\s@]{1,999}@")

_SECONDS = re.compile(r"([0-9]{1,10})(?:\.0*)?", re.ASCII)


def program(
    remainder: Remainder, count: Optional[dict[str, Any]], parent: str
) -> Iterator[Element]:
    """The properties of the job, which are taken.

    Args:
        count: what other elements say of ``tasks[0].count``; None for nothing.
        parent: what the ids of the jobs begin with that this one may depend on.

    Raises:
        BadObject: the jobspec is not what RFC 14 says.
    """
    for name, path in {**TEXTS, "InitialWorkingDirectory": _CWD}.items():
        if path == _CWD and _means_another(remainder.get(*path)):
            continue
        text = remainder.take_text(*path)
        if text is not None:
            yield element(name, text)
    yield from _command(remainder, count)
    yield from _files(remainder)
    yield from _limits(remainder)
    yield from _dependencies(remainder, parent)


def environment(remainder: Remainder) -> Iterator[Element]:
    """The job's environment, which is taken, but for what seems to be secret. What XML
    cannot hold, what no variable can be called, and variables that are to be unset, are
    Extensions."""
    variables = remainder.table(*_ENVIRONMENT)
    secret = {name: None for name in variables if is_secret(name, variables[name])}
    if secret:
        remainder.warn(f"left out, as they may be secret: {', '.join(secret)}")
    told: list[Element] = []
    for name, value in variables.items():
        if name in secret:
            continue
        writable = isinstance(value, str) and not unwritable(name + value)
        if writable and names_variable(name):
            told.append(element("Variable", value, name=name))
            continue
        place = path_name((*_ENVIRONMENT, name))
        if isinstance(value, str) and not writable:
            remainder.warn(
                f"{place} has characters that XML cannot hold: it is told as an"
                " Extension"
            )
        yield extension(place, value)
    if isinstance(remainder.get(*_ENVIRONMENT), dict):
        remainder.take(*_ENVIRONMENT)
        yield element("Environment", None, *told)


def is_secret(name: str, value: Any) -> bool:
    """Whether a variable seems to be no business of others, by its name or since it
    has a password in a URL."""
    if _SECRET.search(name) is not None:
        return True
    return isinstance(value, str) and _PASSWORD.search(value) is not None


def _command(
    remainder: Remainder, count: Optional[dict[str, Any]]
) -> Iterator[Element]:
    """The command. Several programs in one job are an Extension."""
    tasks = remainder.reader.objects("tasks")
    if len(tasks) != 1:
        return
    command = tasks[0].strings("command")
    if not command:
        raise tasks[0].bad("command", "one string at least")
    if any(unwritable(word) for word in command):
        remainder.warn(
            "its command has characters that XML cannot hold: it is told as an"
            " Extension"
        )
        return
    if not command[0] or ELSEWHERE.match(command[0]):
        return  # Executable has another meaning for these
    yield element("Executable", command[0])
    if len(command) > 1:
        yield element("Arguments", shlex.join(command[1:]))
    said = {"command": list(command), "slot": SLOT, "count": count}
    if tasks[0].value == said:
        remainder.take("tasks")


def _files(remainder: Remainder) -> Iterator[Element]:
    """The files of the standard streams. That output is appended goes for both of
    its files."""
    append = remainder.get(*_MODE) == _APPEND
    appended = False
    for name, path in STREAMS.items():
        file = remainder.get(*path, "path")
        if remainder.get(*path, "type") != "file" or _means_another(file):
            continue
        text = remainder.take_text(*path, "path")
        if text is None:
            continue
        remainder.take(*path, "type")
        redirect = _APPEND.capitalize() if append and name != "InputFile" else None
        appended = appended or redirect is not None
        yield element(name, text, redirectList=redirect)
    if appended:
        remainder.take(*_MODE)


def _means_another(path: Any) -> bool:
    """Whether the path of a file is another in a job object: there an empty one is
    for the system to choose, and ``~`` is somebody's home (section 5.1)."""
    if not isinstance(path, str):
        return False
    return not path.strip() or path == "~" or path.startswith("~/")


def _limits(remainder: Remainder) -> Iterator[Element]:
    """Resource limits. The job shell sets those that are soft."""
    for name, value in remainder.table(*_RLIMIT).items():
        if name in LIMITS and is_integer(value) and value >= -1:
            remainder.take(*_RLIMIT, name)
            text = UNLIMITED if value == -1 else str(value)
            yield element("ResourceLimit", text, name=LIMITS[name], type="Soft")


def _dependencies(remainder: Remainder, parent: str) -> Iterator[Element]:
    """The dependencies. Those without an element are an Extension."""
    value = remainder.get(*_DEPENDENCIES)
    if not isinstance(value, list):
        return
    others: list[Any] = []
    eligible = False
    for entry in value:
        told = _dependency(entry, parent)
        if told is None or (told.name == "EligibleTime" and eligible):
            others.append(entry)
            continue
        eligible = eligible or told.name == "EligibleTime"
        yield told
    remainder.take(*_DEPENDENCIES)
    if others:
        remainder.put(others, *_DEPENDENCIES)


def _dependency(entry: Any, parent: str) -> Optional[Element]:
    """The element for a dependency (RFC 26); None where there is none."""
    if not isinstance(entry, dict) or set(entry) != {"scheme", "value"}:
        return None
    scheme, value = entry["scheme"], str(entry["value"])
    if scheme == BEGIN_TIME:
        match = _SECONDS.fullmatch(value)
        if match is None or not Datatype.DATETIME.holds(int(match[1])):
            return None
        return element("EligibleTime", int(match[1]))
    condition = CONDITIONS.get(scheme) if isinstance(scheme, str) else None
    if condition is None:
        return None
    try:
        antecedent = jobid.f58(jobid.decode(value))
    except ValueError:
        return None
    return element("Dependency", parent + antecedent, condition=condition)
