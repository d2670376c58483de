# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The mutants that show how strong the tests are."""

from __future__ import annotations

from pathlib import Path

import pytest

from known import carried, read
from making import mutants

PYTHON = "src/pymod/flux_k8s/module.py"
C = "src/jobtap/plugin.c"


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


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("if (a)\n b ();", ["if (!((a)))\n b ();", "if (a)\n ;"]),
        ("x = a < 0;", [";", "x = a <= 0;", "x = a < 1;"]),
        ("x = !a;", [";", "x = (a);"]),
        ("goto done;", [";"]),
        ("return a && b;", ["return a || b;"]),
        ("int x;", []),
    ],
)
def test_a_mutant_of_c_has_one_small_fault(
    body: str, expected: list[str], tmp_path: Path
) -> None:
    begin, end = "int f (void)\n{\n", "\n}\n"
    found = faults(tmp_path, C, f"{begin}{body}{end}")
    assert [text[len(begin) : -len(end)] for text in found] == expected


def test_a_mutant_is_found_again_by_its_line_and_gone_with_it(tmp_path: Path) -> None:
    before = b"x = 1 < 2\n"
    faults(tmp_path, PYTHON, before.decode())
    for mutant in mutants(tmp_path, PYTHON):
        after = b"# more\n\n" + before + b"y = 1\n"
        found = carried(mutant, before, after)
        assert found is not None and found.line == 3
        assert found.applied(after) == after.replace(before, mutant.applied(before))
        assert carried(mutant, before, b"x = 2 < 2\n") is None


@pytest.mark.parametrize(
    ("hunk", "lines"),
    [
        ("-a = 1 < 2\n+a = 1 <= 2", [1]),
        (" b = 0\n-a = 1 < 2\n+a = 1 <= 2", [3]),
        ("-a = 1 < 2\n+a = 1 > 2", []),
        ("-c = 1 < 2\n+c = 1 <= 2", []),
    ],
)
def test_an_equivalent_mutant_is_known_by_its_lines(
    hunk: str, lines: list[int], tmp_path: Path
) -> None:
    source = "a = 1 < 2\n    b = 0\n    a = 1 < 2\n"
    faults(tmp_path, PYTHON, source)
    (equivalent,) = read(f"What it is.\n\n{PYTHON}\n{hunk}\nNothing\ndiffers.\n")
    assert equivalent.why == "Nothing differs."
    found = [
        mutant.line
        for mutant in mutants(tmp_path, PYTHON)
        if equivalent.is_(mutant, source.encode())
    ]
    assert found == lines
