# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The same on a real Flux: an instance of one broker, with nodes that it is told
to believe in, and the plugin and the module as they are installed."""

from __future__ import annotations

import contextlib
import json
import math
import os
import pathlib
import statistics
import sysconfig
from collections.abc import Iterator, Sequence
from typing import Any, Callable, Optional

import flux_k8s
from flux_k8s.limits import DIRECTIVES_BYTES
from rabbitsim.cli.realflux import Installation, find_flux

from . import floors, stats
from .bench import Bench, System
from .child import Child
from .floors import IdealRun
from .hardware import PREFIX
from .jobs import (
    CPU,
    DWS_SECONDS,
    RATE,
    hundred_rows,
    rate_rows,
    run,
    single_rows,
)
from .probe import Probe
from .rows import REAL_FLUX, Row, median, percentile

SINGLE = "flux-jobs"
AT_ONCE = "flux-at-once"
STATS = "flux-stats"
PLAIN = "flux-plain"
GUEST = "flux-guest"
GUESTS = 4
"""Jobs of a guest that are submitted before each of somebody else."""
VALIDATED = 5
"""Jobs of somebody else in each round."""
NODES = 128
CORES = 16
BLOCK = 100
"""Jobs that are submitted at once, to compare throughputs."""
SETTLE = 0.5
"""Seconds in which the module learns of the plugin."""

# Fluxion without a graph of Rabbits would give each to one job.
SIMPLE = ("[modules]", 'alternatives.sched = "sched-simple"')


def missing() -> Optional[str]:
    """The reason why this cannot be measured, or None."""
    installation = find_flux()
    if installation is None:
        return "there is no flux on PATH"
    return installation.missing()


def one_by_one(bench: Bench) -> Iterator[Row]:
    """One job at a time."""
    rounds = bench.number(30, 5)
    for seconds in DWS_SECONDS:
        with ideal_system(bench, seconds) as (system, flux):
            ideal = list(_ideal_runs(system, flux, rounds))
        with running_system(bench, seconds) as (system, flux):
            rows = REAL_FLUX, SINGLE, system, flux, rounds, seconds, ideal
            yield from single_rows(*rows)


def _ideal_runs(system: System, flux: Child, rounds: int) -> Iterator[IdealRun]:
    """One job at a time, where an ideal client is in place of the module, with what is
    between two jobs in :func:`.jobs.single_rows`."""
    probe = Probe(system.url)
    for _ in range(rounds):
        for _ in range(5):
            probe.sample()
        flux.call("jobs", count=1, directive=False)
        system.cluster.call("marks")
        cpu = flux.call("jobs", count=1)["cpu"]
        yield IdealRun(1, cpu, 0.0, system.cluster.call("marks"))
    probe.close()


def at_once(bench: Bench) -> Iterator[Row]:
    """A hundred jobs at once, and a thousand, a few times."""
    repeat = bench.number(3, 1)
    with ideal_system(bench, "recorded") as (system, flux):
        run(system, flux, 10)
        ideal = [run(system, flux, 100) for _ in range(repeat)]
    with running_system(bench, "recorded") as (system, flux):
        run(system, flux, 10)
        plain = flux.call("jobs", count=100, directive=False)
        before = flux.call("threads"), flux.call("module_threads")
        hundreds = [run(system, flux, 100) for _ in range(repeat)]
        after = flux.call("threads"), flux.call("module_threads")
    broker, module = (
        _by_thread([_taken(then, now, 100 * repeat)])
        for then, now in zip(before, after)
    )
    server = statistics.mean(run["server_cpu"] for run in hundreds) * 10.0
    taken = (
        f". Processor time per job in ms, by thread: broker {broker}; module {module};"
        f" API server and DWS {server:.1f}"
    )
    added = floors.flux([median(run["added"]) for run in ideal])
    yield from hundred_rows(REAL_FLUX, AT_ONCE, hundreds, plain, added, taken)
    count = bench.number(1000, 200)
    with ideal_system(bench, 0.0) as (system, flux):
        run(system, flux, 10)
        ideal = [run(system, flux, count) for _ in range(repeat)]
    rate = floors.flux([run["rate"] for run in ideal])
    thousands, processor, memory = [], [], []
    brokers: list[Threads] = []
    with running_system(bench, 0.0) as (system, flux):
        run(system, flux, 10)
        before = flux.call("threads")
        plain = flux.call("jobs", count=count, directive=False)
        unladen = _taken(before, flux.call("threads"), count)
        hundreds = [run(system, flux, 100) for _ in range(repeat)]
        modules = flux.call("module_threads")
        for _ in range(repeat):
            before = flux.call("threads")
            thousands.append(run(system, flux, count))
            after = flux.call("settle", seconds=2.0)
            processor.append((thousands[-1]["module"] + after) / count * 1e3)
            brokers.append(_taken(before, flux.call("threads"), count))
            memory.append(flux.call("memory"))
        modules = _taken(modules, flux.call("module_threads"), count * repeat)
    yield from rate_rows(REAL_FLUX, AT_ONCE, hundreds, None)
    yield from rate_rows(REAL_FLUX, AT_ONCE, thousands, RATE, rate)
    yield Row(
        REAL_FLUX,
        AT_ONCE,
        "module processor time per job",
        processor,
        "ms",
        CPU,
        f"the processes of the module; by thread: {_by_thread([modules])}",
    )
    yield Row(
        REAL_FLUX,
        AT_ONCE,
        f"broker processor time per job, {count:,} at once",
        [sum(taken.values()) for taken in brokers],
        "ms",
        note=f"by thread: {_by_thread(brokers)}; without #DW: {_by_thread([unladen])}",
    )
    what = f"module RSS after {count:,} at once"
    yield Row(REAL_FLUX, AT_ONCE, what, memory, "MiB")


Threads = dict[str, float]
"""Milliseconds of processor time for a job, by the name of the thread."""


def _taken(before: Threads, after: Threads, count: int) -> Threads:
    """What each thread has taken for each of ``count`` jobs, from seconds in all."""
    return {
        name: (seconds - before.get(name, 0.0)) / count * 1e3
        for name, seconds in after.items()
    }


def _by_thread(runs: Sequence[Threads]) -> str:
    """The means of the threads that took the most."""
    means = {
        name: statistics.mean(run.get(name, 0.0) for run in runs) for name in runs[0]
    }
    most = sorted(means.items(), key=lambda item: -item[1])[:6]
    return ", ".join(f"{name} {taken:.1f}" for name, taken in most if taken >= 0.05)


def stats_answers(bench: Bench) -> Iterator[Row]:
    """``flux module stats dws`` while the API server hangs and jobs come."""
    with running_system(bench, 0.0) as (system, flux):
        flux.call("jobs", count=50)
        yield from stats.rows(REAL_FLUX, STATS, bench, system, flux)
        commands = flux.call("stats_commands", count=bench.number(30, 5))
    yield Row(
        REAL_FLUX,
        STATS,
        "the same command with its start, when nothing hangs",
        [seconds * 1e3 for seconds in commands],
        "ms",
        note=f"median of {len(commands)}",
    )


def plain_jobs(bench: Bench) -> Iterator[Row]:
    """Jobs without #DW, with the plugin and without it, by turns. What the module does
    when the plugin comes or goes is no part of it."""
    installation = find_flux()
    assert installation is not None
    name, path = installation.jobtap.name, str(installation.jobtap)
    rates, processor = [], []
    with running_system(bench, 0.0) as (system, flux):
        _block(flux)
        for _ in range(bench.number(48, 3)):
            loaded = [_block(flux)]
            flux.call("remove_plugin", name=name)
            flux.call("settle", seconds=SETTLE)
            without = [_block(flux), _block(flux)]
            flux.call("load_plugin", path=path)
            flux.call("settle", seconds=SETTLE)
            loaded.append(_block(flux))
            rates.append(_total(without, 0) / _total(loaded, 0))
            processor.append(_total(without, 1) / _total(loaded, 1))
    yield Row(
        REAL_FLUX,
        PLAIN,
        "job throughput without #DW, plugin loaded against not",
        processor,
        "times",
        0.99,
        "jobs per second of the broker's processor time, which others' work on this "
        f"machine disturbs less than the clock; {_means(processor)}",
        more_is_better=True,
    )
    yield Row(
        REAL_FLUX,
        PLAIN,
        "job throughput without #DW, the same by the clock",
        rates,
        "times",
        note=f"median of {len(rates)} pairs of {2 * BLOCK} jobs, half of them between "
        f"{percentile(rates, 25):.2f} and {percentile(rates, 75):.2f}",
        more_is_better=True,
    )


def guests(bench: Bench) -> Iterator[Row]:
    """What others' submissions wait for, with the validator, when a guest's
    directives are as long as they may be. All kinds of guests take turns: a jobspec
    as long makes others wait without flux-dws, too."""
    blanks = " " * (DIRECTIVES_BYTES - len("#DW jobdwx"))
    kinds: dict[str, dict[str, Any]] = {
        "none": {"guest": []},
        "short": {"guest": ["#DW"] * GUESTS},
        "unread": {"guest": ["#DW"] * GUESTS, "note": blanks},
        "long": {"guest": [f"#DW jobdw{blanks}x"] * GUESTS},
    }
    seconds: dict[str, list[float]] = {kind: [] for kind in kinds}
    with running_system(bench, 0.0) as (_, flux):
        flux.call("validated", count=VALIDATED, guest=[])
        for number in range(bench.number(20, 2)):
            for kind in sorted(kinds, reverse=number % 2 == 1):
                found = flux.call("validated", count=VALIDATED, **kinds[kind])
                seconds[kind].append(median(found))
        flux.call("drain")
    ms = {kind: median(found) * 1e3 for kind, found in seconds.items()}
    rounds = f"{len(seconds['long'])} rounds of {VALIDATED}"
    unread = [long / other for long, other in zip(seconds["long"], seconds["unread"])]
    yield Row(
        REAL_FLUX,
        GUEST,
        f"others' submit behind {GUESTS} jobs with 64 KiB of blanks as directives, "
        "against 64 KiB that only Flux reads",
        unread,
        "times",
        1.01,
        f"{ms['long']:.1f} ms and {ms['unread']:.1f} ms; {rounds}; {_means(unread)}",
    )
    yield Row(
        REAL_FLUX,
        GUEST,
        f"others' submit behind {GUESTS} jobs with 64 KiB of blanks as directives",
        [long / short for long, short in zip(seconds["long"], seconds["short"])],
        "times",
        note=f"against {GUESTS} jobs with a short directive: {ms['long']:.1f} ms and "
        f"{ms['short']:.1f} ms, alone {ms['none']:.1f} ms; {rounds}",
    )


def _means(ratios: list[float]) -> str:
    """The geometric mean of ratios, with its standard error: with noise that is as
    large as here, it tells more than the median."""
    logs = [math.log(ratio) for ratio in ratios]
    error = statistics.stdev(logs) / math.sqrt(len(logs))
    mean = math.exp(statistics.mean(logs))
    return f"geometric mean {mean:.3f}, standard error {error:.3f}"


Block = tuple[float, float]


def _block(flux: Child) -> Block:
    """Run jobs without #DW: the seconds, and those of the broker's processor."""
    result = flux.call("jobs", count=BLOCK, directive=False)
    times = result["times"].values()
    seconds = max(end for _, end in times) - min(begin for begin, _ in times)
    return seconds, result["cpu"] - result["module"]


