# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Data classes without a dictionary in each instance."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, dataclass, field, replace

import pytest

from flux_k8s.jobs.workflowinfo import Goal, WorkflowInfo
from flux_k8s.slots import slotted


@slotted
@dataclass(frozen=True)
class Point:
    x: int
    y: int = 2
    names: list[str] = field(default_factory=list)

    @property
    def sum(self) -> int:
        return self.x + self.y


def test_a_slotted_class_is_the_data_class_that_it_was() -> None:
    point = Point(1)
    assert point == Point(1, 2, []) and point.sum == 3
    assert replace(point, y=5) == Point(1, 5)
    assert repr(point) == "Point(x=1, y=2, names=[])"
    assert Point(1).names is not point.names


def test_an_instance_of_a_slotted_class_has_no_other_attributes() -> None:
    assert not hasattr(Point(1), "__dict__")
    with pytest.raises((FrozenInstanceError, TypeError)):
        Point(1).x = 2  # type: ignore[misc]
    with pytest.raises(AttributeError):
        WorkflowInfo(1, Goal.READY).misspelled = 1  # type: ignore[attr-defined]
