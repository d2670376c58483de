# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What Kubernetes answers, or shows, is about something else, late, or out of date. It
is believed only if it is about what was asked for, and one answer alone costs no job
its life: a proxy may answer anything."""

from __future__ import annotations

import random
from functools import partial
from typing import Any, Callable, Optional, Sequence

from flux_k8s.objects.workflowmarks import REQUESTED
from flux_k8s.objects.workflowview import FINALIZER
from flux_k8s.ports import (
    COMPUTES,
    DIRECTIVEBREAKDOWN,
    NNFDATAMOVEMENT,
    SERVERS,
    SYSTEMSTATUS,
    WORKFLOW,
    Json,
    Kind,
    KubeError,
    Request,
)
from rabbitsim.dws.directive import STATES
from rabbitsim.kube.direct import Call, Fault
from rabbitsim.kube.patch import as_merge_patch
from rabbitsim.torture.deeds import annotate, delete, patch_workflows, strip, submit
from rabbitsim.torture.life import StorySystem
from rabbitsim.torture.outages import fail_next, lose_watches, silence_watches
from rabbitsim.torture.story import (
    LIFE,
    Deed,
    Job,
    Story,
    When,
    deed,
    of,
)

SLOW = dict.fromkeys(STATES, 5.0)
NOT_FOUND = KubeError(404, "NotFound", "workflows not found")
DENIED = KubeError(
    403, "Forbidden", 'admission webhook "w" denied the request: not today'
)
UNREADY: tuple[Any, ...] = (None, {}, {"ready": False})
TIMEOUT = KubeError(0, "Timeout", "no answer in time")

METADATA: Json = {"name": "NAME", "uid": "1", "resourceVersion": "1"}
WRONG: dict[str, Json] = {
    "nothing": {},
    "another kind": {"kind": "Pod", "metadata": METADATA},
    "another name": {"kind": "Workflow", "metadata": {**METADATA, "name": "other"}},
    "no uid": {"kind": "Workflow", "metadata": {"name": "NAME"}},
    "no spec": {"kind": "Workflow", "metadata": METADATA},
    "a spec without a job": {"kind": "Workflow", "metadata": METADATA, "spec": {}},
    "metadata that is none": {"kind": "Workflow", "metadata": 7},
    "a list": {"kind": "WorkflowList", "metadata": {}, "items": []},
}


def answer_wrongly(answer: Json, count: int = 40) -> Deed:
    """So many requests get an answer that is not theirs; each second is carried out."""

    def deed(system: StorySystem) -> None:
        left = count

        def fault(request: Request) -> Optional[Fault]:
            nonlocal left
            if request.verb == "watch" or not left:
                return None
            left -= 1
            body: Any = request.body
            name = request.name or body["metadata"]["name"] if body else request.name
            metadata = answer.get("metadata")
            if isinstance(metadata, dict) and metadata.get("name") == "NAME":
                own = {**answer, "metadata": {**metadata, "name": name}}
                return Fault(answer=own, carried_out=left % 2 == 0)
            return Fault(answer=answer, carried_out=left % 2 == 0)

        system.api_fault = fault

    return deed


@deed
def unready(system: StorySystem, kind: Kind, status: Any, seconds: float) -> None:
    """For some seconds objects of a kind are told to have another status."""
    until = system.loop.now() + seconds

    def fault(request: Request) -> Optional[Fault]:
        if request.verb != "get" or request.kind != kind:
            return None
        found = system.store.find(kind, request.namespace, request.name or "")
        late = system.loop.now() < until and found is not None
        return Fault(answer={**found, "status": status}) if late else None

    system.api_fault = fault


def list_wrongly(items: Any, count: int = 20, kind: Any = None) -> Deed:
    """So many lists, of a kind if there is one, have these items."""

    def deed(system: StorySystem) -> None:
        left = iter(range(count))

        def fault(request: Request) -> Optional[Fault]:
            meant = request.verb == "list" and kind in (None, request.kind)
            if not meant or next(left, None) is None:
                return None
            answer = {"kind": f"{request.kind.name}List", "metadata": {}}
            return Fault(answer={**answer, "items": items})

        system.api_fault = fault

    return deed


def show_another(seconds: float, **spec: str) -> Deed:
    """For some seconds each read of the Workflow shows another one of its name, and
    there is none to write to."""

    def deed(system: StorySystem) -> None:
        until = system.loop.now() + seconds

        def fault(request: Request) -> Optional[Fault]:
            stored = system.workflow
            if request.kind != WORKFLOW or not stored or system.loop.now() > until:
                return None
            if request.verb == "patch":  # the service looks whether that is so
                return Fault(error=NOT_FOUND)
            if request.verb != "get":
                return None
            metadata = {**stored["metadata"], "uid": "another"}
            found = {**stored, "metadata": metadata, "spec": {**stored["spec"], **spec}}
            return Fault(answer=found)

        system.api_fault = fault

    return deed


def miss(system: StorySystem) -> None:
    """One patch of the Workflow, and one GET, say that there is none, and the watch is
    lost."""
    left = {"patch", "get"}

    def fault(request: Request) -> Optional[Fault]:
        if request.kind != WORKFLOW or request.verb not in left:
            return None
        left.remove(request.verb)
        return Fault(error=NOT_FOUND)

    system.api_fault = fault
    lose_watches(system)


def show_of_another(verb: str) -> Deed:
    """The next answer to such a request has the kind, name and uid that were asked for,
    and is of another job."""

    def deed(system: StorySystem) -> None:
        def fault(request: Request) -> Optional[Fault]:
            if (request.kind, request.verb) != (WORKFLOW, verb):
                return None
            system.api_fault = lambda request: None
            stored: Any = system.workflow or request.body
            metadata = {"uid": "1", **stored["metadata"], "resourceVersion": "99999"}
            spec = {**stored["spec"], "jobID": "another"}
            answer = {"kind": "Workflow", "metadata": metadata, "spec": spec}
            return Fault(answer=answer)

        system.api_fault = fault

    return deed


def show_of_another_until_it_fails(system: StorySystem) -> None:
    """The same of each answer about the Workflow, until the job has failed."""

    def fault(request: Request) -> Optional[Fault]:
        stored = system.workflow
        meant = request.kind == WORKFLOW and request.verb in ("get", "patch")
        if not meant or stored is None or system.first.was_posted("exception"):
            return None
        metadata = {**stored["metadata"], "resourceVersion": "99999"}
        spec = {**stored["spec"], "jobID": "another"}
        return Fault(answer={"kind": "Workflow", "metadata": metadata, "spec": spec})

    system.api_fault = fault


def put_another(system: StorySystem, finalizers: Sequence[str] = ()) -> None:
    """Another program makes a Workflow of its own in the place of the job's."""
    stored = system.workflow
    if stored is not None:
        delete(system)
        spec = {**stored["spec"], "jobID": "another", "desiredState": "Proposal"}
        metadata = {"name": stored["metadata"]["name"], "finalizers": [*finalizers]}
        body = {"metadata": metadata, "spec": spec}
        system.store.create(WORKFLOW, "default", body)


