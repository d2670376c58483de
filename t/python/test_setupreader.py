# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Large R's are read in another process, and whatever happens to it, only the job
whose R it was can fail."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from flux_k8s.broker.programs import Programs
from flux_k8s.formats import rset
from flux_k8s.formats.rset import Summary, UnreadableR
from flux_k8s.jobs import setupreader
from flux_k8s.jobs.setupreader import (
    COMMAND,
    TIME_LIMIT,
    LargeSetup,
    decode_answer,
    load,
    read_setup,
)
from flux_k8s.objects import mapping
from flux_k8s.rules.directivebreakdown.allocation import gib_per_rabbit
from support.rset import fluxion_r

JOBID = 1234


def read(text: bytes) -> Any:
    """What comes of a payload in another process."""
    return Programs().run(COMMAND, TIME_LIMIT, decode_answer, text)


def some_R() -> Any:
    return fluxion_r({"n1": "rab0", "n2": "rab1"}, {"rab0": [7], "rab1": [5]})


def payload(R: Any) -> bytes:
    """What the plugin sends."""
    return b'{"jobid":%d,"R":%s}' % (JOBID, json.dumps(R).encode())


def large_R(size: int) -> Any:
    """A valid R of about ``size`` bytes."""
    core = {"metadata": {"type": "core", "paths": {"containment": "/cluster0/n0/c0"}}}
    R = some_R()
    nodes = R["scheduling"]["graph"]["nodes"]
    nodes += [core] * (size // len(json.dumps(core)))
    return R


def inline(text: bytes) -> Any:
    """What comes of a payload that is not large."""
    try:
        return read_setup(load("setup", text))[1]
    except Exception as error:
        return str(error)


def test_a_large_R_says_the_same_in_another_process() -> None:
    text = payload(large_R(1_000_000))
    result = read(text)
    assert isinstance(result, Summary)
    assert result == inline(text)
    assert len(result.graph().ssd) == 2


@pytest.mark.parametrize(
    "R",
    [
        "[]",
        "{",
        '{"version": 2}',
        '{"version": 1, "execution": {"R_lite": [], "nodelist": []}}',
        '{}, "R": []',
        pytest.param("[" * 200_000, id="deep"),  # is put into the environment
        '{"version": 1, "execution": "\udcff"}',
    ],
)
def test_a_malformed_R_gets_the_same_sentence(R: str) -> None:
    text = b'{"jobid":1,"R":%s}' % R.encode(errors="surrogateescape")
    result = read(text)
    assert isinstance(result, UnreadableR)
    assert str(result) == inline(text)


def test_a_malformed_graph_gets_its_sentence_when_it_is_needed() -> None:
    R = some_R()
    R["scheduling"]["graph"]["nodes"].append({"metadata": {"type": "ssd"}})
    result = read(payload(R))
    assert isinstance(result, Summary) and result.hosts == rset.parse(R).hosts
    with pytest.raises(UnreadableR, match=r"^R of job .*nodes\[[0-9]+\].* expected"):
        gib_per_rabbit(result, mapping.parse({"computes": {}, "rabbits": {}}))


def test_the_process_that_reads_imports_little() -> None:
    script = "import sys, flux_k8s.jobs.setupreader; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE)
    folders = ("broker", "config", "control", "dws", "jobs", "kube", "rabbits")
    ours = tuple(f"flux_k8s.{folder}." for folder in folders)
    found = {name for name in run.stdout.decode().split() if name.startswith(ours)}
    assert found == {"flux_k8s.jobs.setupreader"}


def test_only_a_large_setup_is_left_unread() -> None:
    small = payload(some_R())
    assert setupreader.parse("setup", small) == json.loads(small)
    large = payload(large_R(2 * setupreader.LARGE))
    assert setupreader.parse("setup", large) == LargeSetup(JOBID, large)
    assert setupreader.parse("create", large) == json.loads(large)
