# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Text of others on its way to Flux's log (on a real Flux: t1001-dws-module.t)."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from flux_k8s.text import printable

SOURCES = Path(__file__).parents[2] / "src"
LOG = SOURCES / "pymod/flux_k8s/broker/log.py"
WITH_FLUX = sorted(
    path
    for path in [*SOURCES.rglob("*.py"), *SOURCES.parent.joinpath("etc").rglob("*.py")]
    if re.search(r"^\s*(import|from) flux\b", path.read_text(), re.MULTILINE)
)


def test_the_checks_of_logging_find_modules() -> None:
    assert LOG in WITH_FLUX and SOURCES / "pymod/dws.py" in WITH_FLUX


@pytest.mark.parametrize("path", WITH_FLUX, ids=lambda path: path.stem)
def test_modules_log_only_through_the_function_for_it(path: Path) -> None:
    """``Flux.log`` and ``BrokerModule.log`` take their text for a format."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    for node in nodes:
        if isinstance(node, ast.Attribute) and node.attr in ("flux_log", "log_error"):
            assert path == LOG, node.lineno
        if isinstance(node, ast.Attribute) and node.attr == "log":
            # These have the port's method, flux_k8s.ports.Flux.log, or the writer's
            owner = ast.unparse(node.value)
            allowed = {
                "adapter": {"self", "self._flux", "self._writer"},
                "process": {"self._flux"},
                "rabbitscheduler": {"self"},  # a Logger of its own
            }
            assert owner in allowed.get(path.stem, set()), f"{owner}.log {node.lineno}"


def test_characters_that_are_not_printable_are_escaped() -> None:
    assert printable("a\n\x1b[2J\x85\u202e\udcff\0é") == (
        "a\\n\\x1b[2J\\x85\\u202e\\udcff\\x00é"
    )
