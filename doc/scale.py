# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The tables of scale.md, and the plots beside it, from the numbers of two simulations.

usage: scale.py [DAY TEN]

DAY and TEN are directories that ``rabbitsim day --out`` wrote: a day of a machine, and
a part of a day of a machine ten times as large. Their numbers become day.json and
day-ten.json here. Without them, the page is made of the numbers that are here.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Callable, Mapping

from rabbitsim.day import tables, tentimes
from rabbitsim.day.page import NUMBERS, Numbers, fill
from rabbitsim.day.plots import PLOTS, plot

DOC = Path(__file__).parent
PAGE = "scale.md"

TABLES: Mapping[str, Callable[[Numbers], str]] = {
    "simulations": tables.simulations,
    "node hours": tables.node_hours,
    "delays": tables.delays,
    "traffic": tables.traffic,
    "messages": tables.messages,
    "queues": tables.queues,
    "cost": tables.cost,
    "objects": tentimes.object_limits,
    "processor": tentimes.processor_limits,
    "amounts": tentimes.amount_limits,
    "changes": tentimes.changes,
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Make scale.md and its plots.")
    parser.add_argument("folders", metavar="DAY TEN", nargs="*", type=Path)
    folders = parser.parse_args().folders
    if len(folders) not in (0, len(NUMBERS)):
        parser.error("expected DAY and TEN, or neither")
    for folder, name in zip(folders, NUMBERS):
        (DOC / name).write_bytes((folder / "day.json").read_bytes())
    found = Numbers.read(DOC)
    for name in PLOTS:
        (DOC / name).write_text(plot(name, found.day["series"]), encoding="utf-8")
    page = (DOC / PAGE).read_text("utf-8")
    (DOC / PAGE).write_text(fill(page, TABLES, found), encoding="utf-8")


if __name__ == "__main__":
    main()
