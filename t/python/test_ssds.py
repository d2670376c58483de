# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Which ``ssd`` of a Rabbit are down: flux_k8s.machine.fluxiongraph.

Storage that no job holds takes just as much from what Fluxion gives to jobs.
"""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
)

from flux_k8s.machine.fluxiongraph import Chassis

TOTAL = 8
numbers = st.frozensets(st.integers(0, TOTAL - 1))


class Ssds(RuleBasedStateMachine):
    """Jobs take and give back ``ssd`` at any moment; so does storage of no job. A
    request that was sent may have no answer: then what is there is read again, as
    another module does that comes."""

    def __init__(self) -> None:
        super().__init__()
        self.down: frozenset[int] = frozenset()
        self.allocated: frozenset[int] = frozenset()
        self.needed = 0
        self.out = False
        self.ssds = Chassis("/c/r", TOTAL)

    @property
    def free(self) -> frozenset[int]:
        return frozenset(range(TOTAL)) - self.down - self.allocated

    @property
    def wanted(self) -> int:
        return TOTAL if self.out else self.needed

    @property
    def is_done(self) -> bool:
        change = self.ssds.change(self.wanted)
        return change is None and not self.ssds.is_unsure(self.wanted)

    @rule(data=st.data())
    def a_job_takes(self, data: st.DataObject) -> None:
        if self.free:
            self.allocated |= data.draw(
                st.frozensets(st.sampled_from(sorted(self.free)))
            )

    @rule(given_back=numbers)
    def a_job_gives_back(self, given_back: frozenset[int]) -> None:
        self.allocated -= given_back

    @rule(needed=st.integers(0, TOTAL + 1), out=st.booleans())
    def storage_comes_or_goes(self, needed: int, out: bool) -> None:
        self.needed, self.out = needed, out

    @rule(answered=st.booleans())
    def do_one_step(self, answered: bool) -> None:
        change = self.ssds.change(self.wanted)
        if change is not None:
            number = change.numbers[0]
            self.down = self.down | {number} if change.down else self.down - {number}
            if answered:
                self.ssds.set(number, change.down)
            else:
                self.it_is_read_again()
        elif self.ssds.is_unsure(self.wanted):
            self.ssds.see_allocated(self.allocated)

    @rule()
    def time_passes(self) -> None:
        self.ssds.asked = False

    @rule()
    def it_is_read_again(self) -> None:
        self.ssds = Chassis("/c/r", TOTAL, down={*self.down})

    @rule()
    def fluxion_is_reloaded(self) -> None:
        self.down = frozenset()
        self.it_is_read_again()

    @invariant()
    def what_is_down_is_known(self) -> None:
        assert self.ssds.down == self.down
        assert self.allocated.isdisjoint(self.ssds.free)

    @invariant()
    def what_is_withheld_is_given_to_no_job(self) -> None:
        if self.ssds.withholds(self.needed):
            assert not self.free or len(self.down - self.allocated) >= self.needed

    @precondition(lambda self: self.is_done)
    @invariant()
    def as_much_as_needed_is_missing(self) -> None:
        if self.wanted >= TOTAL:
            assert len(self.down) == TOTAL
        elif self.ssds.is_short(self.wanted):
            assert not self.free
        else:
            assert len(self.down) == self.needed
            assert not self.down & self.allocated

    def teardown(self) -> None:
        """All is done in the end, in not too many steps."""
        for _ in range(20 * TOTAL):
            self.ssds.asked = False
            if self.is_done:
                self.as_much_as_needed_is_missing()
                return
            self.do_one_step(answered=True)
        enough = TOTAL - len(self.allocated) >= self.needed
        assert not enough


TestSsds = Ssds.TestCase
