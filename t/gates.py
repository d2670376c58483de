# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The stand-in cluster, whose DWS does not get past a state whose gate is shut.

usage: gates.py --kubeconfig FILE --mapping FILE --scratch DIR --gates DIR [--apart]
    [--fault STATE:KIND[:NODE[:SECONDS]]]... [--label LABEL]... [--copy-rate BYTES]

The kubeconfig is written. With --apart it is read: the API server is another process.

The storage of every job needs the labels. Data is copied at that many bytes per second.

While there is a file DIR/STATE no Workflow becomes ready in this state, while
there is one DIR/WORKFLOW.STATE that Workflow does not.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import sys
from dataclasses import dataclass
from typing import Optional

from rabbitsim.cli import cluster
from rabbitsim.dws import Options
from rabbitsim.dws import cli as dws
from rabbitsim.dws.breakdown import Profiles
from rabbitsim.dws.directive import read_data
from rabbitsim.dws.options import Fault

INTERVAL = 0.1
"""Seconds between two looks at a gate."""


@dataclass(frozen=True)
class GatedOptions(Options):
    """Options of the controllers, with gates in a folder."""

    gates: str = ""

    def fault(
        self, kind: str, workflow: str, state: str, elapsed: float
    ) -> Optional[Fault]:
        names = (state, f"{workflow}.{state}")
        if kind == "never" and any(
            os.path.exists(f"{self.gates}/{name}") for name in names
        ):
            return Fault(state, kind, duration=elapsed + INTERVAL)
        return super().fault(kind, workflow, state, elapsed)


def main() -> int:
    parser = argparse.ArgumentParser()
    for option in ("--kubeconfig", "--mapping", "--gates"):
        parser.add_argument(option, required=True)
    parser.add_argument("--scratch", required=True, type=pathlib.Path)
    parser.add_argument("--fault", action="append", default=[], type=Fault.parse)
    parser.add_argument("--label", action="append", default=[])
    parser.add_argument("--copy-rate", type=float)
    parser.add_argument("--apart", action="store_true")
    args = parser.parse_args()
    profiles = read_data("profiles.yaml")
    profiles["labels"] += args.label
    options = GatedOptions(
        gates=args.gates,
        faults=tuple(args.fault),
        copy_rate=args.copy_rate,
        profiles=Profiles(profiles),
    )
    return (dws if args.apart else cluster).serve(
        args.kubeconfig,
        dws.read_topology(args.mapping, nodes=0, rabbits=0),
        options=options,
        scratch=args.scratch,
        seed=0,
    )


if __name__ == "__main__":
    sys.exit(main())