def put_another_at(verb: str, kind: Any, late: float, *, shown: bool) -> Deed:
    """The same just when something is asked for, whose answer is late, and which the
    watch shows or not."""

    def deed(system: StorySystem) -> None:
        def fault(request: Request) -> Optional[Fault]:
            if (request.verb, request.kind) != (verb, kind):
                return None
            system.api_fault = lambda request: None
            answer = None
            if kind == COMPUTES:  # they go with the Workflow
                answer = system.store.get(COMPUTES, "default", str(request.name))
            if not shown:
                silence_watches(WORKFLOW)(system)
            put_another(system)
            return Fault(answer=answer, delay=late) if answer else None

        system.api_fault = fault

    return deed


def at_teardown(act: Deed) -> Deed:
    """Something happens just before the request for Teardown arrives."""
    return partial(_at_teardown, act)


def _at_teardown(act: Deed, system: StorySystem) -> None:
    def fault(request: Request) -> None:
        body = as_merge_patch(request.body) if request.verb == "patch" else {}
        if (body.get("spec") or {}).get("desiredState") == "Teardown":
            system.api_fault = lambda request: None
            act(system)

    system.api_fault = fault


def hold_back(system: StorySystem) -> None:
    """Another program has a finalizer before that of the service, for a moment."""
    held = {"metadata": {"finalizers": ["example.com/held", FINALIZER]}}
    rest = {"metadata": {"finalizers": [FINALIZER]}}
    patch_workflows(system, held)
    system.loop.call_later(0.05, lambda: patch_workflows(system, rest))


