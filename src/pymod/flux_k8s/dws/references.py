# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The names of storage in a job's directives, each of which another directive makes.

``$DW_JOB_x`` is the storage of the ``jobdw`` whose name is x, and ``$DW_PERSISTENT_x``
that of the ``persistentdw``. A variable of the environment has ``_`` for each ``-`` of
the name.
"""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import Collection, Mapping, Optional, Sequence

from flux_k8s.dws.closest import closest
from flux_k8s.dws.directives import COMMANDS, Directive
from flux_k8s.errors import DirectiveError
from flux_k8s.text import printable

COPIES = ("copy_in", "copy_out")
PATHS = ("source", "destination")

_MAKERS = MappingProxyType({"DW_JOB_": "jobdw", "DW_PERSISTENT_": "persistentdw"})
"""The commands of the directives that make the storage, by the start of variables."""

_VARIABLE = re.compile(r"(DW_JOB_|DW_PERSISTENT_)(.*)", re.DOTALL)
_SHOWN = 80
"""Characters of a name in a message."""

Names = Mapping[str, Mapping[str, str]]
"""By the start of variables, the names of the storage, by their variables' ends."""


def check_references(directives: Sequence[Directive]) -> None:
    """Refuse names of storage that no directive makes, and copies of a job without
    storage. A site's own command may make storage of any name.

    Raises:
        DirectiveError: names the first.
    """
    if any(directive.command not in COMMANDS for directive in directives):
        return
    names: Names = {
        start: {
            _variable(directive.arguments["name"]): directive.arguments["name"]
            for directive in directives
            if directive.command == command and "name" in directive.arguments
        }
        for start, command in _MAKERS.items()
    }
    for directive in directives:
        if directive.command in COPIES:
            _check_copy(directive, names)
        elif directive.command == "container":
            _check_container(directive, names)


def _check_copy(directive: Directive, names: Names) -> None:
    for key in PATHS:
        value = directive.arguments.get(key, "")
        if value.startswith("$"):
            _check_path(directive, key, value[1:].partition("/")[0], names)
    if not any(names.values()):
        raise directive.wrong_command(
            f"{directive.command} in a job without storage, expected a jobdw or a"
            " persistentdw as well"
        )


def _check_path(directive: Directive, key: str, variable: str, names: Names) -> None:
    match = _VARIABLE.fullmatch(variable)
    if match is None or _variable(match[2]) in names[match[1]]:
        return
    start, _ = directive.value_span(key)
    raise DirectiveError(
        directive.line,
        start,
        start + 1 + len(variable),
        f"${printable(variable, _SHOWN)}: " + _unknown(match[1], match[2]),
        _meant(match[2], match[1], names),
    )


def _check_container(directive: Directive, names: Names) -> None:
    for key, value in directive.arguments.items():
        match = _VARIABLE.fullmatch(key)
        if match is not None and value not in names[match[1]].values():
            meant = _similar(value, names, names[match[1]].values())
            problem = f"{printable(key, _SHOWN)}=: " + _unknown(match[1], value)
            raise directive.wrong_value(key, problem, meant)


def _unknown(start: str, name: str) -> str:
    return f"no {_MAKERS[start]} of this job has the name {printable(name, _SHOWN)}"


def _meant(name: str, start: str, names: Names) -> Optional[str]:
    """The variable that was meant: of storage of the same kind with a similar name, or
    of the other kind with the same name."""
    variable = _variable(name)
    for other, known in names.items():
        if other != start and variable in known:
            return f"${other}{variable}"
    meant = _similar(variable, names, names[start])
    return None if meant is None else f"${start}{meant}"


def _similar(name: str, names: Names, known: Collection[str]) -> Optional[str]:
    """The known name that is similar, or that of the only storage of the job."""
    if known and sum(map(len, names.values())) == 1:
        return next(iter(known))
    return closest(name, known)


def _variable(name: str) -> str:
    return name.replace("-", "_")
