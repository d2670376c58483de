# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""``rabbitsim demo``: a job that brings data in, works on it, and takes the
result out, with everything that can be seen of it."""

from __future__ import annotations

import argparse
import os
import pathlib

from rabbitsim.cli.outcome import Outcome
from rabbitsim.cli.report import Report
from rabbitsim.cli.run import (
    Batch,
    WhichKube,
    choose_kube,
    eventlog_writer,
    run_batch,
    scratch_directory,
)
from rabbitsim.dws import Options, recorded

SCRIPT = """\
#!/bin/sh
#FLUX: -N2 -n2 -t5m
#FLUX: -S dw=\"\"\"
#FLUX: #DW jobdw type=xfs capacity=10GiB name=demo
#FLUX: #DW copy_in source=/lustre/carrots.txt destination=$DW_JOB_demo/
#FLUX: #DW copy_out source=$DW_JOB_demo/total.txt destination=/lustre/
#FLUX: \"\"\"
echo "hello from job $FLUX_ENCLOSING_ID, storage at $DW_JOB_demo"
awk '{ sum += $2 } END { print "carrots:", sum }' \\
    "$DW_JOB_demo/carrots.txt" > "$DW_JOB_demo/total.txt"
cat "$DW_JOB_demo/total.txt"
"""

PLAIN_SCRIPT = """\
#!/bin/sh
#FLUX: -N2 -n2 -t5m
#FLUX: -S dw="#DW jobdw type=xfs capacity=10GiB name=demo"
echo "hello from job $FLUX_ENCLOSING_ID, storage at $DW_JOB_demo"
"""
"""For a cluster, whose storage is not on this machine."""

EXPLANATION = (
    "A Rabbit is a box of flash storage that a few compute nodes beside it reach by",
    "PCIe. Here one is stood in for: the seconds of its work are the stand-in's, and",
    "real storage takes longer.",
)

INPUT = "monday 12\ntuesday 7\nwednesday 23\n"


def demo_command(args: argparse.Namespace) -> int:
    """``rabbitsim demo``: 0 when all went as it should."""
    kube = choose_kube(args)
    report = Report(args.verbose)
    with (
        eventlog_writer(args.eventlog) as write,
        scratch_directory(args.scratch) as scratch,
    ):
        batch = _batch(args, kube, scratch)
        lustre = scratch / "lustre"
        if kube is not WhichKube.CLUSTER:
            lustre.mkdir(exist_ok=True)
            (lustre / "carrots.txt").write_text(INPUT, encoding="utf-8")
            (lustre / "total.txt").unlink(missing_ok=True)
        report.heading("the job")
        for line in batch.path.read_text(encoding="utf-8").splitlines():
            report.line(f"  {line}")
        if kube is not WhichKube.CLUSTER:
            report.heading("its storage")
            for line in EXPLANATION:
                report.line(f"  {line}")
        outcome = run_batch(batch, report)
        write(outcome)
        well = [_show_variables(outcome, report)]
        if kube is not WhichKube.CLUSTER:
            well.append(_show_result(lustre / "total.txt", report))
        report.heading("what is left of the storage")
        if kube is not WhichKube.CLUSTER:
            well.append(_show_storage(outcome, report))
        report.line(f"  Workflows in Kubernetes: {outcome.workflows}")
        well.append(outcome.workflows == 0)
    return outcome.status or (0 if all(well) else 1)


def _batch(args: argparse.Namespace, kube: WhichKube, scratch: pathlib.Path) -> Batch:
    path = scratch / "demo.sh"
    script = PLAIN_SCRIPT if kube is WhichKube.CLUSTER else SCRIPT
    path.write_text(script, encoding="utf-8")
    return Batch(
        path=path,
        args=(),
        nodes=args.nodes,
        rabbits=args.rabbits,
        seed=args.seed,
        flux=args.flux,
        kube=kube,
        scratch=scratch,
        options=Options(latency=recorded()),
    )


def _show_variables(outcome: Outcome, report: Report) -> bool:
    """Show the job's variables; whether its storage is among them."""
    report.heading("the job's variables")
    for name, value in outcome.variables.items():
        report.line(f"  {name}={value}")
    return "DW_JOB_demo" in outcome.variables


def _show_result(path: pathlib.Path, report: Report) -> bool:
    """Show the job's result; whether there is one."""
    report.heading("what copy_out brought back")
    came = path.is_file()
    text = path.read_text(encoding="utf-8").strip() if came else "nothing!"
    report.line(f"  /lustre/{path.name}: {text}")
    return came


def _show_storage(outcome: Outcome, report: Report) -> bool:
    """Show what became of the job's storage; whether it is gone."""
    storage = outcome.variables.get("DW_JOB_demo")
    gone = storage is not None and not os.path.exists(storage)
    report.line(f"  {storage}: {'gone' if gone else 'still there!'}")
    return gone
