# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The mutants that show how strong the tests are."""

from __future__ import annotations

from pathlib import Path

import pytest

from known import carried
from making import mutants

PYTHON = "src/pymod/flux_k8s/module.py"


def faults(top: Path, path: str, text: str) -> list[str]:
    """The mutants of a file."""
    file = top / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return [m.applied(text.encode()).decode() for m in mutants(top, path)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("if a:\n    b()\n", ["if (not (a)):\n    b()\n", "if a:\n    pass\n"]),
        ("x = a < b\n", ["x = a <= b\n"]),
        ("x = a is not b\n", ["x = a is b\n"]),
        ("x = a and b\n", ["x = a or b\n"]),
        ("x = not a\n", ["x = (a)\n"]),
        ("x = b if a else c\n", ["x = b if (not (a)) else c\n"]),
        ("x = [a for a in b if a]\n", ["x = [a for a in b if (not (a))]\n"]),
        (
            "if a == 1:\n    pass\n",
            ["if a != 1:\n    pass\n", "if a == 2:\n    pass\n"],
        ),
        ("x = 0.5\n", ["x = 1.5\n"]),
        ("x = True\n", ["x = False\n"]),
        ("raise E\n", ["pass\n"]),
        ("a.b = c\n", ["pass\n"]),
        ("x = await a\n", ["x = a\n"]),
        # A name that is not assigned would end all that comes after it.
        ("x = a\n", []),
        ("assert a == 1\n", []),
        ("import a\nfrom b import c\n", []),
        ('"""1 < 2"""\n', []),
    ],
)
def test_a_mutant_of_python_has_one_small_fault(
    text: str, expected: list[str], tmp_path: Path
) -> None:
    assert faults(tmp_path, PYTHON, text) == expected


def test_a_mutant_is_found_again_by_its_line_and_gone_with_it(tmp_path: Path) -> None:
    before = b"x = 1 < 2\n"
    faults(tmp_path, PYTHON, before.decode())
    for mutant in mutants(tmp_path, PYTHON):
        after = b"# more\n\n" + before + b"y = 1\n"
        found = carried(mutant, before, after)
        assert found is not None and found.line == 3
        assert found.applied(after) == after.replace(before, mutant.applied(before))
        assert carried(mutant, before, b"x = 2 < 2\n") is None