def come_and_go(system: StorySystem) -> None:
    """It is not known whether the Workflow was made. Before it is heard that it was
    not, another one has come and gone."""

    def fault(request: Request) -> Optional[Fault]:
        if request.kind == WORKFLOW and request.verb == "create":
            return Fault(error=KubeError(409, "AlreadyExists", ""), carried_out=True)
        if request.kind != WORKFLOW or request.verb != "get":
            return None
        system.api_fault = lambda request: None
        call_later, asking = system.loop.call_later, system.service

        def come() -> None:
            if system.service is asking:  # the next one knows that none was made
                put_another(system)

        call_later(1.0, come)
        call_later(3.0, lambda: silence_watches(WORKFLOW)(system))
        call_later(4.0, lambda: delete(system))
        call_later(9.0, lambda: lose_watches(system))
        return Fault(error=NOT_FOUND, delay=5.0)

    system.api_fault = fault


def create_late(system: StorySystem) -> None:
    """The request for the Workflow times out, and is carried out after it was looked
    for in vain, which is heard later still."""
    lost: list[Request] = []

    def fault(request: Request) -> Optional[Fault]:
        if request.kind != WORKFLOW:
            return None
        if request.verb == "create" and not lost:
            lost.append(request)
            return Fault(error=TIMEOUT)
        if request.verb == "get" and lost and not system.workflows():
            system.api_fault = lambda request: None
            body: Any = lost[0].body
            system.store.create(WORKFLOW, "default", body)
            return Fault(error=NOT_FOUND, delay=1.0)
        return None

    system.api_fault = fault


def delay_answers(seed: int) -> Deed:
    """Requests take up to 5 s, and events no time: each answer is out of date."""

    def deed(system: StorySystem) -> None:
        rng = random.Random(seed)
        system.api_fault = lambda request: (
            None if request.verb == "watch" else Fault(delay=rng.uniform(0.0, 5.0))
        )

    return deed


Sight = tuple[str, bool, Call]
"""The state of the Workflow, whether it was ready, and what shows it again."""


def echo(choose: Callable[[list[Sight]], list[Sight]]) -> Deed:
    """After each sight of a Workflow the service is shown some of the past again."""

    def deed(system: StorySystem) -> None:
        past: list[Sight] = []

        def deliver(what: str, call: Call) -> None:
            call()
            if what == WORKFLOW.plural:
                status = (system.workflow or {}).get("status") or {}
                ready = status.get("ready") is True
                past.append((str(status.get("state")), ready, call))
                for _, _, again in choose(past):
                    again()

        if system.service_kube is not None:
            system.service_kube.deliver = deliver

    return deed


def at_random(seed: int) -> Callable[[list[Sight]], list[Sight]]:
    rng = random.Random(seed)
    return lambda past: rng.sample(past, rng.randint(0, len(past)))


