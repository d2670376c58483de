# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What a job loses of its data."""

from __future__ import annotations

from flux_k8s.jobs.losses import data_loss
from flux_k8s.jobs.workflowinfo import Goal, Haste, WorkflowInfo
from flux_k8s.reasons import Note, Reason


def test_an_abort_gives_up_the_data_of_a_job_whose_workflow_is_gone() -> None:
    info = WorkflowInfo(1, Goal.RELEASED, ran=True, haste=Haste.ABORT)
    given_up = Note("its epilog was given up", Reason.EPILOG_GIVEN_UP)
    assert data_loss(info) == given_up
