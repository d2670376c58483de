# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Stories that are tried to death.

A story is run once to list its points: the steps of :class:`flux_k8s.jobs.steps.Steps`,
and in each the requests to Kubernetes and to Flux. Then it is run once for each of
these points. The module dies when the step or request has been carried out, before its
answer is seen, and another is loaded; or a request is lost, or its answer, or that is
about something else. The job must not be able to tell. Or the job is cancelled there,
an answer is late, or the plugin is loaded anew, and the job must end well.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import takewhile, zip_longest
from typing import Collection

from flux_k8s.jobs.outcomes import DATA_OUT, FAILED
from flux_k8s.objects.workflowstate import STATES, State
from flux_k8s.ports import POD, SERVERS
from flux_k8s.reasons import Reason
from rabbitsim.torture.deeds import (
    ask_deletion,
    delete,
    meddles,
    purge,
    undates,
)
from rabbitsim.torture.interruptions import NOT_NOW, Interruption
from rabbitsim.torture.life import Life, live
from rabbitsim.torture.record import ABORT
from rabbitsim.torture.scenarios import SCENARIOS
from rabbitsim.torture.story import NO_RECORD, RECORDS, Story

UNSEEN = (
    Interruption.CRASH,
    Interruption.REFUSED,
    Interruption.LOST,
    Interruption.WRONG,
)
"""Those after which a job lives as without. After the others no rule is broken, but
something else may come first: a copy is done, or a node has unmounted, before it is
noticed that the job was cancelled, or that DWS has failed."""

CHOSEN = ("KVS rabbit_allocations", "KVS rabbit_hostlist")
"""What is written of a job's storage when its Rabbits have been chosen. It may be
cancelled just then."""

LOST = {
    "MOVE to Teardown": CHOSEN,
    "DELETE": ("KVS rabbit_teardown_timing",),
}
"""What a module that is killed in a step may take along. A job may be cancelled just
when its storage is being made; a Workflow is deleted while its last records are
written."""

UNDATED = tuple(f"KVS rabbit_{state.name.lower()}_timing" for state in State)
"""The same for a Workflow that has lost its annotations, and with them its times, or
that cannot be read."""

DELETED = (
    "KVS rabbit_workflow",
    "KVS rabbit_moved",
    *CHOSEN,
    *UNDATED,
)
"""The same for one that somebody else deletes, or whose job is purged."""

UNDRIVEN = ("KVS rabbit_prerun_timing",)
"""The same for a job that mounts nothing: DWS notes for it no end of PreRun."""

LOGS = "KVS rabbit_container_log"
"""What one wrong answer about pods, or about a log, may cost: nothing says how many
there are, nor what a container has written."""

TEARDOWN = "patch workflows Teardown"
"""The request for Teardown, as a point has it."""

RABBITS = "memo rabbits="

MOUNTED = ("jobdw", "persistentdw")
"""The directives of what a job mounts."""

FORGETFUL = ("unmount-failed", "cause-unknown", "given-up")
"""The reasons for a loss of data by a module that is loaded after the job was told of
the cause."""

TELLS = "CUT_OFF"
"""The step that asks once: an exception tells what was refused there, and other nodes
may be drained."""

EXCUSED = (
    # One that is cancelled is told what DWS says: after an Error that may be less than
    # what is copied.
    ("untrue", Interruption.CANCEL, ""),
    # A job may be let go when it is just noted that it waits for Kubernetes.
    ("memo", Interruption.LOST, ""),
    ("memo", Interruption.LATE, ""),
    ("memo", Interruption.REFUSED, "watch "),
    # A plugin that still reads eventlogs knows no memo.
    ("repeat", Interruption.PLUGIN, ""),
    # One says that no node has failed, and so the state has.
    ("exception", Interruption.WRONG, "Inspect"),
)
"""Rules that may be broken by an interruption, at points that name a step or a request
("" for any)."""


def course_of(life: Life) -> str:
    """The course of a life, in words."""
    return " ".join(word for word, _ in life.course)


