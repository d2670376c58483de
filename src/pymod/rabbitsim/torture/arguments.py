# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The arguments of ``python -m rabbitsim torture``. (This imports nothing that
needs the compiled plugin, which ``--help`` can do without.)"""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--seed", type=int, default=0, metavar="N", help="of all randomness")
    add("--seeds", type=int, default=1, metavar="N", help="this many, from --seed on")
    add("--jobs", type=int, default=200, metavar="N", help="jobs of a seed")
    add(
        "--faults",
        default="all",
        metavar="LIST",
        help="all, none, or kinds of trouble with commas between them; a wrong one"
        " has them listed",
    )
    add(
        "--minutes",
        type=float,
        metavar="M",
        help="of virtual time, in which jobs are submitted and trouble is made"
        " (default: one for each ten jobs)",
    )
    add("--trace", action="store_true", help="show all that happens")
    add(
        "--no-shrink",
        action="store_true",
        help="report a breach as it is, without looking for the least that leads to it",
    )
    add(
        "--crash-points",
        action="store_true",
        help="instead: let the module die after each step, and each request",
    )
