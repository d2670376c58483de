# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Storage that no job holds takes just as much from what Fluxion gives to jobs."""

from __future__ import annotations

from typing import Optional

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
)

from flux_k8s.rabbits.fluxionstate import Looking, Noting, Switching, Withheld

TOTAL = 8
numbers = st.frozensets(st.integers(0, TOTAL - 1))


class Chassis(RuleBasedStateMachine):
    """Jobs take and give back ``ssd`` at any moment; so does storage of no job. A
    step that was begun may be done late, or never when the module dies."""

    def __init__(self) -> None:
        super().__init__()
        self.down: frozenset[int] = frozenset()
        self.noted: frozenset[int] = frozenset()
        self.taken: frozenset[int] = frozenset()
        self.needed = 0
        self.all = False
        self.withheld = Withheld(TOTAL)
        self.look: Optional[tuple[Looking, frozenset[int]]] = None
        self.withheld.want(0)

    @property
    def free(self) -> frozenset[int]:
        return frozenset(range(TOTAL)) - self.down - self.taken

    @rule(data=st.data())
    def a_job_takes(self, data: st.DataObject) -> None:
        if self.free:
            self.taken |= data.draw(st.frozensets(st.sampled_from(sorted(self.free))))

    @rule(given_back=numbers)
    def a_job_gives_back(self, given_back: frozenset[int]) -> None:
        self.taken -= given_back

    @rule(needed=st.integers(0, TOTAL + 1), out=st.booleans())
    def storage_comes_or_goes(self, needed: int, out: bool) -> None:
        self.needed, self.all = min(needed, TOTAL), out
        self.withheld.want(needed, out)

    @rule(answered=st.booleans())
    def do_one_step(self, answered: bool) -> None:
        if self.look is not None:
            self.withheld.looked(*self.look)
            self.look = None
            return
        step = self.withheld.next()
        if isinstance(step, Looking):
            self.look = step, self.taken & step.numbers
        elif step is not None:
            self.withheld.begin(step)
            if isinstance(step, Noting):
                self.noted = step.down
            elif step.down:
                self.down |= {step.number}
            else:
                self.down -= {step.number}
            if answered:
                self.withheld.end(step)

    @rule()
    def time_passes(self) -> None:
        self.withheld.look_again()

    @rule()
    def another_module_comes(self) -> None:
        self.withheld = Withheld(TOTAL, self.noted)
        self.withheld.want(self.needed, self.all)
        self.look = None

    @rule()
    def fluxion_is_reloaded(self) -> None:
        self.down = self.noted = frozenset()
        self.withheld = Withheld(TOTAL)
        self.withheld.want(self.needed, self.all)
        self.look = None

    @invariant()
    def what_is_down_is_noted(self) -> None:
        assert self.down <= self.noted

    @precondition(lambda self: self.withheld.next() is None and self.look is None)
    @invariant()
    def as_much_as_needed_is_missing(self) -> None:
        if self.all:
            assert len(self.down) == TOTAL
        elif self.withheld.short:
            assert not self.free
        elif self.needed == TOTAL:
            assert len(self.down) == TOTAL
        else:
            assert len(self.down) == self.needed
            assert not self.down & self.taken

    def teardown(self) -> None:
        """All is told in the end, in not too many steps."""
        for _ in range(20 * TOTAL):
            self.withheld.look_again()
            if self.withheld.next() is None and self.look is None:
                self.as_much_as_needed_is_missing()
                return
            self.do_one_step(answered=True)
        enough = TOTAL - len(self.taken) >= self.needed
        assert not enough


TestChassis = Chassis.TestCase


def settle(withheld: Withheld, taken: frozenset[int]) -> list[object]:
    """The steps that it takes, with jobs that have these ``ssd``."""
    steps: list[object] = []
    while (step := withheld.next()) is not None:
        steps.append(step)
        assert len(steps) < 10 * TOTAL
        if isinstance(step, Looking):
            withheld.looked(step, taken & step.numbers)
            continue
        withheld.begin(step)
        withheld.end(step)
    return steps


def test_where_the_first_are_free_they_are_looked_at_once() -> None:
    withheld = Withheld(36)
    withheld.want(3)
    assert settle(withheld, frozenset(range(20, 36))) == [
        Noting(frozenset({0, 1, 2})),
        *(Switching(number, True) for number in range(3)),
        Looking(frozenset({0, 1, 2})),
    ]
    withheld.want(1)
    assert settle(withheld, frozenset()) == [
        Switching(1, False),
        Switching(2, False),
        Noting(frozenset({0})),
    ]


def test_where_all_were_needed_it_is_not_known_which_jobs_have() -> None:
    withheld = Withheld(TOTAL)
    withheld.want(TOTAL)
    settle(withheld, frozenset())
    withheld.want(1)
    settle(withheld, frozenset({0}))
    assert withheld.told.certain == {1}


@given(numbers, st.integers(1, TOTAL - 1))
def test_those_that_jobs_have_are_spared(taken: frozenset[int], needed: int) -> None:
    withheld = Withheld(TOTAL)
    withheld.want(needed)
    settle(withheld, taken)
    free = set(range(TOTAL)) - taken
    if len(free) >= needed:
        assert withheld.told.certain == set(sorted(free)[:needed])
    else:
        assert withheld.short and withheld.told.certain == set(range(TOTAL))
    withheld.look_again()
    settle(withheld, frozenset())
    assert len(withheld.told.certain) == needed
