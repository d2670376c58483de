# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Kubernetes is out of reach, refuses what is asked of it, or tells what is not so."""

from __future__ import annotations

import itertools
from typing import Optional

from flux_k8s.config.table import Config
from flux_k8s.ports import (
    CLIENTMOUNT,
    DIRECTIVEBREAKDOWN,
    NNFDATAMOVEMENT,
    SECRET,
    SERVERS,
    STORAGE,
    SYSTEMSTATUS,
    WORKFLOW,
    KubeError,
    Request,
)
from rabbitsim.dws.directive import STATES
from rabbitsim.dws.options import Fault as DwsFault
from rabbitsim.kube.direct import Fault
from rabbitsim.torture.deeds import (
    ask_deletion,
    break_rabbit,
    cancel,
    delete,
    rescue,
    set_urgency,
    submit,
    unlink,
    unload,
    unload_plugin,
)
from rabbitsim.torture.life import StorySystem
from rabbitsim.torture.outages import (
    empty_next,
    fail_for,
    fail_next,
    hide,
    lose_watches,
    outage,
    pause_dws,
    slow_kube,
)
from rabbitsim.torture.story import (
    COPY_IN,
    LIFE,
    NODE,
    XFS,
    Job,
    Story,
    When,
    deed,
)

HOUR = 3600.0
SLOW = dict.fromkeys(STATES, 1.0)
MISSING = KubeError(404, "NotFound", "workflows not found")
BROKEN = KubeError(500, "InternalError", "a webhook is broken")
FORBIDDEN = KubeError(403, "Forbidden", "a role is gone")
LATER = KubeError(429, "TooManyRequests", "please wait", retry_after=100.0)
AHEAD = Job((XFS, COPY_IN), stage="ahead")


def hang(system: StorySystem) -> None:
    """Data movements are not listed in time, which nobody asks for again."""
    silence = Fault(delay=15.0, error=KubeError(0, "timeout", "no answer within 15 s"))
    system.disturb(silence, ("list",), NNFDATAMOVEMENT, 20.0)


@deed
def alternate(system: StorySystem, texts: int) -> None:
    """In an outage of an hour each error is another one of so many."""
    until, number = system.loop.now() + HOUR, itertools.count()

    def fault(request: Request) -> Optional[Fault]:
        proxy = next(number) % texts
        error = KubeError(502, f"BadGateway{proxy}", f"proxy {proxy} is out")
        return Fault(error=error) if system.loop.now() < until else None

    system.api_fault = fault
    lose_watches(system)


def fail_late(system: StorySystem) -> None:
    """DirectiveBreakdowns cannot be read, which is heard 5 s later."""
    late = Fault(delay=5.0, error=BROKEN)
    system.disturb(late, ("get",), DIRECTIVEBREAKDOWN, 300.0)


def slow_groups(system: StorySystem) -> None:
    """The user database takes a minute."""
    system.instance.group_delay = 60.0


