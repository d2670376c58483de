# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What a submission asks of Flux: the configuration, the rules of DWS, the mapping."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any, Optional

import pytest

from flux_k8s.ingest import RULES_AGE, RULES_TIMEOUT, Ingest

XFS = "#DW jobdw type=xfs capacity=10GiB name=p1"
TURBO = XFS + " turbo=yes"
RULES = [{"command": "jobdw", "ruleDefs": [{"key": ".", "type": "string"}]}]
CLOSED = [
    {
        "command": "jobdw",
        "ruleDefs": [
            {"key": "^(type|capacity|name)$", "type": "string"},
        ],
    }
]


class Flux:
    """A handle of a Flux whose ``dws.rules`` gives an answer, or an error."""

    def __init__(self, answer: Any = None, table: Any = None) -> None:
        self.answer = answer
        self.table = {} if table is None else table
        self.asked = 0
        self.timeout: Optional[float] = None

    def conf_get(self, key: str) -> Any:
        assert key == "rabbit"
        return self.table

    def attr_get(self, name: str) -> str:
        assert name == "security.owner"
        return "500"

    def rpc(self, topic: str, payload: Any) -> Flux:
        assert (topic, payload) == ("dws.rules", {})
        self.asked += 1
        return self

    def wait_for(self, timeout: float) -> None:
        self.timeout = timeout
        if isinstance(self.answer, TimeoutError):
            raise self.answer

    def get(self) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def jobspec(dw: Any, **system: Any) -> Any:
    node = {"type": "node", "count": 2, "with": []}
    return {"resources": [node], "attributes": {"system": {"dw": dw, **system}}}


def refuses(ingest: Ingest, flux: Flux, dw: Any, userid: Optional[int] = None) -> str:
    with pytest.raises(ValueError) as caught:
        ingest.check(flux, jobspec(dw), userid)
    return str(caught.value)


def test_the_text_is_for_a_terminal_after_any_prefix() -> None:
    assert refuses(Ingest(), Flux(), XFS.replace("10GiB", "10G")) == (
        "capacity=10G is not a size: did you mean 10GiB?\n"
        "  #DW jobdw type=xfs capacity=10G name=p1\n"
        "                              ^~~"
    )


def test_a_directive_is_cut_to_the_terminal_around_its_wrong_word() -> None:
    with pytest.raises(ValueError, match="did you mean 10GiB") as caught:
        Ingest().check(Flux(), jobspec(XFS.replace("10GiB", "10G")), columns=30)
    line, marks = str(caught.value).split("\n")[1:]
    assert len(line) <= 30
    assert line.index("10G") == marks.index("^~~")


def test_the_live_rules_are_those_that_hold() -> None:
    Ingest().check(Flux({"rules": RULES}), jobspec(TURBO))
    assert "unknown argument 'turbo='" in refuses(
        Ingest(), Flux({"rules": CLOSED}), TURBO
    )


@pytest.mark.parametrize(
    "answer",
    [
        OSError(errno.ENOSYS, "no service"),
        OSError(errno.EAGAIN, "later"),
        OSError(errno.EPERM, "not for guests"),
        TimeoutError(errno.ETIMEDOUT, "no answer"),
        ValueError("no JSON"),
        *(None, [], {}, 7, {"rules": None}, {"rules": []}, {"rules": "x"}),
        {"rules": [{"command": 7}]},
    ],
    ids=repr,
)
def test_without_an_answer_only_the_form_of_directives_is_checked(answer: Any) -> None:
    flux = Flux(answer)
    ingest = Ingest()
    ingest.check(flux, jobspec(TURBO))
    ingest.check(flux, jobspec(XFS.replace("xfs", "zfs")))
    assert "=" in refuses(ingest, flux, XFS + " =")
    assert flux.timeout == RULES_TIMEOUT


@pytest.mark.parametrize("answer", [{"rules": RULES}, OSError(errno.ENOSYS, "no")])
def test_the_rules_are_asked_for_once_a_minute(answer: Any) -> None:
    clock = Clock()
    ingest = Ingest(clock)
    flux = Flux(answer)
    for seconds, asked in ((0, 1), (RULES_AGE - 1, 1), (1, 2), (1, 2)):
        clock.now += seconds
        ingest.check(flux, jobspec(XFS))
        assert flux.asked == asked


def test_new_rules_are_in_force_after_a_minute() -> None:
    clock = Clock()
    ingest = Ingest(clock)
    ingest.check(Flux({"rules": RULES}), jobspec(TURBO))
    ingest.check(Flux({"rules": CLOSED}), jobspec(TURBO))
    clock.now += RULES_AGE
    assert "turbo" in refuses(ingest, Flux({"rules": CLOSED}), TURBO)


def test_a_flux_without_a_rabbit_table_checks_nothing() -> None:
    flux = Flux()
    flux.table = None
    Ingest().check(flux, jobspec("#DW nonsense"))
    assert flux.asked == 0


@pytest.mark.parametrize(
    "dw",
    ["#DW jobdw type=xfs capacity=1GiB name=p1", "#DW create_persistent name=p1"],
)
def test_storage_without_nodes_is_refused_where_the_scheduler_knows_rabbits(
    dw: str,
) -> None:
    tasks = [{"type": "slot", "count": 2, "label": "task", "with": []}]
    job = {**jobspec(dw), "resources": tasks}
    flux = Flux({"rules": None, "scheduler": True})
    with pytest.raises(ValueError, match=r"needs whole nodes.*add -N"):
        Ingest().check(flux, job)
    Ingest().check(flux, {**job, "resources": [{"type": "node", "count": 2}]})
    for answer in ({"rules": None, "scheduler": False}, {"rules": None}, OSError()):
        Ingest().check(Flux(answer), job)


def write_mapping(path: Path, capacity: int) -> None:
    rabbits = {"r1": {"capacity": capacity, "hostlist": "h[1-2]"}}
    computes = {"h1": "r1", "h2": "r1"}
    path.write_text(json.dumps({"computes": computes, "rabbits": rabbits}))


def test_the_mapping_is_read_again_when_it_has_changed(tmp_path: Path) -> None:
    path = tmp_path / "mapping.json"
    flux = Flux(table={"mapping": str(path)})
    ingest = Ingest()
    ingest.check(flux, jobspec(XFS))
    write_mapping(path, 2**30)
    assert "all Rabbits together have 1 GiB" in refuses(ingest, flux, XFS)
    write_mapping(path, 2**40)
    ingest.check(flux, jobspec(XFS))
    path.write_text("[" * 100_000)
    ingest.check(flux, jobspec(XFS))
    path.unlink()
    ingest.check(flux, jobspec(XFS))


@pytest.mark.parametrize("mapping", [7, "", "/nonexistent", "\0", None])
def test_a_mapping_that_is_not_there_refuses_no_job(mapping: Any) -> None:
    Ingest().check(Flux(table={"mapping": mapping}), jobspec(XFS))


def test_the_owner_may_what_a_guest_may_not() -> None:
    dw = "#DW create_persistent type=xfs capacity=1GiB name=keep"
    Ingest().check(Flux(), jobspec(dw), 500)
    Ingest().check(Flux(), jobspec(dw))
    assert "only the instance owner" in refuses(Ingest(), Flux(), dw, 4711)


def test_resources_that_are_malformed_are_one_sentence() -> None:
    spec = jobspec(XFS, dw_failure_tolerance=0)
    spec["resources"] = [{"type": "node", "count": "x"}]
    with pytest.raises(ValueError, match="resources") as caught:
        Ingest().check(Flux(), spec)
    assert "\n" not in str(caught.value)
