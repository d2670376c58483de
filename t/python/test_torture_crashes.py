# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Crashes between two related writes: the module dies after each step that it
takes, and after each single request, and no job can tell.

``make soak`` has it die at each of these points in each scenario. Here it does so in
the standard job, and at every thirtieth point of the others, which begin at different
ones; every sixth request of the standard job is refused, and every sixth has its answer
lost, and the job is cancelled at every fourth point.
"""

from __future__ import annotations

import re

import pytest

from flux_k8s.jobs import steps
from rabbitsim.cli import main
from rabbitsim.torture.crashpoints import SCENARIOS, Interruption, Scenario, check, live


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_no_job_can_tell_that_the_module_died(scenario: Scenario) -> None:
    number = SCENARIOS.index(scenario)
    results = check(scenario, first=number % 20, every=30 if number else 1)
    assert results
    assert [f"{point}: {wrong}" for point, wrong in results if wrong] == []


@pytest.mark.parametrize(
    "interruption", [Interruption.REFUSED, Interruption.LOST], ids=lambda m: m.value
)
def test_no_job_can_tell_that_one_request_went_wrong(
    interruption: Interruption,
) -> None:
    first = 0 if interruption is Interruption.REFUSED else 3
    results = check(SCENARIOS[0], interruption, first=first, every=6)
    assert results and [f"{point}: {wrong}" for point, wrong in results if wrong] == []


def test_a_job_may_be_cancelled_at_any_step() -> None:
    results = check(SCENARIOS[0], Interruption.CANCEL, first=1, every=4)
    assert results and [f"{point}: {wrong}" for point, wrong in results if wrong] == []


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
