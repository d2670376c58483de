# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The tables of saving.md, and the plots beside it, from the numbers of simulations.

usage: saving.py [DIR]

DIR has a directory for each simulation, made by ``rabbitsim day --out``, which is named
by ``stage`` and ``release``, as prolog-teardown. Their numbers become saving.json here.
Without DIR, the page is made of the numbers that are here.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from rabbitsim.day.page import fill
from rabbitsim.day.saving import NUMBERS, PLOTS, TABLES, Saving, collect, plot

DOC = Path(__file__).parent
PAGE = "saving.md"


def main() -> None:
    parser = argparse.ArgumentParser(description="Make saving.md and its plots.")
    parser.add_argument("folder", metavar="DIR", nargs="?", type=Path)
    folder = parser.parse_args().folder
    if folder is not None:
        (DOC / NUMBERS).write_text(collect(folder), encoding="utf-8")
    found = Saving.read(DOC)
    for name in PLOTS:
        (DOC / name).write_text(plot(name, found), encoding="utf-8")
    page = (DOC / PAGE).read_text("utf-8")
    (DOC / PAGE).write_text(fill(page, TABLES, found), encoding="utf-8")


if __name__ == "__main__":
    main()
