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
from rabbitsim.cli.run import Batch, eventlog_writer, run_batch, scratch_directory
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

INPUT = "monday 12\ntuesday 7\nwednesday 23\n"


def demo_command(args: argparse.Namespace) -> int:
    """``rabbitsim demo``: 0 when all went as it should."""
    report = Report(args.verbose)
    with (
        eventlog_writer(args.eventlog) as write,
        scratch_directory(args.scratch) as scratch,
    ):
        lustre = scratch / "lustre"
        lustre.mkdir(exist_ok=True)
        (lustre / "carrots.txt").write_text(INPUT, encoding="utf-8")
        (lustre / "total.txt").unlink(missing_ok=True)
        report.heading("the job")
        for line in SCRIPT.splitlines():
            report.line(f"  {line}")
        outcome = run_batch(_batch(args, scratch), report)
        write(outcome)
        well = _show(outcome, lustre / "total.txt", report)
    return outcome.status or (0 if well else 1)


def _batch(args: argparse.Namespace, scratch: pathlib.Path) -> Batch:
    path = scratch / "demo.sh"
    path.write_text(SCRIPT, encoding="utf-8")
    return Batch(
        path=path,
        args=(),
        nodes=args.nodes,
        rabbits=args.rabbits,
        seed=args.seed,
        flux=args.flux,
        scratch=scratch,
        options=Options(latency=recorded()),
    )


def _show(outcome: Outcome, result: pathlib.Path, report: Report) -> bool:
    """Show what the job had, what it left, and that its storage is gone."""
    report.heading("the job's variables")
    for name, value in outcome.variables.items():
        report.line(f"  {name}={value}")
    report.heading("what copy_out brought back")
    came = result.is_file()
    text = result.read_text(encoding="utf-8").strip() if came else "nothing!"
    report.line(f"  /lustre/{result.name}: {text}")
    report.heading("what is left of the storage")
    storage = outcome.variables.get("DW_JOB_demo")
    gone = storage is not None and not os.path.exists(storage)
    report.line(f"  {storage}: {'gone' if gone else 'still there!'}")
    report.line(f"  Workflows in Kubernetes: {outcome.workflows}")
    return came and gone and outcome.workflows == 0