STORIES = (
    Story(
        "a rescue has no answer, and the limits of others run on",
        "Proposal..DataOut kept dws-failed! clean 2:Proposal 2:alloc 2:Setup "
        "2:setup-timeout! 2:Teardown 2:teardown-late kept 2:clean 2:gone Teardown gone",
        troubles=(
            DwsFault("DataOut", "copy"),
            When("clean", submit(Job()), 5.0),
            When("2:Setup", pause_dws(HOUR)),
            When("2:Setup", hang, 4.0),
            When("2:Setup", rescue, 5.0),
        ),
        config=Config(keep_failed=2 * HOUR, setup_timeout=60.0),
        latency={"Setup": 2.0},
        may=("dws-failed", "setup-timeout"),
    ),
    *(
        Story(
            f"module and plugin are loaded anew in an outage in {state}",
            LIFE,
            latency=SLOW,
            troubles=(
                When(state, outage(HOUR), after=0.5),
                When(state, unload(HOUR), after=HOUR / 2),
                When(state, unload_plugin(0.0), after=HOUR / 2),
            ),
            away=HOUR,
        )
        for state in ("Setup", "DataOut")
    ),
    Story(
        "an outage is told once to a job that is cancelled as the module is back",
        "cancel! clean",
        troubles=(
            When("", outage(60.0)),
            When("", unload(10.0), 20.0),
            When("", cancel, 30.0),
        ),
        away=60.0,
    ),
    *(
        Story(
            f"the first thirty requests fail ({status})",
            LIFE,
            troubles=(
                When(
                    "",
                    fail_next(
                        *(30, KubeError(status, "Outage", "the lights are out")),
                        *("create", "get", "patch", "list", "watch", "delete"),
                    ),
                ),
                When("", lose_watches),
            ),
        )
        for status in (0, 401, 409, 429)
    ),
    Story(
        "a job waits an hour for an outage of an hour",
        LIFE,
        latency=SLOW,
        troubles=(When("DataIn", outage(HOUR)),),
        spans=(("DataIn", "PreRun", HOUR + 1.0),),
        away=HOUR,
    ),
    Story(
        "a request that fails by itself is tried again, and is no outage",
        LIFE,
        troubles=(When("", fail_for(60.0, KubeError(500, "", ""), "create")),),
        log="kubernetes-error",
    ),
    Story(
        "each failure of a step is logged once, however often it is tried",
        LIFE,
        troubles=(
            When("", fail_for(480.0, BROKEN, "get", kind=DIRECTIVEBREAKDOWN)),
            When("", break_rabbit("rabbit-01", 120.0, "Offline")),
            When("", break_rabbit("rabbit-01", 120.0, "Offline"), after=240.0),
            When(
                "",
                fail_for(120.0, FORBIDDEN, "get", kind=DIRECTIVEBREAKDOWN),
                after=480.0,
            ),
        ),
        log="kubernetes-error kubernetes-error",
    ),
    *(
        Story(
            f"the errors of an outage alternate ({texts})",
            LIFE,
            latency=SLOW,
            troubles=(When("PreRun", alternate(texts)),),
            away=HOUR,
        )
        for texts in (2, 1000)
    ),
    Story(
        "the user database says nothing for a minute",
        LIFE,
        troubles=(When("", slow_groups),),
        unlogged="kubernetes-away",
    ),
    Story(
        "Kubernetes answers again and again, however long a step takes",
        "Proposal..PostRun postrun-timeout! Teardown clean gone",
        troubles=(
            DwsFault("PostRun", "never"),
            When("", slow_kube(HOUR, 4.9, "get", "list")),
        ),
        config=Config(postrun_timeout=60.0),
        unlogged="kubernetes-away",
    ),
    Story(
        "a Workflow that is deleted during a step that fails waits for no pause",
        "Proposal gone Proposal..gone",
        # (At 128 s they are asked for, and at 190 s again.)
        troubles=(When("", fail_late), When("Proposal", ask_deletion, after=129.0)),
        spans=(("Proposal", "gone", 133.0),),
    ),
    Story(
        "a server that is to be asked later is asked no sooner",
        LIFE,
        troubles=(When("alloc", fail_next(3, LATER, "patch", kind=SERVERS)),),
        spans=(("alloc", "Setup", 300.0),),
    ),
    Story(
        "no job waits longer for a server that is well again",
        "2:Proposal Proposal 2:alloc..gone alloc..gone",
        job=Job(nodes=1, urgency=0),
        troubles=(
            When("", fail_next(1, LATER, "create")),
            When("", submit(Job(nodes=1)), after=5.0),
            When("Proposal", set_urgency(16), after=60.0),
        ),
        spans=(("2:Proposal", "Proposal", 0.0),),
    ),
    Story(
        "a Workflow comes and goes while its watch is away",
        "Proposal gone Proposal..gone",
        troubles=(
            DwsFault("Proposal", "never", duration=60.0),
            When("", fail_for(3.0, KubeError(504, "", ""), "watch", kind=WORKFLOW)),
            When("", lose_watches),
            When("Proposal", delete, after=1.0),
        ),
        log="workflow-remade",
    ),
    *(
        Story(
            f"a Workflow goes while {kind.plural} are awaited, before its job starts",
            "Proposal..PreRun gone workflow-deleted! clean",
            job=Job((f"{XFS} requires=copy-offload",)),
            troubles=(
                When("PreRun", slow_kube(5.0, 1.0, "get", kind=kind)),
                When("PreRun", delete, after=0.7),
            ),
            config=Config.parse({"daemons": {"copy-offload": {}}}),
        )
        for kind in (SYSTEMSTATUS, SECRET)
    ),
    Story(
        "a node that has mounted loses its Rabbit while watches are lost, and one list "
        "of mounts is empty",
        "Proposal..PreRun drain:compute-02 start..gone undrain:compute-02",
        latency={"PreRun": 5.0},
        troubles=(
            When("PreRun", lose_watches, after=1.0),
            When("PreRun", unlink(10.0), after=4.5),
            When("PreRun", empty_next(CLIENTMOUNT), after=4.5),
        ),
    ),
    Story(
        "a node loses its Rabbit, which its job tolerates, and one list of Rabbits is "
        "empty",
        "Proposal..Setup drain:compute-02 DataIn PreRun nodes-excluded start..gone",
        job=Job(tolerance=1, seconds=2.0),
        troubles=(When("alloc", unlink()), When("PreRun", empty_next(STORAGE))),
        config=Config(prerun_timeout=60.0),
    ),
    *(
        Story(
            f"a node does not unmount in time, and one list of mounts is empty{late}",
            "Proposal..PostRun drain:compute-02 unmount-failed postrun-timeout! "
            "Teardown disable:compute-02 clean gone",
            troubles=(
                DwsFault("PostRun", "mount", node=NODE),
                When("PostRun", empty_next(CLIENTMOUNT, delay)),
            ),
            config=Config(postrun_timeout=30.0),
            spared="postrun-timeout",
            harm=True,
            freed=True,
        )
        for late, delay in (("", 0.0), (", and late", 12.0))
    ),
    *(
        Story(
            f"all {kind.plural} are hidden in {state}",
            LIFE,
            job=Job(seconds=1.0),
            troubles=(When(state, hide(kind, times)),),
        )
        for row, (kind, times) in enumerate(((WORKFLOW, 2), (SERVERS, 1), (STORAGE, 1)))
        for column, state in enumerate(STATES[1:])
        if (row + column) % 2 == 0
    ),
    Story(
        "all Workflows are hidden while one is created",
        LIFE,
        troubles=(
            When("", slow_kube(9.0, 10.0, "create", kind=WORKFLOW)),
            When("Proposal", hide(WORKFLOW)),
        ),
    ),
    *(
        Story(
            f"{what} {kind.plural} are hidden when a job's data is staged",
            "Proposal Setup DataIn alloc PreRun..gone",
            job=AHEAD,
            troubles=(
                When("DataIn", hide(kind, but_for=but_for)),
                When("DataIn", lose_watches, 60.0),  # the next list is right
            ),
        )
        for kind in (SERVERS, STORAGE)
        for what, but_for in (("all", 0), ("most", 1))
    ),
    Story(
        "all Workflows are hidden when the module starts in an epilog",
        LIFE,
        job=Job(seconds=100.0),
        troubles=(
            When("start", unload(200.0)),
            When("start", hide(WORKFLOW), after=199.0),
        ),
    ),
    *(
        Story(
            f"Kubernetes {what} when the module starts",
            LIFE,
            troubles=(When("", unload(5.0)), When("", deed, after=1.0)),
            log="kubernetes-away kubernetes-back",
        )
        for what, deed in (
            ("says nothing", outage(60.0, hangs=True)),
            (
                "shows its Workflows, and says nothing more,",
                slow_kube(60.0, 50.0, "list", "watch", kind=STORAGE),
            ),
        )
    ),
    Story(
        "patches say that there is no Workflow",
        LIFE,
        troubles=(When("", fail_next(8, MISSING, "patch", kind=WORKFLOW)),),
    ),
)
