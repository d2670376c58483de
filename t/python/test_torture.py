# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Random jobs under random trouble, a few seeds. ``make soak`` runs a thousand."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import Callable

import pytest

from flux_k8s.jobs.step import Step
from flux_k8s.ports import (
    NNFDATAMOVEMENT,
    Json,
    KubeError,
    Request,
)
from flux_k8s.reasons import Reason
from rabbitsim.cli import main
from rabbitsim.flux.job import Job
from rabbitsim.system import VirtualSystem
from rabbitsim.torture.allowances import PlannedAllowances
from rabbitsim.torture.interruptions import Interruption
from rabbitsim.torture.life import live
from rabbitsim.torture.monitor import Breach
from rabbitsim.torture.plan import Plan, make_plan
from rabbitsim.torture.record import Record, Told
from rabbitsim.torture.run import Outcome, run
from rabbitsim.torture.scenarios import SCENARIOS
from rabbitsim.torture.shrink import shrink
from rabbitsim.torture.trouble import Trouble
from rabbitsim.torture.troubles import KINDS
from rabbitsim.torture.world import World
from support.effort import SOAKING, seeds
from support.service import COPY_OUT, LIFE, XFS, jobspec, names, settle
from support.tree import TOP

SEEDS = seeds(1, 30)
CAUSES = {
    "abort": {"outage", "user", "module", "plugin"},
    "unmount": {"unmount", "node", "rabbit"},
}
ARGUMENTS = ["torture", "--seed", "3", "--jobs", "2", "--trace"]


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_gets_stuck_and_nothing_is_lost(seed: int) -> None:
    jobs = 40 if SOAKING else 20
    outcome = run(make_plan(seed, jobs, None))
    assert outcome.breach is None, (
        f"python -m rabbitsim torture --seed {seed} --jobs {jobs}"
    )


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_trouble_alone_breaks_nothing(kind: str) -> None:
    outcome = run(make_plan(7, 24 if SOAKING else 4, None, [kind]))
    assert outcome.breach is None
    assert outcome.plan.troubles or kind == "latency"
    kinds = CAUSES.get(kind, {kind})
    assert {trouble.kind for trouble in outcome.plan.troubles} <= kinds


def test_each_kind_of_trouble_has_a_row_in_the_document() -> None:
    text = (TOP / "doc/torture.md").read_text().split("**Troubles**")[1]
    table = text.split("| kind | what |\n|---|---|\n")[1].split("\n\n")[0]
    assert sorted(re.findall(r"^\| `(\w+)` \|", table, re.M)) == sorted(KINDS)


def test_without_trouble_all_good_jobs_complete() -> None:
    outcome = run(make_plan(5, 30 if SOAKING else 10, None, ()))
    assert outcome.breach is None
    good = [job for job in outcome.plan.jobs if not (job.bad or job.limited)]
    sure = [job for job in good if not job.uncertain]
    ended = outcome.ends["completed"] + outcome.ends.get("failed", 0)
    assert len(sure) <= ended <= len(good)


def test_a_status_that_is_written_late_arrives() -> None:
    """As that of a data movement, which a rescue writes."""
    system = World(make_plan(5, 1, None, ()), lambda line: None).system
    system.api_troubles.add(Trouble("api", "late", duration=60.0))
    status: Json = {"status": {"state": "Finished"}}
    made = {"metadata": {"name": "m", "namespace": "default"}, "spec": {}}
    system.store.create(NNFDATAMOVEMENT, "default", made)
    request = Request("patch_status", NNFDATAMOVEMENT, "default", "m", status)
    fault = system.api_troubles.fault(request)
    assert fault is not None and fault.error is not None
    system.loop.run(timeout=120.0)
    found = system.store.get(NNFDATAMOVEMENT, "default", "m")
    assert found.get("status") == status["status"]


def test_a_teardown_that_an_administrator_asked_for_may_be_late_as_well() -> None:
    plan = make_plan(40108, 40, None)
    admin = [t for t in plan.troubles if t.kind in ("admin", "dws") and t.job == 9]
    others = [trouble for trouble in plan.troubles if trouble not in admin]
    jobs = [job for job in plan.jobs if job.number != 9]
    assert plan.site.config.keeps_mounted and plan.site.config.postrun_timeout
    assert run(plan.without(jobs, others)).breach is None


def test_a_server_that_shows_a_rabbit_as_it_was_catches_up() -> None:
    """A Rabbit is Ready again, and the watch shows it as it was before."""
    faults = "module,watch,api,unmount,plugin,operator,user,rabbit,latency,admin"
    plan = make_plan(60323, 24, None, faults.split(","))
    jobs = [job for job in plan.jobs if job.number not in (7, 9, 10, 11, 12, 13)]
    what = {("cancel", 11), ("cancel", 12), ("stale", None), ("offline", None)}
    others = [t for t in plan.troubles if (t.what, t.job) not in what]
    assert run(plan.without(jobs, others)).breach is None


def test_a_reason_that_no_rule_knows_is_no_reason_to_fail() -> None:
    plan = make_plan(903, 40, None, ["controllers"])
    world = World(plan, lambda line: None)
    world.system.loop.run(timeout=5.0)
    job = world.system.instance.manager.active_jobs[0]
    told = Told("dws", "Kubernetes is back", Reason.KUBERNETES_BACK)
    allowances = PlannedAllowances(world)
    assert not allowances.fatal(job, Record(), told, 1300.0)
    assert not allowances.may_tell(Reason.KUBERNETES_BACK)
    assert allowances.may_tell(Reason.TEARDOWN_LATE)