def _total(blocks: list[Block], index: int) -> float:
    return sum(block[index] for block in blocks)


MEASUREMENTS: dict[str, Callable[[Bench], Iterator[Row]]] = {
    SINGLE: one_by_one,
    AT_ONCE: at_once,
    STATS: stats_answers,
    PLAIN: plain_jobs,
    GUEST: guests,
}


@contextlib.contextmanager
def running_system(
    bench: Bench, seconds: Any, **more: Any
) -> Iterator[tuple[System, Child]]:
    """Kubernetes, DWS and a Flux instance, with the plugin and the module."""
    with bench.cluster(NODES, seconds, **more) as cluster:
        with instance(bench, cluster, NODES, SIMPLE) as flux:
            flux.call("load_module", arguments=["scheduler=none"])
            yield cluster, flux
            flux.call("unload_module")


@contextlib.contextmanager
def ideal_system(bench: Bench, seconds: Any) -> Iterator[tuple[System, Child]]:
    """The same with an ideal client in place of the module."""
    with bench.cluster(NODES, seconds) as cluster:
        with instance(bench, cluster, NODES, SIMPLE) as flux:
            mapping = str(cluster.folder / "mapping.json")
            flux.call("load_ideal", url=cluster.url, mapping=mapping)
            yield cluster, flux
            flux.call("unload_ideal")


