# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Jobs that are cancelled."""

from __future__ import annotations

from rabbitsim.dws.options import Fault as DwsFault
from rabbitsim.torture.deeds import cancel, tear_down, unload, unload_plugin
from rabbitsim.torture.outages import slow_kube
from rabbitsim.torture.story import COPY_OUT, XFS, Job, Story, When

DEAF = {"exec": {"test": {"run_duration": "600s", "deaf": True}}}
SLOW = Job((XFS, COPY_OUT), attributes=DEAF)
"""A job whose tasks take their time to end."""

LIMITED = Job((XFS, COPY_OUT), attributes={**DEAF, "duration": 60.0})
KEEP = Job(("#DW create_persistent type=xfs capacity=1GiB name=keep",))

STORIES = (
    Story(
        "a job whose mounts are listed slowly when it ends has no memo then",
        "Proposal..PreRun cancel! Teardown..gone",
        troubles=(
            DwsFault("PreRun", "never", duration=60.0),
            When("PreRun", cancel, 1.0),
            When("Teardown", slow_kube(600.0, 6.0, "get", "list")),
        ),
    ),
    *(
        Story(
            f"{name}{how}",
            f"Proposal..start {course} clean gone",
            data,
            job=job,
            troubles=(*troubles, *(When(word, deed, after + 0.5) for deed in deeds)),
        )
        for name, course, data, job, troubles, word, after in (
            (
                "a second cancel while tasks are ending leaves the data to be copied",
                "cancel! cancel! finish..Teardown",
                "out",
                SLOW,
                (When("start", cancel, 5.0), When("start", cancel, 6.0)),
                "start",
                6.0,
            ),
            (
                "a cancel after the time limit leaves the data to be copied",
                "timeout! cancel! finish..Teardown",
                "out",
                LIMITED,
                (When("timeout!", cancel, 1.0),),
                "timeout!",
                1.0,
            ),
            (
                "a cancel after the tasks have ended gives the data up",
                "cancel! cancel! finish cancel! PostRun given-up! Teardown",
                "given-up",
                SLOW,
                (
                    DwsFault("PostRun", "never"),
                    When("start", cancel, 5.0),
                    When("start", cancel, 6.0),
                    When("finish", cancel),
                ),
                "finish",
                0.0,
            ),
        )
        for how, deeds in (
            ("", ()),
            (
                ", and plugin and module are loaded anew",
                (unload_plugin(0.0), unload(0.0)),
            ),
        )
    ),
    Story(
        "a cancelled job names the persistent storage that it has made",
        "Proposal..PreRun cancel! Teardown persistent-left clean gone",
        job=KEEP,
        troubles=(
            DwsFault("PreRun", "slow", duration=60.0),
            When("PreRun", cancel, 5.0),
        ),
    ),
    Story(
        "a cancelled job that has made no persistent storage yet names none",
        "Proposal..Setup cancel! Teardown..gone",
        job=KEEP,
        troubles=(DwsFault("Setup", "never"), When("Setup", cancel, 5.0)),
    ),
    Story(
        "a Teardown that others have asked for is told as well when it takes long",
        "Proposal alloc Teardown cancel! teardown-late clean gone",
        troubles=(
            DwsFault("Teardown", "slow", duration=300.0),
            When("alloc", tear_down),
            When("alloc", cancel),
        ),
        spans=(("Teardown", "teardown-late", 60.0),),
    ),
)
