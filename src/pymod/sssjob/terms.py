# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The words of Flux and those of the job object for the same things.

Each table is read in both directions. What has no word in the job object stands in
an ``Extension`` of type ``Flux``, whose name is the place in the jobspec, as in
``attributes.system.shell.options.verbose``, and whose text is JSON.
"""

from __future__ import annotations

import json
import re
from types import MappingProxyType
from typing import Iterable, Mapping, Sequence

from flux_k8s.formats.directives import Directive
from sssjob.schema.values import UNITS

SYSTEM = ("attributes", "system")
OPTIONS = (*SYSTEM, "shell", "options")
"""The path of the job shell's options in a jobspec (RFC 14)."""

TEXTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "Name": (*SYSTEM, "job", "name"),
        "Project": (*SYSTEM, "project"),
        "Account": (*SYSTEM, "bank"),
    }
)
"""Properties that are texts in both, and their places in the jobspec."""

STREAMS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "InputFile": (*OPTIONS, "input", "stdin"),
        "OutputFile": (*OPTIONS, "output", "stdout"),
        "ErrorFile": (*OPTIONS, "output", "stderr"),
    }
)
"""The elements for the standard streams, and their options of the job shell."""

EXTENSION_TYPE = "Flux"
"""The ``type`` of our Extensions."""

RABBITS = "rabbits"
"""The Extension that names the Rabbits of a job. It is no place in the jobspec."""

LIMITS: Mapping[str, str] = MappingProxyType(
    {
        "core": "CoreFileSize",
        "cpu": "CPUTime",
        "data": "DataSize",
        "fsize": "FileSize",
        "rss": "ResidentSetSize",
        "nproc": "Processes",
        "as": "VirtualMemory",
        "memlock": "LockedMemory",
        "nofile": "OpenFiles",
        "stack": "StackSize",
    }
)
"""Names of resource limits: those of the job shell's option ``rlimit``, in units of
setrlimit(2), and those of ResourceLimit. Seed 003 describes them all, but names
``CPUTime`` only."""

UNLIMITED = "unlimited"
"""The text of ResourceLimit where ``rlimit`` has -1."""

RULES: Mapping[str, str] = MappingProxyType({"block": "Block", "cyclic": "RoundRobin"})
"""How tasks are given to nodes: schemes of the job shell's option ``taskmap``, and
what TaskDistribution of type ``Rule`` says."""

CONDITIONS: Mapping[str, str] = MappingProxyType(
    {"afterok": "OnSuccess", "afternotok": "OnFailure", "afterany": "OnExit"}
)
"""Schemes of dependencies (RFC 26), and the ``condition`` of Dependency."""

BEGIN_TIME = "begin-time"
"""The scheme of dependencies that EligibleTime stands for."""

ELSEWHERE = re.compile(r"#|[A-Za-z][A-Za-z0-9+.-]*://")
"""The beginnings of an Executable that is no path: it is a file that comes with the
object, or is to be fetched (the specification, section 5.1)."""

STORAGE = "Storage"
GPU = "GPU"
"""Names of Resource."""

STORAGE_UNIT = "GB"
"""Of 2^30 bytes, as appendix A of the specification has it."""

_PLAIN = re.compile(r"[!#-\-/-~]+\Z")


def path_name(keys: Sequence[str]) -> str:
    """The name of a place in a jobspec: its keys, joined with dots. A key that a dot
    or another character would make ambiguous is written as a JSON string.

    >>> path_name(["attributes", "system", "a.b"])
    'attributes.system."a.b"'
    """
    return ".".join(key if _PLAIN.match(key) else json.dumps(key) for key in keys)


def path_keys(name: str) -> tuple[str, ...]:
    """The keys of a place in a jobspec, from its name.

    Raises:
        ValueError: it is no such name.
    """
    decoder = json.JSONDecoder()
    keys: list[str] = []
    at = 0
    while True:
        if name.startswith('"', at):
            key, at = decoder.raw_decode(name, at)
        else:
            end = name.find(".", at)
            end = len(name) if end < 0 else end
            key, at = name[at:end], end
            if not key:
                raise ValueError(f"{name!r} has an empty key")
        keys.append(key)
        if at == len(name):
            return tuple(keys)
        if name[at] != ".":
            raise ValueError(f"{name!r} has no dot behind {key!r}")
        at += 1


def names_variable(name: str) -> bool:
    """Whether a variable of an environment can have this name: a job with ``B=C`` set
    to ``d`` would find ``C=d`` in ``B``."""
    return name != "" and "=" not in name


def storage_of(directives: Iterable[Directive]) -> list[tuple[str, float]]:
    """The new storage that directives ask for: file system type and GB, in their
    order."""
    return [
        (directive.arguments.get("type", ""), directive.capacity / UNITS[STORAGE_UNIT])
        for directive in directives
        if directive.command in ("jobdw", "create_persistent") and directive.capacity
    ]