def lag_at_start(shown: str) -> Deed:
    """While SystemStatus is read, just before the prolog is released, the service is
    shown a state before."""

    def deed(system: StorySystem) -> None:
        past: list[Sight] = []

        def note(seen: list[Sight]) -> list[Sight]:
            past.append(seen[-1])
            return []

        def fault(request: Request) -> None:
            if (
                request.kind == SYSTEMSTATUS
                and past
                and past[-1][:2] == ("PreRun", True)
            ):
                for state, _, again in tuple(past):
                    if state == shown:
                        again()

        echo(note)(system)
        system.api_fault = fault

    return deed


ANOTHER = (
    When("clean", silence_watches(WORKFLOW), 100.0),
    When("clean", delete, 100.0),
    When("clean", lose_watches, 101.0),
)
"""The other program deletes its Workflow later."""

STORIES = (
    *(
        Story(
            f"forty answers are {name}",
            LIFE,
            "out",
            troubles=(When("", answer_wrongly(answer)),),
            log="kubernetes-error",
        )
        for name, answer in WRONG.items()
    ),
    *(
        Story(
            f"twenty lists have {items} as items",
            LIFE,
            "out",
            latency={"PreRun": 5.0},
            troubles=(
                When("PreRun", lose_watches, after=1.0),
                When("PreRun", list_wrongly(items), after=1.0),
            ),
        )
        for items in ([None], [3], [{}], {"a": "b"}, "x")
    ),
    Story(
        "a list of nothing is null",
        LIFE,
        "out",
        troubles=(When("PreRun", list_wrongly(None, 9, NNFDATAMOVEMENT)),),
    ),
    Story(
        "Kubernetes refuses a job in words of its own",
        "dws-refused! clean",
        troubles=(When("", fail_next(9, DENIED, "create", kind=WORKFLOW)),),
    ),
    *(
        Story(
            f"another Workflow is shown for some seconds in {state} ({whose})",
            LIFE,
            "out",
            latency=SLOW,
            job=Job(seconds=1.0),
            troubles=(When(state, show_another(15.0, **spec)),),
        )
        for row, (whose, spec) in enumerate(
            (("of the job", {}), ("of another", {"jobID": "another"}))
        )
        for column, state in enumerate(STATES[:-1])
        if (row + column) % 2 == 0
    ),
    *(
        Story(
            f"one answer to a {verb} is the Workflow of another job",
            LIFE,
            "out",
            troubles=(When("", show_of_another(verb)),),
        )
        for verb in ("create", "patch")
    ),
    Story(
        "what a job leaves that failed by wrong answers is torn down",
        "Proposal alloc name-taken! clean Teardown gone",
        troubles=(When("", show_of_another_until_it_fails),),
    ),
    *(
        Story(
            f"one patch and one GET miss the Workflow in {state}",
            LIFE,
            "out",
            latency=SLOW,
            job=Job(seconds=1.0),
            troubles=(When(state, miss),),
        )
        for state in STATES[:-1]
    ),
    # Workflows of others
    Story(
        "another program makes the Workflow of a job that waits for nodes anew",
        "2:alloc 2:start Proposal gone Proposal 2:finish 2:clean alloc name-taken! "
        "clean gone",
        "not-run",
        job=Job(nodes=4),
        troubles=(
            When("Proposal", silence_watches(WORKFLOW), 10.0),
            When("Proposal", put_another, 10.0),
            When("Proposal", lose_watches, 60.0),
            *ANOTHER,
        ),
        others=(Job((), nodes=4, seconds=30.0),),
    ),
    Story(
        "another program makes the Workflow anew while Computes are written",
        "Proposal alloc gone Proposal name-taken! clean gone",
        "not-run",
        troubles=(
            When("", put_another_at("patch", COMPUTES, 5.0, shown=True)),
            *ANOTHER,
        ),
    ),
    Story(
        "another program makes the Workflow anew before it is deleted",
        "Proposal..gone Proposal gone",
        "out",
        troubles=(
            When("", put_another_at("delete", WORKFLOW, 0.0, shown=False)),
            *ANOTHER,
        ),
    ),
    Story(
        "that there is no Workflow is heard after one of another job",
        "Proposal gone Proposal gone Proposal..gone",
        "out",
        troubles=(When("", come_and_go),),
    ),
    Story(
        "that there is no Workflow is heard after it was made",
        LIFE,
        "out",
        troubles=(When("", create_late),),
    ),
    # What others do to Workflows meanwhile
    *(
        Story(
            f"another program changes {what} just before Teardown",
            LIFE,
            "out",
            troubles=(When("PostRun", at_teardown(act)),),
        )
        for what, act in (("finalizers", hold_back), ("annotations", strip))
    ),
    *(
        Story(
            "another program makes the Workflow anew just before Teardown"
            f"{', with a finalizer of ours' if finalizers else ''}",
            "Proposal..DataOut gone Proposal name-taken! clean gone",
            "name-taken",
            troubles=(
                When(
                    "PostRun",
                    at_teardown(partial(put_another, finalizers=finalizers)),
                ),
                *ANOTHER,
            ),
        )
        for finalizers in ((), (FINALIZER,))
    ),
    *(
        Story(
            f"three answers to requests for Teardown are lost ({error.status})",
            LIFE,
            "out",
            troubles=(
                When("DataOut", fail_next(3, error, "patch", kind=WORKFLOW, done=True)),
            ),
        )
        for error in (TIMEOUT, KubeError(500, "Lost", ""))
    ),
    *(
        Story(
            f"another program writes {time} as a time",
            LIFE,
            "out",
            latency={"DataIn": 1.0},
            troubles=(
                When("DataIn", annotate(REQUESTED, f"Proposal={time} Setup={time}")),
            ),
        )
        for time in ("9999-12-31T23:59:59-01:00", "0001-01-01T00:00:00+14:00")
    ),
    # What is out of date
    *(
        Story(
            f"answers come after newer events ({seed})",
            LIFE,
            "out",
            troubles=(When("", delay_answers(seed)),),
        )
        for seed in range(3)
    ),
    *(
        Story(
            f"each sight of a Workflow comes again {how}",
            LIFE,
            "out",
            troubles=(When("Proposal", echo(choose)),),
        )
        for how, choose in {
            "twice": lambda past: past[-1:],
            "with the one before": lambda past: past[-2:-1],
            "with all before": lambda past: past[:-1],
            "with all before, backwards": lambda past: past[-2::-1],
            "with the very first": lambda past: past[:1],
            "with some at random": at_random(1),
        }.items()
    ),
    *(
        Story(
            f"{shown} is shown again just before the job starts",
            LIFE,
            "out",
            troubles=(When("Proposal", lag_at_start(shown)),),
        )
        for shown in ("Setup", "DataIn")
    ),
    # Objects that are not ready yet
    *(
        Story(
            f"a DirectiveBreakdown is not ready yet (its status is {status})",
            LIFE,
            troubles=(When("", unready(DIRECTIVEBREAKDOWN, status, 30.0)),),
            log="not-ready",
        )
        for status in UNREADY
    ),
    *(
        Story(
            f"Servers of persistent storage are not ready yet ({status})",
            f"{LIFE} {of(2, LIFE)}",
            job=Job(("#DW create_persistent type=xfs capacity=1GiB name=keep",)),
            troubles=(
                When("gone", unready(SERVERS, status, 30.0)),
                When("gone", submit(Job(("#DW persistentdw name=keep",)))),
            ),
            log="not-ready",
            may=("dws-refused",),  # if nothing is made
        )
        for status in UNREADY
    ),
    Story(
        "a DirectiveBreakdown that is malformed fails the job at once",
        "Proposal bad-object! Teardown clean gone",
        "not-run",
        troubles=(When("", unready(DIRECTIVEBREAKDOWN, {"ready": "soon"}, 30.0)),),
        spans=(("Proposal", "bad-object!", 0.0),),
    ),
)