def problems(story: Story, life: Life) -> list[str]:
    """What an undisturbed life has that the story does not say, or otherwise; a line
    each."""
    found = []
    if life.breach is not None:
        found.append(str(life.breach))
    course = course_of(life)
    if story.course and course != story.course:
        pairs = zip_longest(story.course.split(), course.split())
        same = len([*takewhile(lambda pair: pair[0] == pair[1], pairs)])
        where = " ".join(course.split()[:same]) or "the beginning"
        found.append(f"course: differs after {where}")
        found.append(f"  expected {story.course}")
        found.append(f"  found    {course}")
    if story.outcome not in ("", life.data or NO_RECORD):
        found.append(f"data: expected {story.outcome}, found {life.data or NO_RECORD}")
    drained = {each.split()[1] for each in life.left if each.startswith("drained ")}
    if story.course and drained != story.drained:
        expected = sorted(story.drained)
        found.append(f"left: expected drained {expected}, found {sorted(drained)}")
    found += [f"left: no {each}" for each in story.left if each not in life.left]
    found += [f"what was to be done at {word!r} was not done" for word in life.missed]
    found += life.untrue
    wanted = story.log.split()
    logged = [reason for reason in life.log if reason in wanted]
    if logged != wanted:
        found.append(f"log: expected {story.log}, found {' '.join(logged)}")
    records = " ".join(key for key in RECORDS if f"KVS rabbit_{key}" in life.left)
    if story.records not in (None, records):
        found.append(f"records: expected {story.records}, found {records}")
    if story.unlogged in life.log:
        found.append(f"log: expected no {story.unlogged}")
    first = dict(reversed(life.course))
    for begin, end, seconds in story.spans:
        if begin not in first or end not in first:
            found.append(f"span: no {begin} or {end} in {course}")
        elif not abs(first[end] - first[begin] - seconds) <= 1.0:
            lasts = first[end] - first[begin]
            found.append(f"span: {lasts:g} s from {begin} to {end}")
    return found


def tries(whole: Life) -> list[tuple[int, Interruption]]:
    """What a machine may do to a life, and at which point. A point that comes back (a
    service asks, and asks again) is tried the first and the last time."""
    first = {point: number for number, point in reversed([*enumerate(whole.points)])}
    last = {point: number for number, point in enumerate(whole.points)}
    return [
        (number, how)
        for number in sorted({*first.values(), *last.values()})
        for how in Interruption
        if how.may_be_at(whole.points[number])
    ]


def problem_at(
    story: Story, whole: Life, number: int, interruption: Interruption
) -> str:
    """What is wrong after an interruption at a point of a whole life; "" if nothing."""
    life, point = live(story, number, interruption), whole.points[number]
    if life.breach is not None:
        broken = life.breach.rule, interruption
        excused = any(
            (rule, how) == broken and part in str(point) for rule, how, part in EXCUSED
        )
        return "" if excused else str(life.breach)
    if interruption not in UNSEEN or _fails_instead(story, whole, life):
        return ""
    deeds = {when.deed for when in story.deeds}
    unread = Reason.BAD_OBJECT.value in story.fatal
    undated = unread or any(map(undates, deeds))
    taken = Reason.NAME_TAKEN.value in story.fatal
    lost = (*LOST.get(point.step, ()), *(UNDATED if undated or taken else ()))
    lost = (*lost, *(CHOSEN if taken else ()))  # it may fail before that is written
    lost = DELETED if deeds & {delete, ask_deletion, purge} else lost
    lost = (*lost, *(CHOSEN if "cancel" in story.fatal else ()))
    asked = interruption is Interruption.CRASH and point.request == TEARDOWN
    lost = (*lost, *_unreached(whole, asked))
    directives = str(story.job.attributes.get("dw", story.job.directives))
    if not any(name in directives for name in MOUNTED):
        lost = (*lost, *UNDRIVEN)
    if story.others and any(each.startswith(RABBITS) for each in life.left):
        # Who is first may get others.
        lost = (*lost, *(each for each in whole.left if each.startswith(RABBITS)))
    hidden = any(SERVERS in getattr(deed, "args", ()) for deed in deeds)
    if hidden:
        lost = (*lost, *CHOSEN)  # the next one does not see where the storage is
    if story.fatal and point.step == "CREATE" or taken and point.step == "PLACE":
        # It may fail before it is told which storage it gets.
        lost = (*lost, *(each for each in whole.left if each.startswith("memo ")))
    if interruption is Interruption.WRONG and point.request.endswith(POD.plural):
        lost = (*lost, LOGS)
    if ABORT in story.fatal and point.step == "DELETE":
        # The next one knows of it by its Workflow only, which may be gone.
        lost = (*lost, "KVS rabbit_workflow")
    life = _without_more(life, whole, story.may)
    expected = _without(whole, life, story.spared)
    if life.data in story.may:
        expected = replace(expected, data=life.data)
    if story.others:
        lost = (*lost, f"KVS {FAILED}")  # who is first may have its storage kept
    if interruption is not Interruption.CRASH and point.step == TELLS:
        expected = replace(expected, events=life.events, exceptions=life.exceptions)
        expected = replace(expected, left=())
    meddled = meddles(story)
    if interruption is Interruption.CRASH and _forgets(whole, life, meddled):
        expected = replace(expected, data=life.data)
        lost = (*lost, f"KVS {DATA_OUT}")
    return _difference(expected, life, lost)


