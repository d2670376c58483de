# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The stories that a machine tries to death (``test_stories.py``) reach every step, and
``rabbitsim torture --crash-points`` shows each point."""

from __future__ import annotations

import pytest

from flux_k8s.jobs.step import Step
from rabbitsim.cli import main
from rabbitsim.torture.interruptions import Interruption
from rabbitsim.torture.life import live
from rabbitsim.torture.scenarios import SCENARIOS


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
