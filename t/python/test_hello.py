# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What the service makes of answers to its hello."""

from __future__ import annotations

import syslog
from typing import Any, Optional

import pytest

from flux_k8s.jobs.hello import held_job
from flux_k8s.ports import Json
from flux_k8s.version import PROTOCOL, UNKNOWN, version
from support.queries import query, told_by_plugin
from support.service import lines


@pytest.mark.parametrize(
    ("plugin", "protocol", "warns"),
    [
        (version(), PROTOCOL, False),
        ("1.2.4", PROTOCOL, version() != UNKNOWN),
        (version(), PROTOCOL + 1, True),
        (None, None, True),
    ],
)
def test_the_versions_of_module_and_plugin_are_logged_and_a_difference_is_warned_of(
    plugin: Optional[str], protocol: Optional[int], warns: bool
) -> None:
    answer: Json = {"jobs": []}
    if plugin is not None:
        answer.update(version=plugin, protocol=protocol)
    system = told_by_plugin(answer)
    system.load_module()
    system.loop.run(timeout=10.0)
    plugin = plugin or UNKNOWN
    text = f"dws module {version()}, dws-jobtap.so {plugin}, protocol {PROTOCOL}"
    assert len(lines(system, text)) == 1
    found = [line for _, level, line in system.log if level == syslog.LOG_WARNING]
    assert bool(found) == warns
    if warns:
        said = f"dws-jobtap.so {plugin} (protocol {protocol or 0}) is not of"
        assert f"{said} the version" in found[0]
    stats = query(system, "metrics")
    assert stats["plugin_version"] == plugin and stats["protocol"] == PROTOCOL


@pytest.mark.parametrize(
    ("waits", "memo"),
    [("no room", "no room"), (None, None), (True, ""), (False, None)],
)
def test_jobs_are_taken_over_from_a_plugin_that_says_only_whether_there_is_a_memo(
    waits: Any, memo: Optional[str]
) -> None:
    """Plugin and module may be upgraded in any order."""
    assert held_job({"id": 1, "phase": "running", "waits": waits}).memo == memo
