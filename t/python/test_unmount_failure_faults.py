# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""With ``unmount_failure = "keep"``, what happens when something else fails as well:
the module, Kubernetes, the program of the site, or another node."""

from __future__ import annotations

import pytest

from rabbitsim.dws.options import Fault
from support.service import HOUR, USE, desired, jobspec, long, running, settle
from support.service import KEEP as PERSISTENT
from support.unmounting import BAD, COPY, is_kept, kept, system_of, wait


@pytest.mark.parametrize("latency", [0.2, 1.0])
def test_a_module_that_is_loaded_again_mounts_no_persistent_storage_twice(
    latency: float,
) -> None:
    """It knows late of the job that has ended."""
    stuck = Fault("PostRun", "mount", node=BAD, match="*")
    system = system_of(stuck, message_latency=latency)
    system.instance.submit(jobspec(PERSISTENT, 4))
    settle(system)
    first, second = ({"hostlist": [f"compute-0[{n}]"]} for n in ("1,3", "2,4"))
    other = system.instance.submit(long([USE, COPY], 2, HOUR, constraints=first))
    running(system, other)
    jobid = kept(system, (USE,), nodes=2, constraints=second)
    wait(system, 2 * HOUR)
    system.kill_module()
    system.load_module()
    wait(system, HOUR)
    assert is_kept(system, jobid) and desired(system, other) == "PostRun"
