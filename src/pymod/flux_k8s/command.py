# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The common part of the commands in ``src/cmd``: arguments, files, and errors.

A command writes each error on one line of standard error, as Flux's own commands do.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import IO, Any, Callable

from flux_k8s.errors import DWSError
from flux_k8s.objects import mapping
from flux_k8s.objects.mapping import RabbitMapping
from flux_k8s.ports import KubeError
from flux_k8s.text import printable

STDIN = "-"


class CommandError(DWSError):
    """The command cannot do its work. The message has the reason."""


def parser(name: str, description: str) -> argparse.ArgumentParser:
    """A parser for ``flux NAME``. Like the parsers of Flux's own commands, it refuses
    abbreviated options."""
    return argparse.ArgumentParser(
        prog=f"flux {name}", description=description, allow_abbrev=False
    )


def prefer_own_packages() -> None:
    """Have Python find the packages beside this one before those of the system.

    Flux's Python finds ``flux_k8s`` by a link, but not the packages that it needs:
    ``kubernetes``, and a ``urllib3`` that may be newer than the system's. A command
    calls this before it imports them.
    """
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


def run(name: str, main: Callable[[], None]) -> int:
    """Run ``main`` as ``flux NAME``, and return the exit status.

    A DWSError, KubeError or OSError from ``main`` is written to standard error.
    """
    _open_streams()
    try:
        main()
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader of standard output has ended. Without this line Python would
        # write an error about it at exit.
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
    except ImportError as error:
        text = f"{sys.executable} cannot import a package: {error}"
        if error.name is not None and error.name.partition(".")[0] == "flux":
            text = f"needs Flux's own Python modules: run it as flux {name}"
        write_message(name, "ERROR", text)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _open_streams() -> None:
    """Open those standard streams that the caller has closed. Python has None for them,
    and the next file to be opened would take their place."""
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
