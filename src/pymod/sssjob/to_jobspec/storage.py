# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Storage: from Resources of a job object to ``#DW`` directives."""

from __future__ import annotations

from typing import Optional

from flux_k8s.config.table import FILE_SYSTEMS
from flux_k8s.errors import DirectiveError, show
from flux_k8s.formats.directives import UNITS, parse_attribute
from flux_k8s.json_reader import INT64_MAX
from sssjob.schema.values import in_bytes
from sssjob.terms import (
    GPU,
    STORAGE,
    STORAGE_UNIT,
    SYSTEM,
    storage_of,
)
from sssjob.to_jobspec.building import Builder
from sssjob.to_jobspec.requests import Problems, Request, Requests

DW = (*SYSTEM, "dw")

NAME = "storage{}"
"""How the storage of a Resource is called in its directive, counted from 1: a job
finds it as ``$DW_JOB_storage1``."""

_SIZES = ("GiB", "MiB", "KiB")


def add_storage(requests: Requests, builder: Builder, problems: Problems) -> None:
    """Say the directives. Where an Extension has them, the Resources have to ask for
    as much."""
    found: list[tuple[str, int]] = []
    first: Optional[Request] = None
    for request in requests.all("Resource"):
        name = request.attribute("name")
        if name == GPU:
            continue
        if name != STORAGE:
            problems.unsupported(request, f"Flux knows no resource name={show(name)}")
            continue
        storage = _storage(request, problems)
        if storage is not None:
            found.append(storage)
            first = first or request
    given = builder.extension(DW)
    if first is None:
        return
    if given is None:
        builder.assign(
            DW, [_directive(i, *one) for i, one in enumerate(found, 1)], first.path
        )
        return
    try:
        directives = parse_attribute(given.value)
    except DirectiveError as error:
        problems.wrong(given.path, str(error))
        return
    theirs = [(kind, in_bytes(gb, STORAGE_UNIT)) for kind, gb in storage_of(directives)]
    if sorted(theirs) != sorted(found):
        texts = show([directive.text for directive in directives])
        problems.wrong(
            first.path,
            f"{_texts(found)}, but {given.path} asks for {_texts(theirs)}: {texts}",
        )


def _storage(request: Request, problems: Problems) -> Optional[tuple[str, int]]:
    """The file system and the bytes that a Resource asks for; None for what is
    left out, or wrong."""
    kind = request.attribute("type")
    if kind not in FILE_SYSTEMS:
        expected = f"expected one of {', '.join(FILE_SYSTEMS)}"
        what = "no type" if kind is None else f"type={show(kind)}"
        problems.unsupported(request, f"has {what}, {expected}")
        return None
    op = request.attribute("op") or "EQ"
    if op not in ("EQ", "GE"):
        problems.unsupported(
            request, f'Flux can be told the least storage only, not op="{op}"'
        )
        return None
    try:
        size = in_bytes(float(request.value), request.attribute("units") or "")
    except ValueError as error:
        problems.unsupported(request, f"has {error}")
        return None
    if not 0 < size <= INT64_MAX:
        expected = "more than 0" if size <= 0 else "less than 2^63 bytes"
        problems.wrong(request.path, f"is {request.text}, expected {expected}")
        return None
    return kind, size


def _directive(index: int, kind: str, size: int) -> str:
    """The directive for storage of so many bytes, or a little more."""
    suffix = next((s for s in _SIZES if size % UNITS[s] == 0), _SIZES[-1])
    capacity = -(-size // UNITS[suffix])
    return (
        f"#DW jobdw type={kind} capacity={capacity}{suffix} name={NAME.format(index)}"
    )


def _texts(storage: list[tuple[str, int]]) -> str:
    return " and ".join(f"{size} bytes of {kind}" for kind, size in storage) or "none"
