# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What queries and memos tell while Kubernetes or the plugin is away, and what a module
tells that is loaded later."""

from __future__ import annotations

import errno
from dataclasses import replace
from functools import partial
from typing import Any, Callable, Optional

from flux_k8s.formats.directives import GIB
from flux_k8s.jobs.progress import MEMO
from flux_k8s.jobs.queries import FAILURES_LOGGED
from flux_k8s.ports import (
    CLIENTMOUNT,
    DWDIRECTIVERULE,
    NNFDATAMOVEMENT,
    STORAGE,
    WORKFLOW,
    Json,
    KubeError,
    Sender,
)
from rabbitsim.dws.directive import STATES
from rabbitsim.dws.options import Fault as DwsFault
from rabbitsim.flux.broker import Offered, Respond
from rabbitsim.torture.deeds import (
    break_step,
    disable_rabbit,
    set_urgency,
    submit,
    tear_down,
    tells,
    unload,
    unload_plugin,
)
from rabbitsim.torture.interruptions import FAULT
from rabbitsim.torture.life import StorySystem
from rabbitsim.torture.outages import (
    fail_for,
    fail_next,
    lose_watches,
    outage,
    slow_flux,
    slow_kube,
)
from rabbitsim.torture.story import FOREVER, LIFE, XFS, Deed, Job, Story, When, deed, of

GUEST, OTHER = 4711, 4712
PLUGIN = "job-manager.dws"
NO_PLUGIN = "dws-jobtap.so is not loaded"
NOT_ALL = "not all jobs are known yet"
TIMEOUT = KubeError(0, "Timeout", "no answer in time")
UNSURE = "Kubernetes: no answer in time; not known to be done for rabbit-01"
UNSURE_OF_ALL = UNSURE.replace("01", "[01-08]")
ERROR = KubeError(500, "InternalError", "etcd has no leader")
FORBIDDEN = KubeError(403, "Forbidden", "it is forbidden")
UNKNOWN = KubeError(404, "NotFound", "no such kind")
SEEN = "list", "watch"
HANG = outage(60.0, TIMEOUT, hangs=True)
REFUSE = fail_next(1, ERROR, "patch", kind=STORAGE)
NOT_DONE = "Kubernetes: etcd has no leader; not done for rabbit-01"
RULE = {"command": "jobdw", "ruleDefs": []}

JOB = Job((XFS,), nodes=1, seconds=300.0, user=GUEST)
MOUNTING = Job((XFS,), seconds=100.0, user=GUEST)
MOUNT_HANGS = DwsFault("PreRun", "never", node="compute-02", duration=120.0)
COPYING: Json = {
    "job": Job(),
    "dws": {"copy_rate": GIB / 20, "copy_step": GIB // 4},
    "copied": 10 * GIB,
}
"""Each copy takes 200 s."""


LAST = "finish PostRun DataOut Teardown clean gone"
SET_UP = (
    "alloc 2:alloc 3:alloc 4:alloc 5:alloc Setup 2:Setup 6:alloc 7:alloc 8:alloc "
    "3:Setup 9:alloc 4:Setup 10:alloc 5:Setup 6:Setup 7:Setup 8:Setup 9:Setup 10:Setup "
    "11:alloc 11:Setup"
)


def all_jobs(words: str, but: int = 0) -> str:
    """Each word of the first job, and then of the others."""
    others = [n for n in range(2, FAILURES_LOGGED + 2) if n != but]
    return " ".join(
        " ".join((word, *(f"{number}:{word}" for number in others)))
        for word in words.split()
    )


def story(name: str, *troubles: Any, course: str = LIFE, **more: Any) -> Story:
    return Story(name, course, troubles=troubles, **{"job": JOB, **more})


def asked(word: str, after: float, *query: Any, **more: Any) -> When:
    return When(word, tells(*query, **more), after)


def fields(*keys: str) -> Any:
    """Some fields, times to a second."""
    return lambda found: [
        round(value) if isinstance(value := found.get(key), float) else value
        for key in keys
    ]


def each(what: str, *keys: str) -> Any:
    """Some fields of each job or Rabbit."""
    return lambda found: [[row[key] for key in keys] for row in found[what]]


def waits(found: Json) -> object:
    """The states of jobs, and for how many seconds they are in them."""
    return [(row["state"], round(found["now"] - row["since"])) for row in found["jobs"]]


def history(found: Json) -> object:
    states = [(each["state"], round(each["seconds"])) for each in found["states"]]
    return found["userid"], found["directives"], states


def is_new(found: Json) -> object:
    return found["serial"] / 1000.0 > found["now"] - 40.0


def counted(found: Json) -> object:
    """How many jobs have reached some states."""
    seconds = found["seconds"]
    return [sum(seconds[each]["counts"]) for each in ("PreRun", "PostRun", "DataOut")]


def used(found: Json) -> object:
    rows = found["rabbits"]
    return [(row["ssds_free"], *row["job_ssds"].values()) for row in rows]


def mounted(found: Json) -> object:
    return (found["mounts"] or {}).get("mounted")


def disabled(found: Json) -> object:
    """For what reason each Rabbit gets no jobs."""
    return [(row["disabled"] or {}).get("reason") for row in found["rabbits"]]


COPIED = fields("percent", "kubernetes")
ASKED = fields("kubernetes", "age", "incomplete")
ROOM = each("rabbits", "state", "free", "withheld", "ssds")
OWNERS = each("jobs", "userid")
REFUSED, SAID = fields("errnum"), fields("text")
ONE = "rabbit-01"
DISABLE = {"rabbits": [f"rabbit-0{n}" for n in range(1, 9)], "reason": "x"}


def memo(word: str, after: float, expected: Optional[str]) -> When:
    """The memo about the job's progress, unless a machine has interrupted the story."""

    def look(system: StorySystem) -> None:
        found = system.first.annotations.get("user", {}).get(MEMO)
        if found != expected and not system.interrupted:
            system.untrue.append(f"memo: expected {expected}, found {found}")

    return When(word, look, after)


