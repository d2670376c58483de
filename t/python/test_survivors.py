# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""``t/survivors`` draws the mutants that it is to try."""

from __future__ import annotations

from pathlib import Path

from making import draw

SOURCE = "def run(a, b):\n    return a < 1 and b is not None\n"


def test_what_is_drawn_beside_mutants_of_an_earlier_tree_is_none_of_these(
    tmp_path: Path,
) -> None:
    (tmp_path / "src/pymod/sssjob").mkdir(parents=True)
    (tmp_path / "src/pymod/sssjob/run.py").write_text(SOURCE)
    every = draw(tmp_path, 1, 100)
    assert [mutant.kind for mutant in every] == [
        "operator moved",
        "constant moved",
        "operator moved",
        "operator moved",
    ]
    for seed in range(10):
        given = every[::2]
        assert len(set(draw(tmp_path, seed, 3, given))) == 3
        assert draw(tmp_path, seed, 100, given) == every
