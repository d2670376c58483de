# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""``python -m rabbitsim day``."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Iterator

from flux_k8s.jobs.service import collect_rarely
from flux_k8s.ports import Json
from rabbitsim.cli.errors import UsageError
from rabbitsim.day.plots import PLOTS, plot
from rabbitsim.day.results import to_json
from rabbitsim.day.run import Day
from rabbitsim.day.site import Site


def day_command(args: argparse.Namespace) -> int:
    """Simulate a day; 1 when something is stuck at its end."""
    site = _site(args)
    try:
        args.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--out: {args.out}: {error.strerror}") from None
    collect_rarely()
    day = Day(site, lambda line: print(line, file=sys.stderr, flush=True))
    day.run()
    results = to_json(day)
    path = args.out / "day.json"
    path.write_text(dump(results), encoding="utf-8")
    for name in PLOTS:
        (args.out / name).write_text(plot(name, results["series"]), encoding="utf-8")
    print("\n".join(summary(results)))
    return 1 if day.stuck else 0


def _site(args: argparse.Namespace) -> Site:
    for name in ("nodes", "rabbits", "jobs", "hours", "report_interval"):
        if getattr(args, name) <= 0:
            option = name.replace("_", "-")
            raise UsageError(f"--{option}: expected more than 0")
    if args.nodes < args.rabbits:
        raise UsageError("--nodes: expected at least one for each Rabbit")
    return Site(
        nodes=args.nodes,
        rabbits=args.rabbits,
        jobs=args.jobs,
        hours=args.hours,
        seed=args.seed,
        stage=args.stage,
        release=args.release,
        report_interval=args.report_interval,
    )


def dump(results: Json) -> str:
    """The numbers as JSON, each entry of the series on a line."""
    rows = ",\n".join(f"  {json.dumps(row)}" for row in results["series"])
    text = json.dumps({**results, "series": []}, indent=1)
    return text.replace('"series": []', f'"series": [\n{rows}\n ]') + "\n"


def summary(results: Json) -> Iterator[str]:
    """The numbers that count, one on a line."""
    hours, module = results["node_hours"], results["measured"]
    yield f"{results['jobs']['submitted']:,} jobs: {_counts(results['jobs']['ends'])}"
    yield f"node hours of tasks: {hours['run']:,}"
    yield f"node hours idle for storage: {_counts(hours['idle'])}"
    yield f"flux-dws adds {hours['ours_per_cent_of_dws']} % to what DWS needs"
    yield f"our delays, ms: {_counts(hours['our_delays_ms'])}"
    yield f"seconds until the start: {_counts(_means(results['starts_after_s']))}"
    yield f"TiB of storage: {_counts(_means(results['storage_tib']))}"
    yield f"Workflows: {_counts(results['workflows'])}"
    for name in ("requests", "events"):
        yield f"{name} a second: {_counts(results[name]['per_second'])}"
    yield f"reactor: busy {results['reactor']['busy_per_cent']} %"
    yield f"waits for the reactor, ms: {_counts(results['reactor']['waits_ms'])}"
    each = module["module_processor_ms_of_a_job"]
    yield f"processor time of the module: {each} ms for each job"
    yield f"data of the module: {module['module_data_mib']} MiB"
    yield f"failures: {_counts(results['failures'])}"
    yield f"stuck: {', '.join(results['stuck']) or 'nothing'}"


def _means(found: Json) -> Json:
    return {name: each["mean"] for name, each in found.items()}


def _counts(counts: Json) -> str:
    return ", ".join(f"{name} {value:,}" for name, value in counts.items()) or "none"
