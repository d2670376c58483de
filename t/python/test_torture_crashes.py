# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Each scenario is tried to death: the module dies after a step that it takes, or after
a single request, or the request is refused, or its answer is lost, and no job can tell;
or the job is cancelled there, an answer is late, or the plugin is loaded anew, and the
job ends well.

``make soak`` does each of these at each point of each scenario. Here it is a sample,
which the commit chooses, or ``SEED=`` (the header of pytest's output names it).
"""

from __future__ import annotations

import random
import re

import pytest

from flux_k8s.jobs import steps
from rabbitsim.cli import main
from rabbitsim.torture.crashpoints import SCENARIOS, Interruption, Scenario, check, live
from support.seed import SEED

EVERY = {Interruption.CRASH: 20}
"""At one of so many points each interruption happens, by default at one of 60."""


@pytest.mark.parametrize("interruption", Interruption, ids=lambda one: one.name)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_no_job_can_tell_that_something_went_wrong(
    scenario: Scenario, interruption: Interruption
) -> None:
    every = EVERY.get(interruption, 60)
    draw = random.Random(f"{SEED} {scenario.name} {interruption.name}")
    first = draw.randrange(min(every, len(live(scenario).points)))
    results = check(scenario, interruption, first, every)
    assert results
    assert [f"{point}: {wrong}" for point, wrong in results if wrong] == []


def test_every_step_that_the_service_can_take_is_a_crash_point() -> None:
    reached = {
        point.step.split()[0]
        for scenario in SCENARIOS
        for point in live(scenario).points
    }
    source = re.findall(r"isinstance\(step, (\w+)\)", open(steps.__file__).read())
    assert source and set(source) - reached == set()


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
