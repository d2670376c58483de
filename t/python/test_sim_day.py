# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""A day of a whole machine in virtual time (``python -m rabbitsim day``)."""

from __future__ import annotations

import functools
import json
import os
import random
import subprocess
import sys
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Callable, Mapping, Optional
from xml.etree import ElementTree

import pytest

from flux_k8s.dws.storagerequest import AHEAD, UNMOUNTED
from flux_k8s.ports import Json
from rabbitsim.cli import main
from rabbitsim.day import idle, results
from rabbitsim.day.copies import BandwidthCopy, SharedFiles
from rabbitsim.day.jobs import make_jobs
from rabbitsim.day.plots import PLOTS
from rabbitsim.day.reactor import SECONDS, Meter, Reactor, ReactorPort
from rabbitsim.day.run import Day
from rabbitsim.day.site import HOUR, Site
from rabbitsim.dws.files import CopyError
from rabbitsim.flux.broker import FluxPort
from rabbitsim.flux.events import Event, JobState
from rabbitsim.flux.job import Job
from rabbitsim.loop import VirtualLoop
from support.effort import seeds
from support.tree import TOP

SMALL = ["--nodes", "32", "--rabbits", "4", "--jobs", "6", "--hours", "1"]
DOC = TOP / "doc"


def day_command(out: Path, *words: str, hash_seed: str = "0") -> str:
    """Run ``rabbitsim day``; what it prints."""
    command = [sys.executable, "-m", "rabbitsim", "day", "--out", str(out), *words]
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def numbers(out: Path) -> Json:
    """The numbers that a seed decides."""
    found: Json = json.loads((out / "day.json").read_text("utf-8"))
    del found["measured"]
    return found


