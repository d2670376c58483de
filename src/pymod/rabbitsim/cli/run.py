# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""``rabbitsim run``: one batch script, from submit to inactive."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import shutil
import tempfile
from dataclasses import dataclass
from typing import Iterator, Optional, Sequence

from flux_k8s.errors import DWSError
from rabbitsim.cli.errors import UsageError
from rabbitsim.cli.outcome import Outcome
from rabbitsim.cli.realflux import (
    MAX_NODES,
    Installation,
    RealSession,
    find_flux,
)
from rabbitsim.cli.report import Report
from rabbitsim.cli.session import SimSession
from rabbitsim.dws import Files, Options, Topology
from rabbitsim.flux.events import Json
from rabbitsim.flux.options import DEFAULT_OUTPUT, batch_jobspec
from rabbitsim.flux.script import ScriptError
from rabbitsim.flux.tasks import shell_options
from rabbitsim.system import LocalKube


@dataclass(frozen=True)
class Batch:
    """A script to be run, and the system to run it on.

    Attributes:
        path: the script, as the user calls it.
        flux: which Flux: ``auto``, ``real`` or ``sim``.
        options: of the stand-in for DWS.
    """

    path: pathlib.Path
    args: Sequence[str]
    nodes: int
    rabbits: int
    seed: int
    flux: str
    scratch: pathlib.Path
    options: Options


def run_command(args: argparse.Namespace) -> int:
    """``rabbitsim run SCRIPT``; the job's exit status."""
    path = pathlib.Path(args.script)
    _read_script(path)
    lustre = args.lustre or path.parent / "lustre"
    report = Report(args.verbose)
    with (
        eventlog_writer(args.eventlog) as write,
        scratch_directory(args.scratch) as scratch,
    ):
        if args.lustre is not None or lustre.is_dir():
            _copy_tree(lustre, scratch / "lustre")
        batch = Batch(
            path=path,
            args=args.args,
            nodes=args.nodes,
            rabbits=args.rabbits,
            seed=args.seed,
            flux=args.flux,
            scratch=scratch,
            options=Options(),
        )
        before = files_below(scratch / "lustre")
        outcome = run_batch(batch, report)
        write(outcome)
        came = changed_files(before, files_below(scratch / "lustre"))
        if came:
            report.heading("copied out")
        for name in came:
            report.line(f"  /lustre/{name}")
        if came and args.scratch is None:
            report.line("  (gone now; --scratch DIR keeps them)")
    return outcome.status


def run_batch(batch: Batch, report: Report) -> Outcome:
    """Start a system, run the script on it, take the system down again."""
    try:
        topology = Topology.regular(batch.nodes, batch.rabbits)
    except ValueError as error:
        raise UsageError(str(error)) from None
    installation = _choose_flux(batch, report)
    jobspec, urgency = _jobspec(batch) if installation is None else ({}, 0)
    kube = LocalKube(
        topology,
        options=batch.options,
        files=Files(batch.scratch),
        seed=batch.seed,
        kubeconfig=batch.scratch / "kubeconfig",
        log=lambda line: report.line(f"controllers: {line}"),
    )
    try:
        if installation is not None:
            real = RealSession(installation, topology, kube, batch.scratch, report)
            with contextlib.closing(real):
                _introduce(batch, real.name, kube, report)
                return real.run(batch.path, batch.args)
        sim = SimSession(topology, kube, batch.scratch, batch.seed, report)
        with contextlib.closing(sim):
            _introduce(batch, sim.name, kube, report)
            return sim.run(jobspec, urgency)
    except DWSError as error:
        raise UsageError(str(error)) from None
    finally:
        kube.stop()


