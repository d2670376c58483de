# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The files of a job's standard streams: from a job object to options of the job
shell.

What the shell does by itself is not said: standard error goes where standard output
goes, and Flux keeps what goes to no file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable, Mapping, Optional

from sssjob.schema.model import items_of
from sssjob.terms import OPTIONS, STREAMS
from sssjob.to_jobspec.building import Builder, Keys
from sssjob.to_jobspec.requests import Problems, Request, Requests

_OUTPUT = (*OPTIONS, "output")

_OUTPUTS = ("OutputFile", "ErrorFile")
_NOWHERE = "/dev/null"


@dataclass(frozen=True)
class _Stream:
    """A standard stream.

    Attributes:
        request: its element.
        flags: the items of ``redirectList``.
        file: the path of its file; None for none of its own.
    """

    request: Request
    keys: Keys
    flags: frozenset[str]
    file: Optional[str]

    def add_to(self, builder: Builder, file: Optional[str]) -> None:
        """Say the file, if there is one, and whether there is a buffer before it."""
        if file is not None:
            builder.assign((*self.keys, "type"), "file", self.request.path)
            builder.assign((*self.keys, "path"), file, self.request.path)
        if "Flush" in self.flags:
            builder.assign((*self.keys, "buffer", "type"), "none", self.request.path)


def add_files(
    requests: Requests,
    expand: Callable[[str], str],
    builder: Builder,
    problems: Problems,
) -> None:
    """Say the files of standard input, output and error.

    Args:
        expand: gives the path that Flux gets for one in the object.
    """
    streams: dict[str, _Stream] = {}
    for name, keys in STREAMS.items():
        request = requests.one(name, problems)
        stream = None if request is None else _stream(request, keys, expand, problems)
        if stream is not None:
            streams[name] = stream
    output, error = streams.get("OutputFile"), streams.get("ErrorFile")
    if output and error and "Merge" in output.flags & error.flags:
        problem = f"is merged into {output.request.path}, which is merged into it"
        problems.wrong(error.request.path, problem)
    files = {name: streams[name] for name in _OUTPUTS if name in streams}
    for name in _not_appended(files, builder, problems):
        del streams[name]
    for name, stream in streams.items():
        file = stream.file
        if name == "OutputFile" and "Merge" in stream.flags and error is not None:
            file = error.file
        stream.add_to(builder, file)


def _stream(
    request: Request, keys: Keys, expand: Callable[[str], str], problems: Problems
) -> Optional[_Stream]:
    flags = frozenset(items_of(request.attribute("redirectList") or "")) - {""}
    if "Keep" in flags:
        problems.unsupported(
            request, "Flux writes files where their names say, and keeps none back"
        )
        return None
    elsewhere = sorted(flags & {"Close", "Merge"})
    named = bool(request.text.strip())
    if len(elsewhere) + named > 1:
        what = [*elsewhere, *(["the name of a file"] if named else [])]
        problems.wrong(request.path, f"has {' and '.join(what)}, expected one of them")
    file = expand(request.text) if named else None
    return _Stream(request, keys, flags, _NOWHERE if "Close" in flags else file)


def _not_appended(
    streams: Mapping[str, _Stream], builder: Builder, problems: Problems
) -> list[str]:
    """Say whether output is appended, which goes for all files of a job. The streams
    of which that cannot be said."""
    files = {name: stream for name, stream in streams.items() if stream.file}
    appended = [name for name, stream in files.items() if "Append" in stream.flags]
    others = [
        stream
        for name, stream in files.items()
        if name not in appended and stream.file != _NOWHERE
    ]
    if not appended:
        return []
    first = files[appended[0]].request
    if others:
        problem = "Flux appends to all files of a job or to none, but"
        problems.unsupported(first, f"{problem} {others[0].request.path} has no Append")
        return appended
    builder.assign((*_OUTPUT, "mode"), "append", first.path)
    return []
