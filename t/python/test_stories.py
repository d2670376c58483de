# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Each story goes as it is told, and is then tried to death: the module dies after a
step that it takes, or after a single request, or the request is refused, or its answer
is lost, and no job can tell; or the job is cancelled there, an answer is late, or the
plugin is loaded anew, and the job ends well.

``make soak`` does each of these at each point of each story. Here it is a sample, which
the commit chooses, or ``SEED=`` (the header of pytest's output names it).
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from rabbitsim.dws.options import Fault as DwsFault
from rabbitsim.torture.crashpoints import problem_at, problems, tries
from rabbitsim.torture.deeds import break_step, cancel, unload
from rabbitsim.torture.life import live
from rabbitsim.torture.outages import begin
from rabbitsim.torture.story import LIFE, Story, When, spell_out
from stories import STORIES
from support.effort import SOAKING
from support.seed import SEED

TRIED = 1
"""How often each story is interrupted."""


@pytest.mark.parametrize("story", STORIES, ids=str)
def test_the_story(story: Story) -> None:
    whole = live(story)
    found = problems(story, whole)
    assert not found, "\n".join([story.name, *found])
    tried = tries(whole)
    if not SOAKING:
        tried = random.Random(f"{SEED} {story}").sample(tried, TRIED)
    found = [
        f"{how.value}: {whole.points[number]}: {problem}"
        for number, how in tried
        if (problem := problem_at(story, whole, number, how))
    ]
    assert not found, "\n".join([story.name, *found])


def test_each_story_has_a_name_of_its_own_and_a_course() -> None:
    names = Counter(story.name for story in STORIES)
    assert [name for name, count in names.items() if count > 1] == []
    assert [story.name for story in STORIES if not story.course] == []


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"course": "Proposal aloc"}, "no word of a course: aloc"),
        ({"course": "sideways:compute-02"}, "no word of a course: sideways:compute-02"),
        ({"troubles": (When("Setpu", cancel),)}, "no word of a course: Setpu"),
        ({"may": ("dws-faild",)}, "no word of a course: dws-faild"),
        ({"course": "gone..Setup"}, "no word of a course: gone..Setup"),
        ({"data": "lost"}, "data is 'lost', expected one of out, none, "),
        ({"latency": {"setup": 1.0}}, "latency of 'setup', expected one of Proposal"),
    ],
)
def test_what_no_story_can_say_is_an_error(row: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=f"a job: {problem}"):
        Story("a job", **row)


def test_a_story_that_goes_otherwise_is_shown_beside_what_it_says() -> None:
    deeds = When("kept", cancel), When("clean", cancel, 1.0)
    story = Story("a job", "Proposal..finish gone", "not-run", troubles=deeds)
    assert problems(story, live(story)) == [
        "course: differs after Proposal alloc Setup DataIn PreRun start finish",
        f"  expected {story.course}",
        f"  found    {spell_out(LIFE)}",
        "data: expected not-run, found out",
        "what was to be done at 'kept' was not done",
        "what was to be done at 'clean' was not done",
    ]


def test_a_deed_that_was_not_made_is_an_error() -> None:
    story = Story("a job", LIFE, "out", troubles=(When("Setup", unload),))
    with pytest.raises(TypeError, match="a job: at 'Setup' stands what makes a deed"):
        live(story)


def test_a_fault_of_a_node_that_the_machine_does_not_have_is_an_error() -> None:
    fault = DwsFault("PreRun", "mount", node="compute-99")
    for trouble in (fault, When("PreRun", begin(fault))):
        with pytest.raises(ValueError, match="a fault of 'compute-99', expected one"):
            live(Story("a job", troubles=(trouble,)))


def test_a_step_that_is_broken_and_never_taken_is_shown() -> None:
    story = Story("a job", troubles=(When("", break_step("MOVE to Setpu")),))
    missed = "what was to be done at 'MOVE to Setpu' was not done"
    assert missed in problems(story, live(story))
