# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The results of a run as JSON, in a file of ``bench/results/``.

They say of which machine they are, but neither its name nor where things are on it:
some are committed.
"""

from __future__ import annotations

import json
import os
import pathlib
import platform
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any, Optional, Union

from flux_k8s.errors import BadObject
from flux_k8s.json_reader import Reader, is_number
from rabbitsim import processor
from rabbitsim.cli.realflux import find_flux

from .rows import STATISTICS, Floor, Row

TOP = pathlib.Path(__file__).parents[2]
FOLDER = TOP / "bench" / "results"
FORMAT = 1
"""Readers refuse any other."""

Facts = Mapping[str, Union[str, int, bool, None]]


class NoResults(Exception):
    """There are no results; the message says where."""


@dataclass(frozen=True)
class Results:
    """What one run has measured.

    Attributes:
        time: when it began, as in ``2026-01-31T23:59:59Z``.
        quick: it had fewer jobs and repetitions.
        machine, versions: as :func:`machine` and :func:`versions` return them.
        used_by_others: the share of the processors that others used during each
            measurement.
        failed: the measurements that failed.
    """

    time: str
    quick: bool
    machine: Facts
    versions: Facts
    used_by_others: dict[str, float] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)

    @property
    def commit(self) -> str:
        """The full ID of the commit, or "unknown"."""
        return str(self.versions.get("commit") or "unknown")

    @property
    def dirty(self) -> bool:
        """The tree was not, or may not have been, that of the commit."""
        return self.versions.get("dirty") is not False

    @property
    def name(self) -> str:
        """What its files are called, unless they are given names."""
        when = self.time.translate({ord("T"): "-", ord(":"): None, ord("Z"): None})
        return f"{when}-{self.commit[:9]}{'-dirty' if self.dirty else ''}"


def begin(quick: bool) -> Results:
    """Results that are still without rows, of this machine and tree, as of now."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return Results(now, quick, machine(), versions())


def machine() -> Facts:
    """What the machine is, as far as it changes results. Memory is in MiB."""
    system = os.uname()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": processor.model(),
        "cores": os.cpu_count(),
        "memory": memory >> 20,
        "kernel": f"{system.sysname} {system.release} {system.machine}",
    }


def versions() -> Facts:
    """The versions of what is measured; None for what is not there, or not known.
    ``dirty``: files differ from those of the commit."""
    flux = find_flux()
    changes = _git("status", "--porcelain", "--untracked-files=no")
    return {
        "python": platform.python_version(),
        "flux-core": None if flux is None else flux.version,
        "flux-sched": None if flux is None else _fluxion(pathlib.Path(flux.flux)),
        "flux-dws": metadata.version("flux-dws"),
        "kubernetes": metadata.version("kubernetes"),
        "commit": _git("rev-parse", "HEAD"),
        "dirty": None if changes is None else changes != "",
    }


def _fluxion(flux: pathlib.Path) -> Optional[str]:
    """The version of flux-sched in the prefix of this ``flux``. No command of it says
    so, but one of its libraries has it in its name."""
    prefix = flux.resolve().parents[1]
    for pattern in ("lib*", "lib/*"):
        for path in prefix.glob(f"{pattern}/libfluxion-data.so.*.*.*"):
            return path.name.partition(".so.")[2]
    return None


def _git(*words: str) -> Optional[str]:
    """The answer of git about this tree, or None if it has none."""
    try:
        done = subprocess.run(
            ["git", "-C", str(TOP), *words], capture_output=True, text=True
        )
    except FileNotFoundError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def write(path: pathlib.Path, results: Results) -> None:
    """Write results, each row on one line."""
    head = {
        "format": FORMAT,
        "time": results.time,
        "quick": results.quick,
        "machine": results.machine,
        "versions": results.versions,
        "used_by_others": {
            name: round(share, 3) for name, share in results.used_by_others.items()
        },
        "failed": results.failed,
    }
    text = json.dumps(head, indent=1, ensure_ascii=False)
    rows = ",\n".join(
        f"  {json.dumps(_row_as_json(row), ensure_ascii=False)}" for row in results.rows
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'{text[:-2]},\n "rows": [\n{rows}\n ]\n}}\n', encoding="utf-8")


def _row_as_json(row: Row) -> dict[str, Any]:
    """``value`` and ``met`` are for people: they follow from the others."""
    return {
        "section": row.section,
        "measurement": row.measurement,
        "what": row.what,
        "value": _rounded(row.value),
        "unit": row.unit,
        "target": row.target,
        "met": row.met,
        "more_is_better": row.more_is_better,
        "statistic": row.statistic,
        "values": [_rounded(value) for value in row.values],
        "note": row.note,
        "floor": row.floor and {"value": _rounded(row.floor.value), "of": row.floor.of},
    }


def _rounded(value: float) -> float:
    """As precise as a measurement may be."""
    return float(f"{value:.6g}")


def read(path: pathlib.Path) -> Results:
    """Read what :func:`write` wrote.

    Raises:
        OSError: the file cannot be read.
        NoResults: it holds none.
    """
    try:
        return _results(Reader(path.name, json.loads(path.read_text("utf-8"))))
    except ValueError:  # or no UTF-8
        raise NoResults(f"{path.name} is no JSON") from None
    except BadObject as error:
        raise NoResults(str(error)) from None


def _results(file: Reader) -> Results:
    """Read the contents of a file.

    Raises:
        BadObject: they have another form.
    """
    file.integer("format", FORMAT, FORMAT)
    rows = [_row(row) for row in file.objects("rows")]
    if len({row.key for row in rows}) < len(rows):
        raise file.bad("rows", "rows of which no two have the same name")
    used = file.object("used_by_others")
    return Results(
        time=file.string("time"),
        quick=file.boolean("quick"),
        machine=file.object("machine").value,
        versions=file.object("versions").value,
        used_by_others={name: used.number(name) for name in used.value},
        failed=list(file.strings("failed")),
        rows=rows,
    )


def _row(row: Reader) -> Row:
    values = row.list("values")
    if not values or not all(map(is_number, values)):
        raise row.bad("values", "an array of numbers that is not empty")
    floor = row.optional_object("floor")
    return Row(
        section=row.string("section"),
        measurement=row.string("measurement"),
        what=row.string("what"),
        values=list(values),
        unit=row.text("unit"),
        target=row.optional_number("target"),
        note=row.text("note"),
        statistic=row.string("statistic", STATISTICS),
        more_is_better=row.boolean("more_is_better"),
        floor=None if floor is None else Floor(floor.number("value"), floor.text("of")),
    )


def find(word: str, folder: pathlib.Path = FOLDER) -> list[Results]:
    """Read the results that are meant by a file, the name of one in the folder, or a
    commit: all full results in the folder that were measured in its clean tree.

    Raises:
        OSError: the file cannot be read.
        NoResults: it holds none, or there are none of this commit.
    """
    for path in pathlib.Path(word), folder / word, folder / f"{word}.json":
        if path.is_file():
            return [read(path)]
    commit = _git("rev-parse", "--verify", "--quiet", f"{word}^{{commit}}") or word
    found = []
    for path in sorted(folder.glob("*.json")):
        try:
            results = read(path)
        except NoResults:
            continue  # nobody has named this one
        if results.commit.startswith(commit) and not (results.dirty or results.quick):
            found.append(results)
    if not found:
        raise NoResults(
            f"{word} is no file, and no commit that bench/results has full results of"
        )
    return found
