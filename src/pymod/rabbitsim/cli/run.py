# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""``rabbitsim run``: one batch script, from submit to inactive."""

from __future__ import annotations

import argparse
import contextlib
import enum
import os
import pathlib
import shutil
import tempfile
from dataclasses import dataclass
from typing import Iterator, Optional, Sequence

from flux_k8s.errors import DWSError
from flux_k8s.ports import Json
from rabbitsim.cli.errors import UsageError
from rabbitsim.cli.outcome import Outcome
from rabbitsim.cli.realflux import (
    MAX_NODES,
    Installation,
    RealSession,
    find_flux,
)
from rabbitsim.cli.report import Report
from rabbitsim.cli.save import prepare, save
from rabbitsim.cli.session import SimSession
from rabbitsim.clusters import AssetsKube, ClusterKube, SystemKube
from rabbitsim.dws import Files, Options, Topology
from rabbitsim.flux.events import encode_entries
from rabbitsim.flux.options import DEFAULT_OUTPUT, batch_jobspec
from rabbitsim.flux.script import ScriptError
from rabbitsim.flux.tasks import shell_options
from rabbitsim.kube.assets import PROGRAMS, VARIABLE
from rabbitsim.system import LocalKube, hosts_of

NODES, RABBITS = 4, 2
"""The hardware, unless the command line or a cluster says otherwise."""


class WhichKube(enum.Enum):
    """The kind of Kubernetes."""

    SIM = "rabbitsim.kube"
    ASSETS = "the API server of KUBEBUILDER_ASSETS"
    CLUSTER = "the cluster of KUBECONFIG"


@dataclass(frozen=True)
class Batch:
    """A script to be run, and the system to run it on.

    Attributes:
        path: the script, as the user calls it.
        nodes: compute nodes; None for :data:`NODES`, or what the cluster has.
        rabbits: Rabbits; None for :data:`RABBITS`, or what the cluster has.
        flux: which Flux: ``auto``, ``real`` or ``sim``.
        kube: which Kubernetes.
        options: of the stand-in for DWS.
        save: keep what makes a job object.
    """

    path: pathlib.Path
    args: Sequence[str]
    nodes: Optional[int]
    rabbits: Optional[int]
    seed: int
    flux: str
    kube: WhichKube
    scratch: pathlib.Path
    options: Options
    save: bool = False


def run_command(args: argparse.Namespace) -> int:
    """``rabbitsim run SCRIPT``; the job's exit status."""
    path = pathlib.Path(args.script)
    _read_script(path)
    kube = choose_kube(args)
    report = Report(args.verbose)
    prepare(args.save)
    with (
        eventlog_writer(args.eventlog) as write,
        scratch_directory(args.scratch) as scratch,
    ):
        if kube is not WhichKube.CLUSTER:
            _seed_lustre(args.lustre, path, scratch)
        batch = Batch(
            path=path,
            args=args.args,
            nodes=args.nodes,
            rabbits=args.rabbits,
            seed=args.seed,
            flux=args.flux,
            kube=kube,
            scratch=scratch,
            options=Options(),
            save=args.save is not None,
        )
        before = files_below(scratch / "lustre")
        outcome = run_batch(batch, report)
        write(outcome)
        save(args.save, outcome)
        came = changed_files(before, files_below(scratch / "lustre"))
        if came:
            report.heading("copied out")
        for name in came:
            report.line(f"  /lustre/{name}")
        if came and args.scratch is None:
            report.line("  (gone now; --scratch DIR keeps them)")
    return outcome.status


def choose_kube(args: argparse.Namespace) -> WhichKube:
    """The Kubernetes that the command line and the environment ask for."""
    assets = bool(os.environ.get(VARIABLE))
    if args.kube == "sim" or (args.kube == "auto" and not assets):
        return WhichKube.SIM
    if args.kube == "auto" or not os.environ.get("KUBECONFIG"):
        if not assets:
            raise UsageError(
                "--kube=real: set KUBECONFIG to the kubeconfig of a cluster with DWS"
                f" and NNF, or {VARIABLE} to a folder with {' and '.join(PROGRAMS)}"
            )
        return WhichKube.ASSETS
    for option in ("nodes", "rabbits", "lustre"):
        if getattr(args, option, None) is not None:
            raise UsageError(
                f"--{option}: {WhichKube.CLUSTER.value} has its own;"
                f" leave --{option} out with --kube=real"
            )
    return WhichKube.CLUSTER


