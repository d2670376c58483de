# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Draw what the service does while 1,000 jobs run at once: a flame graph.

py-spy looks at its stacks, 250 times in a second, and writes an SVG. The service is
that of a real Flux when one is on PATH, else it is in a process with next to no Flux.
DWS takes no time.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from measure import realflux, results
from measure.bench import Bench
from measure.child import Child, ChildError

JOBS = 1000
RATE = 250
"""Samples in a second."""


def main() -> int:
    """Draw; the exit status says whether that was possible."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    now = results.begin(False)
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--output",
        type=pathlib.Path,
        default=results.FOLDER / f"{now.name}.svg",
        metavar="FILE",
        help="where to write the SVG (bench/results/TIME-COMMIT.svg)",
    )
    parser.add_argument("--jobs", type=int, default=JOBS, metavar="NUMBER")
    args = parser.parse_args()
    flux = f"flux {now.versions['flux-core']}"
    title = f"{args.jobs:,} jobs at once, commit {now.commit[:9]}, "
    title += "stand-in for Flux" if realflux.missing() else flux
    with tempfile.TemporaryDirectory(prefix="flux-dws-bench-") as scratch:
        bench = Bench(False, pathlib.Path(scratch))
        try:
            with _service(bench) as (jobs, pid):
                jobs.call("jobs", count=10)
                with _sampled(pid, args.output, title):
                    jobs.call("jobs", count=args.jobs)
        except (ChildError, OSError) as error:
            print(f"bench-flame: {error}{bench.logs()}", file=sys.stderr)
            return 1
    print(f"written to {os.path.relpath(args.output)}")
    return 0


@contextlib.contextmanager
def _service(bench: Bench) -> Iterator[tuple[Child, int]]:
    """The program that runs jobs, and the process of the service."""
    if realflux.missing() is None:
        with realflux.running_system(bench, 0.0) as (_, flux):
            yield flux, flux.call("service")
    else:
        with bench.cluster(realflux.NODES) as system, bench.child("alone") as module:
            module.call("start", kubeconfig=system.kubeconfig, rabbits=system.rabbits)
            yield module, module.pid


@contextlib.contextmanager
def _sampled(pid: int, path: pathlib.Path, title: str) -> Iterator[None]:
    """Sample a process meanwhile: which function has the interpreter (the GIL).

    Raises:
        OSError: py-spy is not installed.
        ChildError: it could not sample.
    """
    spy = pathlib.Path(sys.executable).parent / "py-spy"
    path.parent.mkdir(parents=True, exist_ok=True)
    options = ["--gil", "--function", "--threads", "--rate", str(RATE)]
    command = [str(spy), "record", *options, "--output", str(path), "--pid", str(pid)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        said = process.stdout.readline()  # that it samples, or why it cannot
        try:
            yield
        finally:
            process.send_signal(signal.SIGINT)
            said += process.stdout.read()
    if process.returncode:
        raise ChildError(f"py-spy: {said.strip()}")
    text = path.read_text(encoding="utf-8").replace(" ".join(command), title)
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