def replace_rules(system: StorySystem) -> None:
    """DWS has other rules."""
    for item in system.store.list(DWDIRECTIVERULE, None)["items"]:
        meta = item["metadata"]
        system.store.delete(DWDIRECTIVERULE, meta["namespace"], meta["name"])
    new: Json = {"metadata": {"name": "new"}, "spec": [RULE]}
    system.store.create(DWDIRECTIVERULE, meta["namespace"], new)


@deed
def change_hello(
    system: StorySystem, change: Callable[[Respond], Any], count: int = 1
) -> None:
    """So many answers of the plugin to hello are other ones."""
    left = iter(range(count))

    def changed(before: Offered) -> Offered:
        def send(method: str, payload: Json, user: int, respond: Respond) -> None:
            is_meant = method == "hello" and next(left, None) is not None
            before(method, payload, user, change(respond) if is_meant else respond)

        return send

    system.instance.broker.stand_in(PLUGIN, changed)


def spoil_hello(count: int, *answer: Any) -> Deed:
    return change_hello(lambda respond: lambda *_: respond(*answer), count)


def delay_hello(system: StorySystem) -> None:
    later = partial(system.loop.call_later, 10.0)
    change_hello(lambda respond: lambda *it: later(partial(respond, *it)))(system)


def break_memos(system: StorySystem) -> None:
    """To take away the memo about the job's progress is an error."""
    port: Any = system.port
    post = port.post_memo

    def post_memo(jobid: int, memo: Json, **more: Any) -> None:
        post(jobid, memo, **more)
        if memo == {MEMO: None}:
            raise RuntimeError(FAULT)

    port.post_memo = post_memo


def break_answers(system: StorySystem) -> None:
    """To tell who waits for a change of jobs that they are over is an error."""
    held: list[int] = []

    def respond(errnum: int, text: str, answer: Optional[Json]) -> None:
        if held and errnum:
            raise RuntimeError(FAULT)

    if system.service is not None and system.instance.module_loaded:
        for number, jobid in enumerate(system.jobids):
            payload, sender = {"id": jobid, "seen": 2**60}, Sender(number, owner=True)
            system.service.query("job-show", payload, respond, sender)
        held.extend(system.jobids)


RUNS = GUEST, [XFS], [(state, 10 * (state == "PreRun")) for state in STATES[:4]]