def test_a_seed_gives_the_same_day_in_each_process(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    printed = day_command(one, *SMALL, hash_seed="1")
    day_command(other, *SMALL, hash_seed="2")
    assert numbers(one) == numbers(other)
    assert numbers(one)["flux-dws"] == metadata.version("flux-dws")
    assert "stuck: nothing" in printed
    for name in PLOTS:
        assert (one / name).read_bytes() == (other / name).read_bytes()
        ElementTree.parse(one / name)


def test_another_seed_gives_other_jobs() -> None:
    assert make_jobs(Site(jobs=5)) != make_jobs(Site(jobs=5, seed=1))


def test_half_of_the_jobs_copy_and_the_tasks_ask_for_the_load_of_the_site() -> None:
    site = Site()
    jobs = make_jobs(site)
    copying = sum(1 for job in jobs if job.copy_in or job.copy_out)
    assert 0.45 < copying / len(jobs) < 0.55
    assert {job.kind for job in jobs} == {"xfs", "lustre", "gfs2", "raw", "persistent"}
    assert max(job.nodes for job in jobs) > 1000
    asked = sum(job.nodes * job.seconds for job in jobs) / HOUR
    assert 0.75 < asked / (site.nodes * site.hours) <= site.load + 0.01


class NodesOfJobs:
    """The node seconds of jobs and of their tasks, by their eventlogs."""

    def __init__(self) -> None:
        self.held = self.ran = 0.0

    def seen(self, job: Job, event: Event, before: JobState) -> None:
        if job.state is not JobState.INACTIVE or before is job.state:
            return
        times = {entry.name: entry.timestamp for entry in job.events}
        if "alloc" in times:
            nodes = len(job.kvs["R"].split('"type": "node"')) - 1
            self.held += nodes * (times["free"] - times["alloc"])
            if "start" in times:
                assert job.end_event is not None
                self.ran += nodes * (job.end_event.timestamp - times["start"])


AHEAD_AND_UNMOUNTED = {"stage": AHEAD, "release": UNMOUNTED}

TROUBLED = {
    "rabbit_mtbf": 20 * HOUR,
    "node_mtbf": 100 * HOUR,
    "link_mtbf": 200 * HOUR,
    "mount_failures": 0.01,
    "unmount_failures": 0.005,
    "setup_failures": 0.05,
    "copy_failures": 0.1,
    "api_restarts": 24.0,
    "controller_restarts": 24.0,
    "module_restarts": 24.0,
}


@pytest.mark.parametrize("mode", [{}, AHEAD_AND_UNMOUNTED], ids=["usual", "ahead"])
@pytest.mark.parametrize("seed", seeds(1, soaking=40))
def test_in_a_day_of_trouble_each_node_hour_has_one_cause_and_nothing_is_stuck(
    seed: int, mode: Mapping[str, str]
) -> None:
    size = {"nodes": 32, "rabbits": 4, "jobs": 20, "hours": 4.0}
    day = Day(Site(seed=seed, **size, **mode, **TROUBLED))
    expected = NodesOfJobs()
    day.system.instance.manager.listeners.append(expected.seen)
    day.run()
    assert day.stuck == []
    assert sum(day.hours.ends.values()) == len(day.jobs)
    assert day.failures.counts and day.failures.outages
    seconds = day.hours.seconds
    assert sum(seconds.values()) == pytest.approx(expected.held)
    assert seconds[idle.RUN] == pytest.approx(expected.ran)
    assert seconds[idle.FAILURES] > 0 and seconds[idle.OUTAGES] > 0
    in_bins = [sum(counts.values()) for counts in day.hours.bins.values()]
    assert sum(in_bins) == pytest.approx(expected.held)


@functools.lru_cache(maxsize=None)
def untroubled(**mode: str) -> Day:
    """A day on which nothing fails."""
    rates = dict.fromkeys(TROUBLED, 0.0)
    for name in ("rabbit_mtbf", "node_mtbf", "link_mtbf"):
        rates[name] = float("inf")
    day = Day(Site(nodes=32, rabbits=8, jobs=20, hours=4.0, **mode, **rates))
    day.run()
    return day


def test_without_trouble_the_nodes_wait_for_dws_only_but_for_a_moment() -> None:
    found = results.to_json(untroubled())["node_hours"]
    assert found["idle"]["failures"] == found["idle"]["outages"] == 0
    assert 0 < found["ours_per_cent_of_dws"] < 1


def test_no_nodes_wait_for_data_that_moves_before_and_after_the_job_has_them() -> None:
    usual, other = (
        results.to_json(untroubled(**mode))["node_hours"]["idle"]
        for mode in ({}, AHEAD_AND_UNMOUNTED)
    )
    assert other["DataOut"] == other["Teardown"] == 0 < usual["DataOut"]
    # Of a job that copies nothing in, DWS works on DataIn all the same.
    assert other["DataIn"] < usual["DataIn"] / 20


@pytest.mark.parametrize("mode", [{}, AHEAD_AND_UNMOUNTED], ids=["usual", "ahead"])
def test_the_times_until_jobs_start_are_those_of_all_jobs_that_started(
    mode: Mapping[str, str],
) -> None:
    found = untroubled(**mode).starts.to_json()
    count = found["all"]["jobs"]
    assert count > 15
    assert sum(group["jobs"] for group in found.values()) == 2 * count
    for group in found.values():
        assert sum(group["mean_of"].values()) == pytest.approx(group["mean"], abs=0.2)
        assert group["p50"] <= group["p90"] <= group["p99"]
    for group in found.keys() & {"one_rabbit", "several", "lustre"}:
        copied = found[group]["mean_of"]
        assert (copied["depend"] > copied["prolog"]) == bool(mode)


@pytest.mark.parametrize("mode", [{}, AHEAD_AND_UNMOUNTED], ids=["usual", "ahead"])
def test_storage_that_there_is_is_kept_from_other_jobs_all_the_time(
    mode: Mapping[str, str],
) -> None:
    samples = untroubled(**mode).sampler.samples
    assert all(0 <= sample.used <= sample.kept for sample in samples)
    lasting = 10 << 40  # that of create_persistent
    assert max(sample.used for sample in samples) > lasting
    assert lasting <= samples[-1].used < 1.01 * lasting


# Copies


def shared_files(loop: VirtualLoop, failures: float = 0.0) -> SharedFiles:
    """A file system with 100 bytes a second, of which one Rabbit uses 60 at most, and
    copies of 600 bytes."""
    return SharedFiles(
        loop,
        rate=100.0,
        rabbit_rate=60.0,
        size=lambda number, way: 600,
        rabbits=lambda number: number,
        failures=failures,
        interval=5.0,
        rng=random.Random(0),
    )


def finish(files: SharedFiles, loop: VirtualLoop, *rabbits: int) -> list[float]:
    """When each of some copies, of jobs on so many Rabbits, ends."""
    ends: dict[int, float] = {}
    begin = loop.now()

    def step(index: int, copy: BandwidthCopy) -> None:
        if copy.step(0):
            ends[index] = round(loop.now() - begin, 2)
        else:
            loop.call_later(max(copy.pause, 1e-6), partial(step, index, copy))

    for index, number in enumerate(rabbits):
        step(index, files.copy(f"/lustre/{number}/in", "$DW_JOB_x/in", {}))
    loop.run(timeout=1000.0)
    return [ends[index] for index in range(len(rabbits))]


def test_a_copy_is_as_fast_as_the_rabbits_of_its_job() -> None:
    loop = VirtualLoop()
    assert finish(shared_files(loop), loop, 1) == [10.0]


def test_a_copy_is_no_faster_than_the_global_file_system() -> None:
    loop = VirtualLoop()
    assert finish(shared_files(loop), loop, 5) == [6.0]


def test_copies_share_the_global_file_system() -> None:
    loop = VirtualLoop()
    files = shared_files(loop)
    assert finish(files, loop, 1, 5) == [12.0, 12.0]
    assert files.moved == 1200.0 and not files.moving


def test_a_copy_that_fails_says_why_and_leaves_its_part_to_others() -> None:
    loop = VirtualLoop()
    files = shared_files(loop, failures=1.0)
    copy = files.copy("$DW_JOB_x/out", "/lustre/1/out", {})
    loop.run(timeout=6.0)
    with pytest.raises(CopyError, match="Input/output error"):
        copy.step(0)
    files.advance()
    assert not files.moving


# The reactor


class NoHost:
    """An instance of which the port needs nothing."""

    def __getattr__(self, name: str) -> None:
        raise NotImplementedError(name)


def reactor_port(loop: VirtualLoop) -> tuple[Reactor, ReactorPort, FluxPort, Meter]:
    port, meter = FluxPort(NoHost(), loop), Meter()  # type: ignore[arg-type]
    reactor = Reactor(port, meter, {"event": 2.0, "timer": 1.0})
    return reactor, ReactorPort(port, reactor), port, meter


def test_the_reactor_does_one_thing_after_the_other() -> None:
    loop = VirtualLoop()
    reactor, flux, _, meter = reactor_port(loop)
    begin, done = loop.now(), []

    def note(name: str) -> Callable[[], None]:
        return lambda: done.append((name, loop.now() - begin))

    reactor.add("event", note("one"))
    reactor.add("event", note("two"))
    flux.call_later(1.0, note("timer"))
    loop.run()
    assert done == [("one", 2.0), ("two", 4.0), ("timer", 5.0)]
    assert (meter.busy, meter.longest) == (5.0, 3)
    assert meter.waits == {2000: 1, 4000: 2}


def test_many_events_of_one_watch_do_not_hold_up_other_work() -> None:
    loop = VirtualLoop()
    port, meter = FluxPort(NoHost(), loop), Meter()  # type: ignore[arg-type]
    costs = {"servers": SECONDS / 2, "answer": SECONDS}
    reactor = Reactor(port, meter, costs, streams=["servers"])
    begin, done = loop.now(), []

    def see(number: int) -> None:
        done.append(str(number))
        if number == 1:
            reactor.add("answer", partial(done.append, "answer"))

    for number in range(7):
        reactor.add("servers", partial(see, number))
    loop.run()
    # One came to an idle reactor; then two at a time.
    assert done == ["0", "1", "2", "3", "4", "answer", "5", "6"]
    assert meter.busy == pytest.approx(4.5 * SECONDS)
    assert loop.now() - begin == pytest.approx(meter.busy, abs=1e-5)


def test_a_timer_that_is_cancelled_while_it_waits_for_its_turn_is_not_called() -> None:
    loop = VirtualLoop()
    reactor, flux, _, _ = reactor_port(loop)
    called: list[Optional[str]] = []
    reactor.add("event", lambda: timer.cancel())
    timer = flux.call_later(1.0, lambda: called.append("timer"))
    loop.run()
    assert called == []


def test_what_waits_for_the_reactor_of_a_module_that_dies_is_not_called() -> None:
    loop = VirtualLoop()
    reactor, _, port, _ = reactor_port(loop)
    called: list[str] = []
    reactor.add("event", lambda: called.append("event"))
    port.alive = False
    loop.run()
    assert called == []


# The command


@pytest.mark.parametrize("option", ["nodes", "jobs", "hours", "report-interval"])
def test_a_machine_or_a_day_of_nothing_is_refused(
    option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["day", f"--{option}", "0"]) == 2
    message = f"rabbitsim: --{option}: expected more than 0\n"
    assert capsys.readouterr().err == message


def test_a_directory_that_cannot_be_made_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    file.write_text("")
    assert main(["day", "--out", str(file / "out")]) == 2
    message = f"rabbitsim: --out: {file / 'out'}: Not a directory\n"
    assert capsys.readouterr().err == message
