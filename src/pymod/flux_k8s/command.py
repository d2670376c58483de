# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What the commands in ``src/cmd`` have in common: files, and errors.

They tell errors as Flux's own commands do, one line for each, but without one
that only a programmer can read.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import IO, Any, Callable

from flux_k8s.dws import mapping
from flux_k8s.dws.mapping import RabbitMapping
from flux_k8s.errors import DWSError
from flux_k8s.ports import KubeError
from flux_k8s.text import printable

STDIN = "-"


class CommandError(DWSError):
    """The command cannot do what it was asked to."""


def parser(name: str, description: str) -> argparse.ArgumentParser:
    """A parser for ``flux NAME``, which like Flux's takes no half options."""
    return argparse.ArgumentParser(
        prog=f"flux {name}", description=description, allow_abbrev=False
    )


def prefer_own_packages() -> None:
    """Find packages beside this one first, and not the system's.

    Flux's Python finds flux_k8s by a link, and nothing of what that needs:
    ``kubernetes``, and a ``urllib3`` that may be newer than the system's. A command
    calls this before it imports them.
    """
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


def run(name: str, main: Callable[[], None]) -> int:
    """Run ``flux NAME``; the exit status.

    ``main`` may raise a DWSError, KubeError or OSError: that is told on
    standard error.
    """
    _open_streams()
    try:
        main()
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever reads has seen enough. Python would complain at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (DWSError, KubeError) as error:
        for line in str(error).split("\n"):
            write_message(name, "ERROR", line)
        return 1
    except OSError as error:
        place = "" if error.filename is None else f"{error.filename}: "
        write_message(name, "ERROR", f"{place}{error.strerror or error}")
        return 1
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "flux":
            raise
        write_message(
            name, "ERROR", f"needs Flux's own Python modules: run it as flux {name}"
        )
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _open_streams() -> None:
    """Open what the caller has closed: Python has None for it, and a file that is
    opened later would take its place."""
    for stream, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, stream) is None:
            setattr(sys, stream, open(os.devnull, mode))


def write_message(name: str, level: str, message: str) -> None:
    """Write a line about ``flux NAME`` to standard error."""
    print(f"flux-{name}: {level}: {printable(message)}", file=sys.stderr)


def load_json(path: str) -> Any:
    """The JSON in a file, or on standard input (``STDIN``)."""
    if path == STDIN:
        return _load("standard input", sys.stdin)
    with open(path, encoding="utf-8") as file:
        return _load(path, file)


def load_mapping(path: str) -> RabbitMapping:
    """The rabbitmapping in a file."""
    return mapping.parse(load_json(path), path)


def _load(name: str, file: IO[str]) -> Any:
    try:
        return json.load(file)
    except (ValueError, RecursionError) as error:
        raise CommandError(f"{name}: is not JSON: {error}") from None
