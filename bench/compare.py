# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Compare results of bench/run.py with others, as far as noise lets one.

OLD and NEW are files, names of files in bench/results without ``.json``, or commits.
Several of them are runs of the same thing: with three or more on each side, the noise
between runs is known too.
"""

from __future__ import annotations

import argparse
import sys

from measure.compare import compare, lines
from measure.results import NoResults, Results, find


def main() -> int:
    """Print the table; the exit status says whether there was one."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    for side in "old", "new":
        parser.add_argument(f"--{side}", nargs="+", required=True, metavar="RESULTS")
    args = parser.parse_args()
    try:
        old, new = _side(args.old), _side(args.new)
    except (NoResults, OSError) as error:
        print(f"bench-compare: {error}", file=sys.stderr)
        return 1
    print("\n".join(lines(old, new, compare(old, new))))
    return 0


def _side(words: list[str]) -> list[Results]:
    return [results for word in words for results in find(word)]


if __name__ == "__main__":
    sys.exit(main())
