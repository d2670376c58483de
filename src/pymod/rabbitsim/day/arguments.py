# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The arguments of ``python -m rabbitsim day``. (This imports nothing that needs the
compiled plugin, which ``--help`` can do without.)"""

from __future__ import annotations

import argparse
import pathlib

from flux_k8s.objects.storagerequest import RELEASES, STAGES
from rabbitsim.day.site import Site


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    usual = Site()
    add("--nodes", type=int, default=usual.nodes, metavar="N", help="compute nodes")
    add("--rabbits", type=int, default=usual.rabbits, metavar="N", help="Rabbits")
    add("--jobs", type=int, default=usual.jobs, metavar="N", help="jobs to submit")
    add(
        "--hours",
        type=float,
        default=usual.hours,
        metavar="H",
        help="of virtual time, in which they are submitted",
    )
    add("--seed", type=int, default=usual.seed, metavar="N", help="of all randomness")
    add(
        "--report-interval",
        type=float,
        default=usual.report_interval,
        metavar="S",
        help="seconds between two reports of each data movement",
    )
    add(
        "--stage",
        choices=STAGES,
        default=usual.stage,
        help="when the data of jobs is copied in (default: prolog)",
    )
    add(
        "--release",
        choices=RELEASES,
        default=usual.release,
        help="when jobs give their nodes back (default: teardown)",
    )
    add(
        "--out",
        type=pathlib.Path,
        default=pathlib.Path("build/day"),
        metavar="DIR",
        help="where to write day.json and the plots (default: build/day)",
    )
