# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The pictures of the guides: what flux dws shows of jobs under virtual time.

usage: pictures.py [-o DIR] [timeline.svg] [follow.svg] [report.png]

They are made by the subcommands that ship, on the stand-in, so a seed gives the same
jobs each time. report.png needs a Chromium, which opens the page.
"""

from __future__ import annotations

import argparse
import os
import pwd
import random
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import redirect_stdout
from importlib import import_module
from io import BytesIO, TextIOWrapper
from pathlib import Path
from types import SimpleNamespace
from typing import Callable, Mapping, Sequence
from unittest import mock
from xml.sax.saxutils import escape

from dwscli import units
from dwscli.follow import follow
from dwscli.painters import Page
from dwscli.terminal import Screen
from flux_k8s.config.table import Config
from flux_k8s.formats.jobid import f58
from flux_k8s.ports import Json
from rabbitsim.commands import VirtualInstance
from rabbitsim.dws import Options, Topology
from rabbitsim.dws.files import Copy, CopyError, NoCopy, NoFiles
from rabbitsim.dws.options import table
from rabbitsim.flux.options import submit_jobspec
from rabbitsim.system import VirtualSystem

SEED = 14
JOBS = 50
HOURS = 2
USERS = {500: "flux", 5001: "ada", 5002: "edsger", 5003: "grace", 5004: "niklaus"}
GIB, TIB = 2**30, 2**40
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
WIDTH, HEIGHT = 84, 40
"""Columns and lines of the terminal."""

COLUMN, LINE, MARGIN = 8, 17, 20
"""Pixels."""

FONT = "ui-monospace, SFMono-Regular, Menlo, Consolas, monospace"

SECONDS = {
    "Proposal": 2.0,
    "Setup": 40.0,
    "DataIn": 1.0,
    "PreRun": 30.0,
    "PostRun": 20.0,
    "DataOut": 1.0,
    "Teardown": 45.0,
}
"""What DWS takes for a state, besides copies: long enough to be seen in a picture."""

OPTIONS = Options(
    latency=table(SECONDS, spread=0.5), copy_rate=2.0 * GIB, copy_step=8 * GIB
)


class PaperFiles(NoFiles):
    """Files on paper. The name of each is its size in GiB; no other file exists."""

    def copy(self, source: str, destination: str, variables: Mapping[str, str]) -> Copy:
        name = source.rpartition("/")[2]
        if not name.isdecimal():
            raise CopyError(f"source '{source}' does not exist")
        return NoCopy(int(name) * GIB)


def new_system(nodes: int, rabbits: int) -> VirtualSystem:
    system = VirtualSystem(
        SEED,
        topology=Topology.regular(nodes, rabbits, capacity=8 * TIB),
        options=OPTIONS,
        files=PaperFiles(),
        config=Config.parse({"save_datamovements": 64}),
    )
    system.start()
    system.loop.run(timeout=60.0)
    return system


def submit(
    system: VirtualSystem, user: int, nodes: int, seconds: float, *lines: str
) -> int:
    """Submit a job that runs for some seconds."""
    words = [f"-N{nodes}", "-S", "dw=" + "\n".join(lines)]
    jobspec = submit_jobspec(["true"], [*words, "-t", f"{seconds * 2}s"])
    test = {"run_duration": f"{seconds}s"}
    jobspec["attributes"]["system"]["exec"] = {"test": test}
    return system.instance.submit(jobspec, userid=user)


def submit_any(system: VirtualSystem, rng: random.Random) -> None:
    """Submit a job such as users have."""
    kind = rng.choice(["xfs", "xfs", "gfs2", "lustre"])
    lines = [f"#DW jobdw type={kind} capacity={rng.randint(1, 9) * 100}GiB name=work"]
    if rng.random() < 0.7:
        source = "missing" if rng.random() < 0.06 else rng.randint(10, 400)
        lines.append(f"#DW copy_in source=/lustre/{source} destination=$DW_JOB_work/")
    if rng.random() < 0.5:
        source = rng.randint(10, 200)
        lines.append(f"#DW copy_out source=$DW_JOB_work/{source} destination=/lustre/")
    user = rng.choice([*USERS][1:])
    nodes = rng.choice([1, 2, 2, 4, 8])
    submit(system, user, nodes, rng.uniform(60.0, 1500.0), *lines)


def busy_system() -> VirtualSystem:
    """A system in which jobs have come and gone for some hours."""
    system, rng = new_system(32, 8), random.Random(SEED)
    end = HOURS * 3600.0
    for _ in range(JOBS):
        moment = rng.uniform(0.0, end)
        system.loop.call_later(moment, lambda: submit_any(system, rng))
    system.loop.run(timeout=end - 300.0)
    disable = {"rabbits": ["rabbit-08"], "by": "flux", "reason": "two SSDs wear out"}
    VirtualInstance(system).ask("dws.rabbit-disable", disable)
    system.loop.run(timeout=300.0)
    return system


def run(system: VirtualSystem, subcommand: str, *words: str) -> None:
    """Run ``flux dws SUBCOMMAND`` as the instance owner."""
    instance = VirtualInstance(system)
    parser = argparse.ArgumentParser(prog=f"flux dws {subcommand}")
    import_module(f"dwscli.{subcommand}").add_arguments(parser)
    args = parser.parse_args(words)
    with mock.patch("time.time", system.loop.now):
        args.function(args, instance)


def timeline(path: Path) -> None:
    """``flux dws timeline`` of 50 jobs."""
    run(busy_system(), "timeline", "-A", "-o", str(path))


def report(path: Path) -> None:
    """``flux dws report`` of the same jobs, as a browser shows it."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        sys.exit(f"{path.name} needs a Chromium: no {' or '.join(BROWSERS)} on PATH")
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        since = f"-{HOURS}h"
        run(busy_system(), "report", f"--since={since}", "-o", str(page))
        subprocess.run(
            [browser, "--headless", "--no-sandbox", "--disable-gpu"]
            + [f"--user-data-dir={folder}/profile", "--hide-scrollbars"]
            + ["--window-size=1100,2080", f"--screenshot={path}", page.as_uri()],
            check=True,
            stderr=subprocess.DEVNULL,
        )