def _fails_instead(story: Story, whole: Life, life: Life) -> bool:
    """Whether the job failed because Kubernetes refused, once more, what it had refused
    for as long as a limit, or since DWS passed over a node meanwhile, before a limit
    was told; or before it ran, as it may. (Whether it had the rules say.)"""
    known = {(told.type, told.cause) for told in whole.exceptions}
    more = [each for each in life.exceptions if (each.type, each.cause) not in known]
    if "start" in whole.events and "start" not in life.events:
        if any(told.cause in story.may for told in more):
            return True
    passed_over = any(told.reason is Reason.UNMOUNT_FAILED for told in more)
    return passed_over or any(NOT_NOW in told.note for told in more)


def _forgets(whole: Life, life: Life, meddled: bool) -> bool:
    """Whether a module that was loaded later does not know why data was lost, or that
    it was by a job that had ended, whose epilog was given up. Of a Workflow that others
    delete it may not even have seen that the data was out."""
    if life.data == "":
        return meddled or whole.data == Reason.EPILOG_GIVEN_UP.value
    if meddled and life.data == Reason.WORKFLOW_DELETED.value:
        return True
    return life.data in FORGETFUL and whole.data not in ("", "out")


def _unreached(life: Life, asked_for: bool) -> tuple[str, ...]:
    """What the module writes of a state that it gives up: the next one cannot know. If
    Teardown was ``asked_for`` when it died, it knows by the time of that, but for how
    long a job may have waited for nodes after Proposal."""
    words = course_of(life).split()
    failed = [
        number
        for number, (word, after) in enumerate(zip(words, words[1:]))
        if word.endswith("!") and after in STATES
    ]
    asked = [word for word in words[: failed[0] if failed else 0] if word in STATES]
    if not asked:
        return ()
    # The next one may be the state that Kubernetes let nobody ask for.
    last = STATES[asked[-1]]
    known = asked_for and last is not State.Proposal
    unknown = (last + 1,) if known else (last, last + 1)
    states = (state for state, number in STATES.items() if number in unknown)
    return tuple(f"KVS rabbit_{state.lower()}_timing" for state in states)


def _without(whole: Life, life: Life, spared: str) -> Life:
    """The life that the other one is to be like: ``whole``, without the exceptions that
    the job was spared, and with what happened to it and its data then."""
    told = sum(exception.cause == spared for exception in life.exceptions)
    more = [each for each in whole.exceptions if each.cause == spared][told:]
    if not more:
        return whole
    exceptions = tuple(each for each in whole.exceptions if each not in more)
    goes = ("drained", f"KVS {FAILED}")
    left = tuple(e for e in whole.left if not e.startswith(goes) or e in life.left)
    whole = replace(whole, events=life.events, left=left, data=life.data)
    return replace(whole, exceptions=exceptions)


def _without_more(life: Life, whole: Life, may: Collection[str]) -> Life:
    """A life without the exceptions that the job may have on top."""
    left = Counter(exception.cause for exception in whole.exceptions)
    more = []
    for exception in life.exceptions:
        left[exception.cause] -= 1
        if exception.cause in may and left[exception.cause] < 0:
            more.append(exception)
    events = list(life.events)
    for _ in more:
        events.remove("exception")
    exceptions = tuple(e for e in life.exceptions if e not in more)
    return replace(life, events=tuple(events), exceptions=exceptions)


def _difference(whole: Life, life: Life, lost: Collection[str] = ()) -> str:
    """The difference between two lives of a job; "" for none. ``lost``: what the second
    may lack of what the first one left."""
    if sorted(life.events) != sorted(whole.events):
        return f"other events: {' '.join(life.events)}"
    # (Whether a record is true the rules say, also of one that there need not be.)
    if whole.data not in ("", life.data):
        return f"other data: {life.data or 'not recorded'}"
    if _told(whole) != _told(life):
        return f"other exceptions: {[told.note for told in life.exceptions]}"
    # (While the module is away, more states may come to their end.)
    missing = sorted(set(whole.left) - {*life.left, *lost})
    return f"missing: {', '.join(missing)}" if missing else ""


def _told(life: Life) -> list[tuple[str, str]]:
    """What a job's exceptions tell, without their words. Limits may be over at the same
    time."""
    return sorted((told.type, told.cause) for told in life.exceptions)


def print_tables() -> int:
    """Print a table for each scenario; 1 when something was wrong."""
    failed = 0
    for story in SCENARIOS:
        whole = live(story)
        for interruption in Interruption:
            print(f"{story.name}: {interruption.value}")
            print(f"  {'':3}  {'step':22}  {'after':40}  the job")
            for number in (n for n, how in tries(whole) if how is interruption):
                point = whole.points[number]
                wrong = problem_at(story, whole, number, interruption)
                failed += bool(wrong)
                after = point.request or "the step"
                print(f"  {number:3}  {point.step:22}  {after:40}  {wrong or 'ok'}")
            print()
    print(f"{failed} failed" if failed else "all passed")
    return 1 if failed else 0