STORIES = (
    story(
        "a job whose Workflow cannot be made says since when it waits",
        When("", outage(3000.0)),
        asked("", 1000.0, "job-list", waits, [("none", 1000)]),
        asked("", 1000.0, "metrics", fields("oldest"), [1000]),
        When("", unload(10.0), 1010.0),
        asked("", 2000.0, "job-list", waits, [("none", 2000)]),
        asked("", 2000.0, "metrics", fields("oldest"), [2000]),
        away=3000.0,
    ),
    story(
        "of a job that runs Flux says whose it is while its Workflow is not known",
        When("start", outage(200.0)),
        When("start", unload(10.0)),
        asked("start", 100.0, "job-list", OWNERS, [[GUEST]], user=GUEST),
        asked("start", 100.0, "job-list", OWNERS, [], user=OTHER),
        asked("start", 100.0, "job-list", waits, [("none", 90)]),
        asked("start", 100.0, "metrics", fields("oldest"), [0]),
        asked("start", 100.0, "job-show", REFUSED, [None], user=GUEST),
        asked("start", 100.0, "job-show", REFUSED, [errno.EPERM], user=OTHER),
        away=200.0,
    ),
    story(
        "it is not known whose a job is of which the plugin tells later",
        When("start", outage(60.0)),
        When("start", slow_flux(PLUGIN, 5.0, 30.0)),
        When("start", unload(1.0)),
        asked("finish", 5.0, "job-show", REFUSED, [errno.EAGAIN], user=GUEST),
        asked("finish", 5.0, "job-list", OWNERS, [], user=GUEST),
        asked("finish", 5.0, "job-list", OWNERS, [[0xFFFFFFFF]]),
        job=replace(JOB, seconds=20.0),
        away=60.0,
    ),
    story(
        "what is told of a job and its Rabbits is the same after a restart",
        asked("start", 50.0, "job-show", history, RUNS, user=GUEST),
        asked("start", 50.0, "rabbit-list", used, [(30709, 11), (30720,)]),
        When("start", unload(10.0), 60.0),
        asked("start", 100.0, "job-show", history, RUNS, user=GUEST),
        asked("start", 100.0, "job-show", REFUSED, [errno.EPERM], user=OTHER),
        asked("start", 100.0, "rabbit-list", used, [(30709, 11), (30720,)]),
        # Serials are larger, and no state is counted again.
        asked("start", 100.0, "job-show", is_new, True),
        asked("clean", 0.0, "metrics", counted, [0, 1, 1]),
        latency={"PreRun": 10.0},
    ),
    story(
        "a failure is counted by the module that saw it",
        asked("Teardown", 10.0, "metrics", fields("jobs", "failed"), [1, 1]),
        When("Teardown", unload(10.0), 15.0),
        asked("Teardown", 30.0, "metrics", fields("jobs", "failed"), [1, 0]),
        course="Proposal dws-refused! Teardown..gone",
        job=Job((f"{XFS} profile=nope",)),
        latency={"Teardown": 50.0},
    ),
    story(
        "an internal error is counted as a failure",
        When("", break_step("CREATE")),
        asked("clean", 0.0, "metrics", fields("failed"), [1]),
        course="service-fault! clean",
    ),
    story(
        "requests without an answer are counted, and watches that were lost",
        When("", slow_kube(60.0, 50.0, "create")),
        When("", lose_watches, 5.0),
        asked("", 10.0, "metrics", fields("requests_in_flight", "busy"), [1, 1]),
        asked("", 10.0, "metrics", lambda found: found["watches_lost"]["workflows"], 1),
    ),
    story(
        "each answer says how old it is",
        When("start", outage(200.0)),
        When("start", unload(10.0), 110.0),
        *(
            asked("start", after, method, ASKED, [kubernetes, age, False])
            for after, kubernetes, age in (
                (100.0, "connection refused", 100),
                (150.0, "connection refused", None),
                (290.0, "ok", 0),
            )
            for method in ("job-list", "rabbit-list", "rules", "metrics")
        ),
        away=200.0,
    ),
    story(
        "a module that does not know all jobs yet says so",
        When("start", unload_plugin(30.0)),
        When("start", unload(1.0)),
        asked("start", 10.0, "job-list", ASKED, [NO_PLUGIN, 0, True]),
        asked("start", 50.0, "job-list", ASKED, ["ok", 0, False]),
        asked("start", 50.0, "job-list", OWNERS, [[GUEST]]),
    ),
    story(
        "rules that went while they were forbidden are gone",
        When("start", fail_for(60.0, FORBIDDEN, *SEEN, kind=DWDIRECTIVERULE)),
        When("start", lose_watches),
        asked("start", 10.0, "rules", fields("rules"), [None]),
        When("start", replace_rules, 20.0),
        asked("start", 100.0, "rules", fields("rules"), [[RULE]]),
    ),
    story(
        "nothing is known of Rabbits that Kubernetes has not shown",
        When("start", HANG),
        When("start", unload(1.0)),
        asked("start", 10.0, "rabbit-list", ROOM, [["unknown", None, None, 30720]] * 2),
        asked("start", 10.0, "rabbit-enable", SAID, [UNSURE], rabbits=[ONE]),
        away=60.0,
    ),
    *(
        story(
            f"{what} when Rabbits are disabled, and the query says for which",
            When("start", trouble),
            asked("start", 1.0, "rabbit-disable", SAID, [said], **DISABLE),
            asked("start", 50.0, "rabbit-list", disabled, found),
            machine={"nodes": 8, "rabbits": 8},
        )
        for what, trouble, said, found in (
            ("Kubernetes refuses one request", REFUSE, NOT_DONE, [None, *["x"] * 7]),
            ("Kubernetes hangs", HANG, UNSURE_OF_ALL, [None] * 8),
        )
    ),
    story(
        "Rabbits that are disabled get no jobs until they are enabled",
        *(When("", disable_rabbit(each, 1000.0), 1.0) for each in (ONE, "rabbit-02")),
        When("", unload(10.0), 20.0),
        When("", submit(Job(())), 35.0),
        When("", set_urgency(16), 41.0),
        asked("", 100.0, "rabbit-list", disabled, ["slow"] * 2),
        course="Proposal 2:alloc 2:start 2:finish 2:clean alloc..gone",
        job=replace(JOB, urgency=0),
        spans=(("Proposal", "alloc", 1003.0),),
    ),
    *(
        story(
            f"a job that runs has no memo of its mounts{when}",
            MOUNT_HANGS,
            memo("PreRun", 30.0, "PreRun 1/2 mounted"),
            *away,
            memo("start", 1.0, None),
            job=MOUNTING,
        )
        for when, away in (
            ("", ()),
            (" when the module is back", (When("PreRun", unload(200.0), 30.0),)),
        )
    ),
    story(
        "a memo of the module before goes at once in Teardown",
        memo("DataIn", 95.0, "DataIn 42 %, 2 min left"),
        When("DataIn", unload(20.0), 100.0),
        When("DataIn", tear_down, 110.0),
        memo("Teardown", 20.0, None),
        course="Proposal..DataIn Teardown workflow-moved! teardown-late clean gone",
        latency={"Teardown": 100.0},
        **COPYING,
    ),
    *(
        story(
            f"{kind.plural} that are not to be seen cost the numbers only",
            MOUNT_HANGS,
            When("", fail_for(FOREVER, error, *SEEN, kind=kind)),
            asked("DataIn", 100.0, "job-show", COPIED, [percent, "ok"]),
            asked("PreRun", 100.0, "job-show", mounted, count),
            log="objects-unseen",
            may=("use-unknown",) if kind == CLIENTMOUNT else (),
            **COPYING,
        )
        for kind, error, percent, count in (
            (NNFDATAMOVEMENT, FORBIDDEN, None, 1),
            (CLIENTMOUNT, UNKNOWN, 50, None),
        )
    ),
    story(
        "an error of the queries costs no job anything",
        MOUNT_HANGS,
        When("PreRun", break_memos, 30.0),
        When("finish", break_answers),
        others=(JOB,) * FAILURES_LOGGED,
        machine={"nodes": FAILURES_LOGGED + 1},
        course=f"{all_jobs('Proposal')} {SET_UP} {all_jobs('DataIn PreRun')} "
        f"{all_jobs('start', but=2)} 2:start {all_jobs(LAST, but=2)} {of(2, LAST)}",
        log=" ".join(["service-fault"] * FAILURES_LOGGED),
    ),
    # Hello: ever later, at most a minute
    *(
        story(
            f"hello is sent again whose answer cannot be read: {answer}",
            When("", spoil_hello(9, 0, "", answer)),
            asked("", 240.0, "job-list", ASKED, [NOT_ALL, 0, True]),
            asked("", 250.0, "job-list", ASKED, ["ok", 0, False]),
            log="flux-error",
        )
        for answer in ({}, {"jobs": 1}, {"jobs": [], "cursor": "x"})
    ),
    story(
        "hello is sent again when it fails, and no line says that the plugin reads",
        When("", spoil_hello(8, errno.EAGAIN, "not yet", None)),
        When("", spoil_hello(4, errno.ENOMEM, "no memory", None)),
        asked("", 180.0, "job-list", ASKED, [NOT_ALL, 0, True]),
        asked("", 190.0, "job-list", ASKED, ["ok", 0, False]),
        log="flux-error",
        unlogged="plugin-missing",
    ),
    story(
        "a request that overtakes the answer to hello waits for it",
        DwsFault("DataOut", "error"),
        When("DataOut", fail_for(10.0, ERROR, "patch", kind=WORKFLOW)),
        When("dws-failed!", delay_hello),
        When("dws-failed!", unload(1.0)),
        course="Proposal..DataOut dws-failed! Teardown..gone",
        data="out",
        job=Job(),
        spans=(("dws-failed!", "Teardown", 11.0),),
    ),
)
