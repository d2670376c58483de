# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The directives of a Workflow, which DWS has accepted."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Iterable, Mapping, NamedTuple, Optional, Sequence

MOUNTING = ("jobdw", "persistentdw")
"""The commands of directives whose storage is mounted on compute nodes."""

COPYING = ("copy_in", "copy_out")
CREATING = ("jobdw", "create_persistent")
"""The commands of directives that have the type of a file system."""

PARSED = 512
"""The most Workflows whose directives are kept as they were parsed: they are the same
in all versions of a Workflow."""


class WorkflowDirectives(NamedTuple):
    """The directives of a Workflow.

    Attributes:
        commands: by the number of the directive; empty where it is missing.
        copies_out: the numbers of copy_out directives, each with source and
            destination.
        storage: the attributes of a view that follow from the directives alone.
    """

    commands: Mapping[Optional[int], str]
    copies_out: tuple[tuple[int, str], ...]
    storage: Mapping[str, Any]


@lru_cache(maxsize=PARSED)
def read_directives(texts: tuple[str, ...]) -> WorkflowDirectives:
    """Read directives, which DWS has accepted."""
    directives = [_directive(text) for text in texts]
    commands = [command for command, _ in directives]
    runs_containers = any(runs_container(*directive) for directive in directives)
    storage = {
        "directives": texts,
        "types": file_system_types(directives),
        "mounts": sum(command in MOUNTING for command in commands),
        "persistent_storage": _names(directives, "persistentdw"),
        "made_to_last": _names(directives, "create_persistent"),
        "moves_data": runs_containers or any(c in COPYING for c in commands),
        "runs_containers": runs_containers,
        "copies_out": "copy_out" in commands,
    }
    copies_out = tuple(
        (index, f"{arguments.get('source')} to {arguments.get('destination')}")
        for index, (command, arguments) in enumerate(directives)
        if command == "copy_out"
    )
    return WorkflowDirectives(dict(enumerate(commands)), copies_out, storage)


def _names(
    directives: Sequence[tuple[str, Mapping[str, str]]], command: str
) -> tuple[str, ...]:
    return tuple(given.get("name", "") for each, given in directives if each == command)


def _directive(text: str) -> tuple[str, dict[str, str]]:
    """The command (empty where it is missing) and the arguments of a directive."""
    words = text.split()
    pairs = (word.partition("=") for word in words[2:])
    return "".join(words[1:2]), {key: value for key, _, value in pairs}


def runs_container(command: str, arguments: Mapping[str, str]) -> bool:
    """Whether a directive runs a container. A daemon that it requires is one as well,
    and may move data."""
    return command == "container" or "requires" in arguments


def file_system_types(
    directives: Iterable[tuple[str, Mapping[str, str]]],
) -> tuple[str, ...]:
    """The types of the file systems that directives make, each type once.

    Args:
        directives: the command and the arguments of each.
    """
    types = (
        arguments.get("type", "")
        for command, arguments in directives
        if command in CREATING
    )
    return tuple(dict.fromkeys(filter(None, types)))