def run_batch(batch: Batch, report: Report) -> Outcome:
    """Start a system, run the script on it, take the system down again."""
    with contextlib.ExitStack() as stack:
        try:
            return _run_batch(batch, report, stack)
        except DWSError as error:
            raise UsageError(str(error)) from None


def _run_batch(batch: Batch, report: Report, stack: contextlib.ExitStack) -> Outcome:
    kube: SystemKube
    if batch.kube is WhichKube.CLUSTER:
        kube = ClusterKube()
        stack.callback(kube.stop)
        topology = kube.topology
    else:
        topology = _topology(batch)
    installation = _choose_flux(batch, len(hosts_of(topology)), report)
    jobspec, urgency = _jobspec(batch) if installation is None else ({}, 0)
    if batch.kube is not WhichKube.CLUSTER:
        kube = _start_kube(batch, topology, report)
        stack.callback(kube.stop)
    if installation is not None:
        real = RealSession(installation, kube, batch.scratch, report, batch.save)
        stack.callback(real.close)
        _introduce(batch, real.name, kube, report)
        return real.run(batch.path, batch.args)
    sim = SimSession(kube, batch.scratch, batch.seed, report, batch.save)
    stack.callback(sim.close)
    _introduce(batch, sim.name, kube, report)
    return sim.run(jobspec, urgency)


def _topology(batch: Batch) -> Topology:
    try:
        return Topology.regular(batch.nodes or NODES, batch.rabbits or RABBITS)
    except ValueError as error:
        raise UsageError(str(error)) from None


def _start_kube(batch: Batch, topology: Topology, report: Report) -> SystemKube:
    """Start a Kubernetes of our own."""
    options, files = batch.options, Files(batch.scratch)

    def log(line: str) -> None:
        report.line(f"controllers: {line}")

    if batch.kube is WhichKube.ASSETS:
        return AssetsKube(
            topology,
            options=options,
            files=files,
            seed=batch.seed,
            scratch=batch.scratch,
            log=log,
        )
    return LocalKube(
        topology,
        options=options,
        files=files,
        seed=batch.seed,
        kubeconfig=batch.scratch / "kubeconfig",
        log=log,
    )


def _choose_flux(batch: Batch, nodes: int, report: Report) -> Optional[Installation]:
    """The real Flux to use, or None for the stand-in."""
    if batch.flux == "sim":
        return None
    installation = find_flux()
    if installation is None:
        if batch.flux == "real":
            raise UsageError("--flux=real: there is no flux on PATH")
        return None
    problem = installation.missing()
    if problem is None and nodes > MAX_NODES:
        problem = f"{nodes} nodes are too many brokers for one machine"
    if problem is None:
        return installation
    if batch.flux == "real":
        raise UsageError(f"--flux=real: {installation.flux}: {problem}")
    report.line(f"not using {installation.flux}: {problem}")
    return None


def _introduce(batch: Batch, flux: str, kube: SystemKube, report: Report) -> None:
    rabbits, nodes = len(kube.topology.rabbits), len(hosts_of(kube.topology))
    report.heading(f"rabbitsim: {batch.path}")
    report.fact("Flux", flux)
    report.fact("Kubernetes", kube.name)
    report.fact("storage", f"{kube.storage}, {rabbits} Rabbits with {nodes} nodes")


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


def _seed_lustre(
    wanted: Optional[pathlib.Path], script: pathlib.Path, scratch: pathlib.Path
) -> None:
    """Give ``/lustre`` what it has at first."""
    source = wanted or script.parent / "lustre"
    if wanted is not None or source.is_dir():
        _copy_tree(source, scratch / "lustre")


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
    """Writes a job's eventlog as Flux stores it (RFC 18)."""

    def __init__(self, path: Optional[pathlib.Path]) -> None:
        self._file = None if path is None else open(path, "w", encoding="utf-8")

    def __call__(self, outcome: Outcome) -> None:
        if self._file is not None:
            self._file.write(encode_entries(outcome.events))

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
