# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The named formats of a subcommand, and the files that may have more of them.

As ``flux jobs`` does, a subcommand looks for files ``flux-dws.{toml,yaml,json}`` below
``$XDG_CONFIG_DIRS/flux`` (by default ``/etc/xdg/flux``) and below
``$XDG_CONFIG_HOME/flux`` (by default ``~/.config/flux``). The later file wins::

    [list.formats.mine]
    description = "my jobs"
    format = "{id.f58:>12} {state:<8} {waits}"
"""

from __future__ import annotations

import json
import os
from importlib import import_module
from pathlib import Path
from typing import Any, Callable, Iterator, Mapping

from flux_k8s.command import CommandError
from flux_k8s.errors import show
from flux_k8s.text import printable, quoted

Formats = Mapping[str, tuple[str, str]]
"""The description of each named format, and the format."""

STEM = "flux-dws"
SUBCOMMANDS = ("list", "rabbits", "usage")
"""The subcommands with formats."""

DEFAULT = "default"
HELP = "help"
GET_CONFIG = "get-config="

_TOML = ("tomllib", "tomli", "flux.utils.tomli")
"""Where a parser of TOML may be: Python has its own since 3.11, and Flux a copy."""


def format_text(subcommand: str, name: str, builtin: Formats) -> str:
    """The format that ``-o NAME`` stands for.

    Raises:
        CommandError: there is no such format, or a configuration file is wrong.
    """
    if "{" in name:
        return name
    if name == DEFAULT:
        name = os.environ.get(f"FLUX_DWS_{subcommand.upper()}_FORMAT_DEFAULT", name)
        if "{" in name:
            return name
    formats = {**builtin, **configured(subcommand, builtin)}
    if name not in formats:
        known = ", ".join(sorted(formats))
        raise CommandError(
            f"--format: No such format {printable(name)}, expected one of {known}, or"
            " fields in braces as in '{id.f58} {state}'"
        )
    return formats[name][1]


def answer(subcommand: str, name: str, builtin: Formats) -> str:
    """The output of ``-o help`` or ``-o get-config=NAME``; empty for any other name.

    Raises:
        CommandError: there is no such format, or a configuration file is wrong.
    """
    if name != HELP and not name.startswith(GET_CONFIG):
        return ""
    formats = {**builtin, **configured(subcommand, builtin)}
    if name == HELP:
        lines = [
            f"  {printable(key):<12} {printable(description)}".rstrip()
            for key, (description, _) in formats.items()
        ]
        return "\n".join(
            ["", f"Configured flux dws {subcommand} output formats:", "", *lines]
        )
    wanted = name[len(GET_CONFIG) :]
    if wanted not in formats:
        raise CommandError(f"--format: No such format {printable(wanted)}")
    description, text = formats[wanted]
    return (
        f"[{subcommand}.formats.{wanted}]\n"
        f"description = {json.dumps(description)}\nformat = {json.dumps(text)}"
    )


def configured(subcommand: str, builtin: Formats) -> Formats:
    """The formats of the configuration files.

    Raises:
        CommandError: a file cannot be read, or is wrong.
    """
    found: dict[str, tuple[str, str]] = {}
    for path in files():
        for table, content in _table(str(path), load(path)).items():
            if table not in SUBCOMMANDS:
                raise CommandError(f"{path}: invalid key {printable(table)}")
            for key, formats in _table(f"{path}: {table}", content).items():
                if key != "formats":
                    raise CommandError(f"{path}: invalid key {table}.{printable(key)}")
                named = _named(f"{path}: {table}.formats", formats)
                if table == subcommand:
                    _refuse_builtin(path, named, builtin)
                    found.update(named)
    return found


def _refuse_builtin(path: Path, named: Formats, builtin: Formats) -> None:
    for name in named:
        if name in builtin:
            raise CommandError(
                f"{path}: override of builtin format {quoted(name)} not permitted"
            )


def files() -> Iterator[Path]:
    """The configuration files, the one that wins last."""
    own = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    others = (os.environ.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(":")
    for directory in reversed([own, *others]):
        found = Path(directory, "flux").glob(f"{STEM}.*")
        yield from sorted(path for path in found if path.suffix in LOADERS)


def load(path: Path) -> Any:
    """The contents of a configuration file.

    Raises:
        CommandError: it is not in its format.
    """
    data = path.read_bytes()
    try:
        return LOADERS[path.suffix](data.decode("utf-8"))
    except CommandError:
        raise
    except Exception as error:  # of three parsers, one of which comes from Flux
        raise CommandError(f"{path}: {error}") from None


def _load_toml(text: str) -> Any:
    for name in _TOML:
        try:
            return import_module(name).loads(text)
        except ModuleNotFoundError:
            continue
    raise CommandError("this Python has no parser for TOML: use flux-dws.json")


def _load_yaml(text: str) -> Any:
    return import_module("yaml").safe_load(text)


LOADERS: Mapping[str, Callable[[str], Any]] = {
    ".toml": _load_toml,
    ".yaml": _load_yaml,
    ".json": json.loads,
}


def _table(place: str, content: Any) -> dict[str, Any]:
    if not isinstance(content, dict):
        raise CommandError(f"{place} must be a mapping, and is {show(content)}")
    return {str(key): value for key, value in content.items()}


def _named(place: str, formats: Any) -> dict[str, tuple[str, str]]:
    found = {}
    for name, entry in _table(place, formats).items():
        place_of_one = f"{place}.{printable(name)}"
        content = _table(place_of_one, entry)
        if not isinstance(content.get("format"), str):
            raise CommandError(f"{place_of_one}: required key 'format' missing")
        found[name] = (str(content.get("description", "")), content["format"])
    return found