@contextlib.contextmanager
def instance(
    bench: Bench, system: System, nodes: int, config: Sequence[str]
) -> Iterator[Child]:
    """A Flux instance with so many nodes, with the plugin, and these lines in its
    configuration. They end in a table or before the next."""
    installation = find_flux()
    assert installation is not None
    folder = _write_config(installation, system, nodes, config)
    with bench.child(
        "inside",
        command=[
            installation.flux,
            "start",
            f"--config-path={folder}",
            installation.flux,
            "python",
        ],
        environment=_environment(installation),
    ) as flux:
        yield flux


def _write_config(
    installation: Installation, system: System, nodes: int, more: Sequence[str]
) -> pathlib.Path:
    """The instance's configuration. TOML strings are like JSON's."""
    mapping = system.folder / "mapping.json"
    mapping.write_text(json.dumps(system.rabbits), encoding="utf-8")
    folder = system.folder / "conf"
    folder.mkdir()
    lines = [
        "[rabbit]",
        f"kubeconfig = {json.dumps(system.kubeconfig)}",
        f"mapping = {json.dumps(str(mapping))}",
        "[job-manager]",
        f"plugins = [{{ load = {json.dumps(str(installation.jobtap))} }}]",
        "[fake-resources]",
        f"nnodes = {nodes}",
        f"cores-per-node = {CORES}",
        f"host-prefix = {json.dumps(PREFIX)}",
        *more,
    ]
    (folder / "bench.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def _environment(installation: Installation) -> dict[str, str]:
    package = pathlib.Path(flux_k8s.__file__).parents[1]
    paths = dict.fromkeys([str(package), sysconfig.get_path("purelib")])
    return {
        "FLUX_CLI_PLUGINPATH": str(installation.prefix / "etc/flux/cli/plugins"),
        "FLUX_EXEC_PATH_PREPEND": str(installation.prefix / "libexec/flux/cmd"),
        "FLUX_MODULE_PATH_PREPEND": str(installation.modules),
        "FLUX_PYTHONPATH_PREPEND": os.pathsep.join(paths),
    }