class HalfWay(Exception):
    """Half of the data is there."""


class HalfPage(Page):
    """The page of a job, until half of its data is there."""

    def show(self, answer: Json) -> None:
        super().show(answer)
        if (answer.get("percent") or 0) >= 50:
            raise HalfWay


def recording(path: Path) -> None:
    """A terminal with ``flux dws show --follow`` when half of the data is there."""
    system = new_system(16, 4)
    id = submit(
        system,
        5001,
        12,
        600.0,
        "#DW jobdw type=lustre capacity=2TiB name=work",
        "#DW copy_in source=/lustre/mesh/360 destination=$DW_JOB_work/mesh",
        "#DW copy_in source=/lustre/model/120 destination=$DW_JOB_work/model",
    )
    screen = Screen(width=WIDTH, height=HEIGHT, is_terminal=True)
    output = TextIOWrapper(BytesIO(), encoding="utf-8", write_through=True)
    with redirect_stdout(output):
        try:
            page = HalfPage(lambda: screen, system.loop.now)
            follow(VirtualInstance(system), id, page)
        except HalfWay:
            pass
    # Each page is written over the one before.
    last = output.buffer.getvalue().decode().rpartition("\033[J")[2]
    lines = [f"$ flux dws show --follow {f58(id)}", *last.splitlines()]
    path.write_text(terminal_svg(lines), encoding="utf-8")


def terminal_svg(lines: Sequence[str]) -> str:
    """A terminal's screen as SVG."""
    width, height = WIDTH * COLUMN + 2 * MARGIN, len(lines) * LINE + MARGIN + 10
    style = f'font-family="{FONT}" font-size="13" fill="#d6d9e0"'
    texts = [
        f'<text x="{MARGIN}" y="{30 + LINE * index}" style="white-space:pre">'
        f"{escape(line)}</text>"
        for index, line in enumerate(lines)
        if line
    ]
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"'
    back = '<rect width="100%" height="100%" rx="8" fill="#16181d"/>'
    parts = [f'{head} role="img">', back, f"<g {style}>", *texts, "</g>", "</svg>", ""]
    return "\n".join(parts)


PICTURES: Mapping[str, Callable[[Path], None]] = {
    "timeline.svg": timeline,
    "follow.svg": recording,
    "report.png": report,
}


def user_of(id: int) -> SimpleNamespace:
    """What ``pwd`` would say of a user."""
    return SimpleNamespace(pw_name=USERS[id], pw_gid=id)


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the pictures of the guides.")
    parser.add_argument("-o", "--output", metavar="DIR", default=Path(__file__).parent)
    parser.add_argument("names", metavar="NAME", nargs="*", help=", ".join(PICTURES))
    args = parser.parse_args()
    unknown = [name for name in args.names if name not in PICTURES]
    if unknown:
        parser.error(f"unknown: {unknown[0]}, expected {', '.join(PICTURES)}")
    os.environ["TZ"] = "UTC"
    time.tzset()
    with (
        mock.patch.object(pwd, "getpwuid", user_of),
        mock.patch.object(units, "is_utf8", lambda: True),
    ):
        for name in args.names or PICTURES:
            PICTURES[name](Path(args.output) / name)


if __name__ == "__main__":
    main()