def _choose_flux(batch: Batch, report: Report) -> Optional[Installation]:
    """The real Flux to use, or None for the stand-in."""
    if batch.flux == "sim":
        return None
    installation = find_flux()
    if installation is None:
        if batch.flux == "real":
            raise UsageError("--flux=real: there is no flux on PATH")
        return None
    problem = installation.missing()
    if problem is None and batch.nodes > MAX_NODES:
        problem = f"{batch.nodes} nodes are too many brokers for one machine"
    if problem is None:
        return installation
    if batch.flux == "real":
        raise UsageError(f"--flux=real: {installation.flux}: {problem}")
    report.line(f"not using {installation.flux}: {problem}")
    return None


def _introduce(batch: Batch, flux: str, kube: LocalKube, report: Report) -> None:
    report.heading(f"rabbitsim: {batch.path}")
    report.fact("Flux", flux)
    report.fact("Kubernetes", f"stand-in Kubernetes at {kube.server.url}")
    report.fact(
        "storage",
        f"stand-in DWS and NNF, {batch.rabbits} Rabbits with {batch.nodes} nodes",
    )


def _jobspec(batch: Batch) -> tuple[Json, int]:
    """The jobspec for the stand-in, and the urgency."""
    try:
        jobspec, options = batch_jobspec(
            _read_script(batch.path),
            str(batch.path),
            args=batch.args,
            cwd=os.getcwd(),
            environment=dict(os.environ),
        )
    except ScriptError as error:
        raise UsageError(str(error)) from None
    _to_terminal(jobspec)
    return jobspec, options.urgency


def files_below(folder: pathlib.Path) -> dict[str, tuple[int, int]]:
    """All files below a folder, with what tells whether one was changed."""
    if not folder.is_dir():
        return {}
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            info = path.stat()
            name = path.relative_to(folder).as_posix()
            found[name] = (info.st_size, info.st_ctime_ns)
    return found


def changed_files(
    before: dict[str, tuple[int, int]], after: dict[str, tuple[int, int]]
) -> list[str]:
    return [name for name in after if after[name] != before.get(name)]


def _to_terminal(jobspec: Json) -> None:
    """Show the job's output, unless the script names a file for it. (``flux
    batch`` has a default file: whoever waits for the job wants to see it.)"""
    output = shell_options(jobspec).get("output", {})
    if output.get("stdout", {}).get("path") == DEFAULT_OUTPUT:
        del output["stdout"]


def _read_script(path: pathlib.Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path}: is not a script: it is not UTF-8 text") from None


def _copy_tree(source: pathlib.Path, target: pathlib.Path) -> None:
    try:
        shutil.copytree(source, target, dirs_exist_ok=True)
    except NotADirectoryError:
        raise UsageError(f"{source}: is not a directory") from None
    except shutil.Error as error:
        raise UsageError(f"{source}: cannot be copied: {error.args[0][0][2]}") from None
    except OSError as error:
        raise UsageError(f"{error.filename}: {error.strerror}") from None


@contextlib.contextmanager
def scratch_directory(wanted: Optional[pathlib.Path]) -> Iterator[pathlib.Path]:
    """The scratch directory: the one that was asked for, or one that is
    removed at the end."""
    if wanted is None:
        with tempfile.TemporaryDirectory(prefix="rabbitsim-") as path:
            yield pathlib.Path(path)
        return
    try:
        wanted.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--scratch {wanted}: {error.strerror}") from None
    yield wanted.resolve()


class EventlogWriter:
    """Writes a job's eventlog as a JSON array of RFC 18 events."""

    def __init__(self, path: Optional[pathlib.Path]) -> None:
        self._file = None if path is None else open(path, "w", encoding="utf-8")

    def __call__(self, outcome: Outcome) -> None:
        if self._file is not None:
            json.dump(outcome.events, self._file, indent=1)
            self._file.write("\n")

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


@contextlib.contextmanager
def eventlog_writer(path: Optional[pathlib.Path]) -> Iterator[EventlogWriter]:
    """Opened before the job runs: a bad path is told before, not after."""
    try:
        writer = EventlogWriter(path)
    except OSError as error:
        raise UsageError(f"--eventlog {path}: {error.strerror}") from None
    try:
        yield writer
    finally:
        writer.close()
