# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Time limits: they count from when a state is asked for, and not in an outage."""

from __future__ import annotations

from flux_k8s.config.table import Config
from flux_k8s.ports import SERVERS, WORKFLOW, KubeError
from rabbitsim.dws.directive import STATES
from rabbitsim.dws.options import Fault as DwsFault
from rabbitsim.kube.objects import timestamp
from rabbitsim.torture.api import DONE_ALL_THE_SAME, ERRORS
from rabbitsim.torture.deeds import delete, patch_workflows, unload
from rabbitsim.torture.life import StorySystem
from rabbitsim.torture.outages import fail_for, outage, pause_dws, report, slow_kube
from rabbitsim.torture.story import (
    LIFE,
    XFS,
    Job,
    Story,
    When,
    spell_out,
)

KEYS = ("setup_timeout", "prerun_timeout", "postrun_timeout", "teardown_after")
ALL = Config.parse(dict.fromkeys(KEYS, 60))
SLOW = dict.fromkeys(STATES, 1.0)
OUTAGE = 900.0

REFUSED = KubeError(500, "InternalError", "failed calling webhook: refused")

STEPS = (
    ("", "Proposal", "setup-timeout!"),
    ("Proposal alloc", "Setup", "setup-timeout!"),
    ("Proposal..Setup", "DataIn", "setup-timeout!"),
    ("Proposal..DataIn", "PreRun", "prerun-timeout!"),
)
"""The course to a state that is asked for, the state, and what its limit is told by."""


def break_workflow(system: StorySystem) -> None:
    """DWS writes what is no reference."""
    patch_workflows(system, {"status": {"computes": {"namespace": ""}}})


