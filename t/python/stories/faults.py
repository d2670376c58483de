# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Internal errors of the service, and its deaths: they are at the cost of one job, and
of no other."""

from __future__ import annotations

from flux_k8s.ports import CLIENTMOUNT
from rabbitsim.torture.deeds import break_step, die_in, mend, submit, unload_plugin
from rabbitsim.torture.outages import break_next, break_reader
from rabbitsim.torture.story import COPY_IN, COPY_OUT, LIFE, XFS, Job, Story, When, of

JOB = Job((XFS, COPY_OUT), nodes=1)
AHEAD = Job((XFS, COPY_IN), stage="ahead")
MENDED = When("clean", mend, 60.0)

UP = {
    "CREATE": "{} clean",
    "PLAN": "Proposal {} Teardown..gone",
    "PLACE": "Proposal alloc {} Teardown..gone",
    "MOVE to PreRun": "Proposal..DataIn {} Teardown..gone",
    "RELEASE_PROLOG": "Proposal..PreRun {} Teardown..gone",
}
"""The course of a job that fails in a step."""

DOWN = {
    "MOVE to PostRun": (
        "Proposal..finish drain:compute-01 unmount-failed service-fault! clean "
        "disable:compute-01 Teardown gone",
        "service-fault",
    ),
    "MOVE to DataOut": (
        "Proposal..PostRun service-fault! clean Teardown gone",
        "service-fault",
    ),
    "MOVE to Teardown": (
        "Proposal..DataOut service-fault clean Teardown gone",
        "out",
    ),
    "RELEASE_EPILOG": (
        "Proposal..Teardown service-fault clean gone",
        "out",
    ),
    "DELETE": (LIFE, "out"),
}
"""That of one whose storage cannot be released then, until another module is loaded;
and what becomes of its data."""

BOTH = (
    "Proposal 2:Proposal alloc 2:alloc Setup 2:Setup DataIn 2:DataIn PreRun 2:PreRun "
    "start finish 2:start 2:finish PostRun 2:PostRun DataOut 2:DataOut Teardown "
    "2:Teardown"
)

STORIES = (
    *(
        Story(
            f"the service fails in {step}",
            course.format("service-fault!"),
            job=JOB,
            troubles=(When("", break_step(step)),),
        )
        for step, course in UP.items()
    ),
    *(
        Story(
            f"services die in {step}",
            course.format("barred!"),
            job=JOB,
            troubles=(When("", die_in(step)),),
        )
        for step, course in UP.items()
        if step in ("CREATE", "PLACE")
    ),
    *(
        Story(
            f"the service fails in {step}, and is mended then",
            course,
            data,
            job=JOB,
            troubles=(When("", break_step(step)), MENDED),
        )
        for step, (course, data) in DOWN.items()
    ),
    *(
        Story(
            f"services die in {step}, and are mended then",
            course,
            job=JOB,
            troubles=(When("", die_in(step)), MENDED),
        )
        for step, course in (
            ("RELEASE_EPILOG", "Proposal..Teardown barred clean gone"),
            ("DELETE", LIFE),
        )
    ),
    *(
        Story(
            f"{what} in {step} beside another job",
            course.format(told),
            job=JOB,
            others=(JOB,),
            troubles=(When("", deed(step)), MENDED),
        )
        for what, deed, told, last in (
            (
                "the service fails",
                break_step,
                "service-fault",
                "2:clean 2:gone {} clean gone",
            ),
            ("services die", die_in, "barred", "{} clean 2:clean 2:gone gone"),
        )
        for step, course in (
            (
                "PLACE",
                "Proposal 2:Proposal alloc 2:alloc {}! Teardown 2:Setup..PreRun "
                "clean gone 2:start..gone",
            ),
            ("RELEASE_EPILOG", f"{BOTH} {last}"),
        )
    ),
    *(
        Story(
            f"a job that cannot even be failed {what}",
            course,
            job=job,
            others=(job,),
            troubles=(
                When("", break_step(step)),
                When("", break_step("the job exception")),
                When("2:clean", mend, 60.0),
            ),
            log="service-fault service-fault",
        )
        for what, step, job, course in (
            ("is left alone", "PLAN", JOB, f"Proposal {of(2, LIFE)} alloc..gone"),
            (
                "holds up no other one that waits for storage",
                "STAGE",
                AHEAD,
                "Proposal 2:Proposal 2:Setup 2:DataIn 2:alloc 2:PreRun..gone Setup "
                "DataIn alloc PreRun..gone",
            ),
        )
    ),
    Story(
        "the epilog of a job that is given up is released, whatever else breaks",
        DOWN["MOVE to DataOut"][0],
        job=JOB,
        troubles=(
            When("", break_step("MOVE to DataOut")),
            When("PostRun", break_next(CLIENTMOUNT), after=0.1),
            MENDED,
        ),
    ),
    Story(
        "the service fails in MOVE to PostRun while the plugin is away",
        "Proposal..finish drain:compute-01 unmount-failed service-fault! "
        "disable:compute-01 clean Teardown gone",
        "service-fault",
        job=JOB,
        troubles=(
            When("", break_step("MOVE to PostRun")),
            When("finish", unload_plugin(30.0)),
            MENDED,
        ),
    ),  # A large R is read by another process.
    Story("another process reads R", LIFE, "out", large=True),
    Story(
        "the process that reads R fails, at the cost of one job",
        f"Proposal alloc dws! Teardown clean gone {of(2, LIFE)}",
        "not-run",
        troubles=(
            When("alloc", break_reader(30.0, "it was killed by SIGKILL")),
            When("alloc", submit(Job()), 60.0),
        ),
        large=True,
    ),
)
