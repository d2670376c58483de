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
SIZES = [
    {
        "command": "jobdw",
        "ruleDefs": [
            {"key": "^capacity$", "type": "string", "pattern": "^\\d+(GiB|TiB)$"},
            {"key": "^(type|name)$", "type": "string"},
        ],
    }
]


class Flux:
    """A handle of a Flux whose ``dws.rules`` gives an answer, or an error."""

    def __init__(self, answer: Any = None, table: Any = None) -> None:
        self.answer = answer
        self.table = {} if table is None else table or None
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


def jobspec(dw: Any, **system: Any) -> Any:
    node = {"type": "node", "count": 2, "with": []}
    return {"resources": [node], "attributes": {"system": {"dw": dw, **system}}}


OF_TEN = XFS.replace("10GiB", "10G")
CREATE = "#DW create_persistent type=xfs capacity=1GiB name=keep"
TASKS = {"type": "slot", "count": 2, "label": "task", "with": []}
ENOSYS = OSError(errno.ENOSYS, "no service")
ANSWERS = [
    *(ENOSYS, OSError(errno.EPERM, "not for guests"), TimeoutError(errno.ETIMEDOUT)),
    *(ValueError("no JSON"), None, [], {}, 7, {"rules": None}, {"rules": "x"}),
    {"rules": [{"command": 7}]},
]

# What Flux says, the job, who submits it; and why it is refused, if it is.
CHECKS: dict[str, tuple[Flux, Any, Optional[int], str]] = {
    "the live rules hold": (Flux({"rules": RULES}), jobspec(TURBO), None, ""),
    "and no others": (
        *(Flux({"rules": CLOSED}), jobspec(TURBO), None),
        "unknown argument 'turbo='",
    ),
    "nothing is checked without a rabbit table": (
        *(Flux(OSError(), False), jobspec("#DW nonsense"), None),
        "",
    ),
    "storage needs nodes where the scheduler knows Rabbits": (
        Flux({"rules": None, "scheduler": True}),
        *({**jobspec(XFS), "resources": [TASKS]}, None),
        "needs whole nodes",
    ),
    **{
        f"the scheduler does not know Rabbits: {answer}": (
            Flux(answer),
            *({**jobspec(XFS), "resources": [TASKS]}, None, ""),
        )
        for answer in ({"rules": None, "scheduler": False}, {"rules": None}, ENOSYS)
    },
    **{
        f"the mapping {mapping!r} is not there": (
            *(Flux(table={"mapping": mapping}), jobspec(XFS), None),
            "",
        )
        for mapping in (7, "", "/nonexistent", "\0", None)
    },
    "the owner may": (Flux(), jobspec(CREATE), 500, ""),
    "a guest may not": (Flux(), jobspec(CREATE), 4711, "only the instance owner"),
}


@pytest.mark.parametrize("name", CHECKS)
def test_a_job_is_taken_or_refused_with_the_reason(name: str) -> None:
    flux, job, userid, reason = CHECKS[name]
    if not reason:
        Ingest().check(flux, job, userid)
        return
    with pytest.raises(ValueError, match=reason) as caught:
        Ingest().check(flux, job, userid)
    assert ("\n" in str(caught.value)) == ("#DW" in str(caught.value))


@pytest.mark.parametrize("columns", [None, 30])
def test_the_text_is_cut_to_the_terminal_around_the_wrong_word(
    columns: Optional[int],
) -> None:
    with pytest.raises(ValueError, match="is not a size") as caught:
        Ingest().check(Flux({"rules": SIZES}), jobspec(OF_TEN), columns=columns)
    if columns is None:
        assert str(caught.value) == (
            "capacity=10G is not a size: did you mean 10GiB?\n"
            "  #DW jobdw type=xfs capacity=10G name=p1\n"
            "                              ^~~"
        )
        return
    line, marks = str(caught.value).split("\n")[1:]
    assert len(line) <= columns
    assert line.index("10G") == marks.index("^~~")


@pytest.mark.parametrize("answer", ANSWERS, ids=repr)
def test_without_an_answer_only_the_form_of_directives_is_checked(answer: Any) -> None:
    flux, ingest = Flux(answer), Ingest()
    ingest.check(flux, jobspec(TURBO))
    ingest.check(flux, jobspec(XFS.replace("xfs", "zfs")))
    with pytest.raises(ValueError, match="="):
        ingest.check(flux, jobspec(XFS + " ="))
    assert flux.timeout == RULES_TIMEOUT


@pytest.mark.parametrize("answer", [{"rules": RULES}, ENOSYS])
def test_the_rules_are_asked_for_once_a_minute(answer: Any) -> None:
    now = 1000.0
    ingest, flux = Ingest(lambda: now), Flux(answer)
    for seconds, asked in ((0, 1), (RULES_AGE - 1, 1), (1, 2), (1, 2)):
        now += seconds
        ingest.check(flux, jobspec(TURBO))
        assert flux.asked == asked
    flux.answer = {"rules": CLOSED}
    ingest.check(flux, jobspec(TURBO))
    now += RULES_AGE
    with pytest.raises(ValueError, match="turbo"):
        ingest.check(flux, jobspec(TURBO))


def test_the_mapping_is_read_again_when_it_has_changed(tmp_path: Path) -> None:
    path = tmp_path / "mapping.json"
    flux, ingest = Flux(table={"mapping": str(path)}), Ingest()
    ingest.check(flux, jobspec(XFS))
    write_mapping(path, 2**30)
    with pytest.raises(ValueError, match="all Rabbits together have 1 GiB"):
        ingest.check(flux, jobspec(XFS))
    write_mapping(path, 2**40)
    ingest.check(flux, jobspec(XFS))
    path.write_text("[" * 100_000)
    ingest.check(flux, jobspec(XFS))
    path.unlink()
    ingest.check(flux, jobspec(XFS))


def write_mapping(path: Path, capacity: int) -> None:
    rabbits = {"r1": {"capacity": capacity, "hostlist": "h[1-2]"}}
    computes = {"h1": "r1", "h2": "r1"}
    path.write_text(json.dumps({"computes": computes, "rabbits": rabbits}))


def test_resources_that_are_malformed_are_one_sentence() -> None:
    spec = jobspec(XFS, dw_failure_tolerance=0)
    spec["resources"] = [{"type": "node", "count": "x"}]
    with pytest.raises(ValueError, match="resources") as caught:
        Ingest().check(Flux(), spec)
    assert "\n" not in str(caught.value)