STORIES = (
    *(
        Story(
            f"{state} counts from when it is asked for, whether DWS takes it up or not",
            f"{before} {state} {over} Teardown teardown-late clean gone".lstrip(),
            troubles=(When(state if before else "", pause_dws(160.0)),),
            config=ALL,
            latency=SLOW,
        )
        for before, state, over in STEPS
    ),
    Story(
        "PostRun counts from when it is asked for, whether DWS takes it up or not",
        "Proposal..PostRun drain:compute-01 drain:compute-02 unmount-failed "
        "postrun-timeout! Teardown disable:compute-01 disable:compute-02 "
        "teardown-late clean gone",
        troubles=(When("PostRun", pause_dws(160.0)),),
        config=ALL,
        latency=SLOW,
        spared="teardown-late",
        harm=True,
    ),
    Story(
        "DataOut counts from when it is asked for, whether DWS takes it up or not",
        "Proposal..DataOut teardown-after! Teardown teardown-late clean gone",
        troubles=(When("DataOut", pause_dws(160.0)),),
        config=ALL,
        latency=SLOW,
        spared="teardown-late",
    ),
    Story(
        "teardown_after is that of PostRun and DataOut together",
        "Proposal..DataOut teardown-after! Teardown..gone",
        "teardown-after",
        latency={"PostRun": 40.0, "DataOut": 40.0},
        config=Config(teardown_after=60.0),
        spans=(("PostRun", "teardown-after!", 60.0),),
        spared="teardown-after",
    ),
    *(
        Story(
            f"a limit of 0 is off ({key})",
            LIFE,
            latency={**dict.fromkeys(STATES, 100.0), "Teardown": 1.0},
            config=Config.parse({key: 0}),
        )
        for key in KEYS
    ),
    Story(
        "a TransientCondition lasts longer than tc_timeout",
        "Proposal..Setup transient-condition! Teardown..gone",
        troubles=(DwsFault("Setup", "transient", message="busy"),),
        spans=(("Setup", "transient-condition!", 10.0),),
    ),
    Story(
        "a TransientCondition that says something else all the time has its limit",
        "Proposal..Setup transient-condition! Teardown..gone",
        troubles=(
            DwsFault("Setup", "transient", message="busy"),
            When("Setup", slow_kube(60.0, 0.6, "get", kind=WORKFLOW), 1.0),
            *(
                When(
                    "Setup", report("TransientCondition", timestamp(number)), number / 2
                )
                for number in range(2, 60)
            ),
        ),
        away=0.6,
    ),
    Story(
        "DWS does not take up Teardown for long",
        "Proposal..Teardown teardown-late clean gone",
        "out",
        troubles=(When("Teardown", pause_dws(400.0)),),
        log="teardown-late",
    ),
    *(
        Story(
            f"Kubernetes refuses {state}: that counts from the first try ({status})",
            f"{before} {over} Teardown..gone" if before else f"{over} clean",
            troubles=(
                When(
                    spell_out(before).rpartition(" ")[2].replace("alloc", "Proposal"),
                    fail_for(
                        *(400.0, KubeError(status, "InternalError", "no webhook")),
                        *("create", "patch"),
                        kind=WORKFLOW,
                    ),
                ),
            ),
            config=ALL,
            latency=SLOW,
        )
        for before, state, over in STEPS
        for status in (403, 500, 503)
    ),
    *(
        Story(
            f"Kubernetes refuses {state} for longer than {seconds} s",
            f"{course} {over}! Teardown..gone",
            over,
            troubles=(
                When(
                    spell_out(course).rpartition(" ")[2].replace("finish", "start"),
                    fail_for(300.0 + 3 * seconds, REFUSED, "patch", kind=WORKFLOW),
                ),
            ),
            config=Config.parse(dict.fromkeys(KEYS, seconds)),
            latency=SLOW,
        )
        for state, course, over in (
            ("PostRun", "Proposal..finish", "postrun-timeout"),
            ("DataOut", "Proposal..PostRun", "teardown-after"),
        )
        for seconds in (60, 600)
    ),
    Story(
        "a limit counts from the first try for a module that is loaded later as well",
        "Proposal..DataIn PreRun prerun-timeout! Teardown..gone",
        troubles=(
            DwsFault("PreRun", "never"),
            When("DataIn", fail_for(31.0, REFUSED, "patch", kind=WORKFLOW), 0.5),
            When("PreRun", unload(1.0), 1.0),
        ),
        config=Config.parse({"prerun_timeout": 100}),
        latency=SLOW,
        spans=(("DataIn", "prerun-timeout!", 101.0),),
    ),
    Story(
        "Kubernetes refuses Servers: that counts as Setup",
        "Proposal alloc setup-timeout! Teardown..gone",
        troubles=(When("Proposal", fail_for(400.0, REFUSED, "patch", kind=SERVERS)),),
        config=ALL,
        latency=SLOW,
    ),
    *(
        Story(
            f"an outage in {state} is counted by no limit ({kind})",
            LIFE,
            troubles=(
                When(
                    state,
                    outage(
                        OUTAGE,
                        error,
                        done=kind in (*DONE_ALL_THE_SAME, "late"),
                        hangs=kind in ("hang", "late"),
                    ),
                ),
            ),
            config=Config.parse(dict.fromkeys(KEYS, 300)),
            latency=SLOW,
            log="kubernetes-away kubernetes-back",
            away=OUTAGE,
        )
        for row, (kind, error) in enumerate(ERRORS.items())
        for column, state in enumerate(STATES[:-1])
        if (row + column) % 4 == 0
    ),
    Story(
        "an outage in PostRun is not counted by a module that is loaded in it",
        LIFE,
        troubles=(
            When("PostRun", outage(OUTAGE)),
            When("PostRun", unload(OUTAGE / 2), after=OUTAGE / 2),
        ),
        config=Config(teardown_after=600.0),
        latency=SLOW,
        away=OUTAGE,
    ),
    *(
        Story(
            f"teardown_after stands still while Kubernetes and DWS are away{how}",
            LIFE,
            troubles=(
                DwsFault("DataOut", "slow", duration=400.0),
                When("DataOut", outage(OUTAGE), after=100.0),
                When("DataOut", pause_dws(OUTAGE), after=100.0),
                *then,
            ),
            config=Config(teardown_after=600.0),
            away=OUTAGE,
        )
        for how, then in (
            ("", ()),
            (
                ", for another module too",
                (When("DataOut", unload(5.0), after=OUTAGE + 110.0),),
            ),
        )
    ),
    Story(
        "a TransientCondition has one limit, whichever module sees it",
        "Proposal..Setup transient-condition! Teardown..gone",
        troubles=(
            DwsFault("Setup", "transient", message="busy"),
            When("Setup", unload(0.0), after=8.0),
        ),
        spans=(("Setup", "transient-condition!", 18.0),),
    ),
    Story(
        "two short TransientConditions are not one long one",
        LIFE,
        troubles=(
            DwsFault("Setup", "slow", duration=16.0),
            *(
                When("Setup", report(status), after=after)
                for status, after in (
                    ("TransientCondition", 1.0),
                    ("DriverWait", 7.0),
                    ("TransientCondition", 8.0),
                    ("DriverWait", 14.0),
                )
            ),
        ),
    ),
    Story(
        "DWS fails in Teardown",
        "Proposal..Teardown teardown-failed! gone clean",
        "out",
        troubles=(
            DwsFault("Teardown", "error", message="the pool is gone"),
            When("Teardown", delete, after=200.0),
            *(When("Teardown", unload(0.0), after=8.0 * number) for number in (1, 2)),
        ),
        log="teardown-failed",
    ),
    Story(
        "DWS writes what is no Workflow in Teardown, and does not go on",
        "Proposal..Teardown teardown-late clean gone",
        job=Job((XFS,)),
        troubles=(
            DwsFault("Teardown", "never", duration=400.0),
            When("Teardown", break_workflow),
            *(When("Teardown", unload(0.0), after=8.0 * number) for number in (1, 2)),
        ),
        log="teardown-late",
    ),
    *(
        Story(
            f"the times without Kubernetes, and without a module, add up ({first} s, "
            f"{second} s)",
            LIFE,
            latency=SLOW,
            troubles=(
                DwsFault("PostRun", "slow", duration=200.0),
                When("PostRun", unload(0.0), after=10.0),
                When("PostRun", outage(first, hangs=True), after=10.0),
                When("PostRun", unload(second), after=160.0),
            ),
        )
        for first, second in ((0.1, 100.1), (7.7, 101.7), (33.3, 103.3))
    ),
)
