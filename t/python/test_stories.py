# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Each story goes as it is told, and is then tried to death: the module dies after a
step that it takes, or after a single request, or the request is refused, or its answer
is lost, and no job can tell; or the job is cancelled there, an answer is late, or the
plugin is loaded anew, and the job ends well.

``make soak`` does each of these at each point of each story. Here it is a sample, which
the commit chooses, or ``SEED=`` (the header of pytest's output names it). Of stories
that nobody has tried at all of their points, it is always the same without ``SEED=``: a
change fails for what it does, and not for a point that was wrong before.
"""

from __future__ import annotations

import random

import pytest

from rabbitsim.torture.crashpoints import problem_at, problems, tries
from rabbitsim.torture.life import live
from rabbitsim.torture.scenarios import SCENARIOS
from rabbitsim.torture.story import (
    Story,
)
from stories import STORIES
from support.effort import SOAKING
from support.seed import GIVEN, SEED

TRIED = 2
"""How often each story is interrupted."""


@pytest.mark.parametrize("story", STORIES, ids=str)
def test_the_story(story: Story) -> None:
    whole = live(story)
    assert problems(story, whole) == []
    tried = tries(whole)
    if not SOAKING:
        seed = SEED if story in SCENARIOS else GIVEN
        tried = random.Random(f"{seed} {story}").sample(tried, TRIED)
    found = {
        f"{how.value}: {whole.points[number]}": problem
        for number, how in tried
        if (problem := problem_at(story, whole, number, how))
    }
    assert found == {}


def test_each_story_has_a_name_of_its_own_and_a_course() -> None:
    names = [story.name for story in STORIES]
    assert len(names) == len(set(names))
    assert [story.name for story in STORIES if not story.course] == []