def in_a_process_of_its_own(hashseed: str) -> bytes:
    path = os.pathsep.join(sys.path)
    environment = {**os.environ, "PYTHONHASHSEED": hashseed, "PYTHONPATH": path}
    command = [sys.executable, "-m", "rabbitsim", *ARGUMENTS]
    return subprocess.run(
        command, env=environment, check=True, stdout=subprocess.PIPE
    ).stdout


def test_the_same_seed_gives_the_same_output_byte_for_byte(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(ARGUMENTS) == 0
    first = capsys.readouterr().out
    assert main(ARGUMENTS) == 0
    assert capsys.readouterr().out == first
    assert in_a_process_of_its_own("1").decode() == first
    assert len(first.splitlines()) > 100


@pytest.fixture
def cancels_are_forbidden(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule that is bound to be broken."""
    real = PlannedAllowances.fatal

    def fatal(
        self: PlannedAllowances, job: Job, record: Record, told: Told, now: float
    ) -> bool:
        true = real(self, job, record, told, now)
        return told.type != "cancel" and true

    monkeypatch.setattr(PlannedAllowances, "fatal", fatal)


@pytest.mark.usefixtures("cancels_are_forbidden")
def test_a_breach_is_printed_with_its_seed_and_the_least_that_leads_to_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = ["torture", "--seeds", "20", "--jobs", "4", "--faults", "user"]
    assert main(arguments) == 1
    told = capsys.readouterr().out
    assert re.search(r"breach at step \d+ of seed \d+: exception: ", told)
    _, least = told.split("The least that leads to it:\n")
    site, job, trouble = least.split("\n\n")[0].splitlines()
    assert "user cancel job" in trouble
    assert len(told.splitlines()) < 120


def test_what_leads_to_another_breach_of_a_rule_is_not_the_least(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = make_plan(3, 4, None, ["user"])
    whole = Outcome(plan, Breach("exception", "the one"), 1, 1.0, {}, ())

    def other(plan: Plan) -> Outcome:
        return Outcome(plan, Breach("exception", "another"), 1, 1.0, {}, ())

    monkeypatch.setattr("rabbitsim.torture.shrink.run", other)
    assert shrink(whole) == whole


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["--faults", "sabotage"], "--faults: 'sabotage' is unknown, known: module"),
        (["--jobs", "0"], "--jobs and --seeds: expected at least 1"),
        (["--minutes", "0"], "--minutes: 0 is not a time, expected > 0"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["torture", *arguments]) == 2
    assert said in capsys.readouterr().err


# States that are never observed: the service sees some of what happens only


EVERY = (0.3, 2.0, 7.0, 61.0)


def looking_now_and_then(system: VirtualSystem, seconds: float) -> None:
    """From now on the service sees what there is each ``seconds``, and nothing
    of what happened in between."""

    def look() -> None:
        if system.service_kube is not None:
            system.service_kube.drop_watches(KubeError(410, "Expired", "too old"))
            # The list is made half a second later; then silence again.
            system.loop.call_later(0.55, system.service_kube.silence_watches)
        system.loop.call_later(seconds + 0.6, look)

    look()


def finished(make: Callable[[VirtualSystem], None]) -> tuple[VirtualSystem, int]:
    system = VirtualSystem()
    system.start()
    make(system)
    jobid = system.instance.submit(jobspec([XFS, COPY_OUT]))
    settle(system)
    return system, jobid


@pytest.mark.parametrize("seconds", EVERY)
def test_a_job_lives_its_life_on_glimpses(seconds: float) -> None:
    system, jobid = finished(lambda system: looking_now_and_then(system, seconds))
    assert names(system, jobid) == LIFE


@pytest.mark.parametrize("seconds", EVERY)
def test_deletions_that_nobody_saw_are_seen(seconds: float) -> None:
    system = VirtualSystem()
    system.start()
    looking_now_and_then(system, seconds)
    jobids = [system.instance.submit(jobspec(nodes=1)) for _ in range(5)]
    settle(system)
    system.loop.run(timeout=300)
    assert all(names(system, jobid) == LIFE for jobid in jobids)
    answers = []
    assert system.service is not None
    system.service.request("stats-get", {}, lambda *answer: answers.append(answer[2]))
    assert answers[0]["jobs"] == 0


# The stories that a machine tries to death (``test_stories.py``) reach every step, and
# ``rabbitsim torture --crash-points`` shows each point


def test_every_step_that_the_service_can_take_is_a_crash_point() -> None:
    reached = {
        point.step.split()[0]
        for scenario in SCENARIOS
        for point in live(scenario).points
    }
    # A Workflow is read where somebody else may have done away with it: no scenario has
    # that, but many stories. And a service that waits or forgets takes no step.
    told = {step.name for step in Step} - {"LOOK_UP", "WAIT", "FORGET"}
    assert told - reached == set()


def test_what_the_service_asks_of_flux_is_a_crash_point() -> None:
    requests = {
        point.request for scenario in SCENARIOS for point in live(scenario).points
    }
    assert requests >= {
        "job-manager.dws.prolog-remove",
        "the job exception",
        "the memo rabbits",
        "the KVS key rabbit_workflow",
        "draining compute-02",
        "undraining compute-02",
        "the program /site/is-fenced",
        "whether the job has ended",
        "patch_status nnfdatamovements",
    }


def test_the_crash_points_are_printed_as_a_table(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shortest = [one for one in SCENARIOS if one.name == "a job that DWS refuses"]
    monkeypatch.setattr("rabbitsim.torture.crashpoints.SCENARIOS", shortest)
    assert main(["torture", "--crash-points"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for interruption in Interruption:
        assert f"a job that DWS refuses: {interruption.value}" in lines
    assert any("create workflows" in line and line.endswith("ok") for line in lines)
    assert lines[-1] == "all passed"
