# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""flux dws rabbits, disable and enable."""

from __future__ import annotations

import errno
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dwscli.width import columns
from flux_k8s.ports import Json
from support.dwscli import (
    ANY_RABBITS,
    FRESH,
    NEVER,
    OLD,
    FixedInstance,
    dws,
    is_golden,
    refused,
    shows,
)
from support.tables import rows

TIB = 2**40
WAITS = "flux-dws: WARNING: waiting for the dws module, which asks Kubernetes\n"


def rabbit(name: str = "tuo201", **changes: Any) -> dict[str, Any]:
    """A Rabbit of ``dws.rabbit-list``."""
    return {
        **{"name": name, "state": "Ready", "reason": "", "capacity": 30 * TIB},
        **{"free": 20 * TIB, "withheld": 0, "nodes": "tuo[1001-1016]", "broken": ""},
        **{"njobs": 2, "jobs": [1 << 60], "disabled": None, **changes},
    }


RABBITS = (
    rabbit("tuo210", nodes="tuo[1033-1048]", njobs=0, jobs=[]),
    rabbit("tuo9", withheld=2 * TIB, broken="tuo1003"),
    rabbit(
        "tuo203",
        state="Disabled",
        disabled={"by": "root", "at": 1763990000.0, "reason": "slow ssd"},
        nodes="tuo[1017-1032]",
    ),
    rabbit("tuo204", state="Offline", reason="Offline: no answer", capacity=0, free=0),
)


def instance(*rabbits: Any, **options: Any) -> FixedInstance:
    answer = {**FRESH, "rabbits": [*(rabbits or RABBITS)]}
    return FixedInstance({"dws.rabbit-list": answer}, **options)


@pytest.mark.parametrize(
    ("golden", "words"), [("rabbits.txt", []), ("rabbits-long.txt", ["-o", "long"])]
)
def test_rabbits_are_a_table_in_the_order_of_their_numbers(
    golden: str, words: list[str]
) -> None:
    done = dws(instance(), "rabbits", *words)
    assert (done.status, done.err) == (0, "")
    assert is_golden(golden, done.out)


def test_rabbits_in_several_answers_of_the_module_are_one_table() -> None:
    places = {rabbit["name"]: place for place, rabbit in enumerate(RABBITS)}

    def answer(request: Json) -> Json:
        first = places[request["after"]] + 1 if "after" in request else 0
        row = RABBITS[first]
        last = first + 1 == len(RABBITS)
        return {**FRESH, "rabbits": [row], "next": None if last else row["name"]}

    found = FixedInstance({"dws.rabbit-list": answer})
    for words in ((), ("--json",)):
        done = dws(found, "rabbits", *words)
        assert done == dws(instance(), "rabbits", *words)


UNSEEN = rabbit(state="unknown", reason="unknown", free=None, withheld=None)
INSTANCES = {
    "four": instance(),
    "old": FixedInstance({"dws.rabbit-list": {**OLD, "rabbits": [rabbit()]}}),
    "never": FixedInstance({"dws.rabbit-list": {**NEVER, "rabbits": [UNSEEN]}}),
}
SAID = """
four: tuo210 tuo[203,210] -n -o {name} -> 0 -> tuo210 tuo203
four: tuo[300-301,203] -> 1 -> ERROR: no such Rabbit: tuo[300-301]
four: a[ -> 1 -> hostlist 'a[': misplaced bracket
old: -> 0 -> Kubernetes was last heard of 3.5m ago | tuo201
never: -> 0 -> tuo201 unknown 30TiB - | WARNING: Kubernetes was never reached since the
  dws service was started, what follows is without it: connection refused
"""


@pytest.mark.parametrize(("words", "status", "said"), rows(SAID, 3))
def test_rabbits_are_shown_as_far_as_they_are_known(
    words: str, status: str, said: str
) -> None:
    name, *args = words.split()
    done = dws(INSTANCES[name[:-1]], "rabbits", *args)
    assert shows(done, int(status), *said.split(" | "))


def test_json_has_all_that_the_module_says_of_a_rabbit() -> None:
    (found,) = json.loads(dws(instance(), "rabbits", "--json", "tuo9").out)["rabbits"]
    assert found == RABBITS[1]


def test_colors_tell_who_serves() -> None:
    lines = dws(instance(), "rabbits", "--color").out.splitlines()
    colors = [line[:8] if line.startswith("\x1b") else "" for line in lines]
    red, yellow = "\x1b[01;31m", "\x1b[01;33m"
    assert colors == ["", yellow, red, red, ""]


@given(ANY_RABBITS, st.sampled_from(["default", "long"]), st.integers(1, 100))
def test_any_rabbit_is_shown_within_the_width(
    found: list[dict[str, Any]], format: str, width: int
) -> None:
    done = dws(instance(*found), "rabbits", "-o", format, "-w", str(width))
    assert done.status == 0
    lines = done.out.split("\n")[:-1]
    assert len(lines) == len(found) + 1
    assert all(line.isprintable() and columns(line) <= width for line in lines)


# disable, enable


SLOW = ["disable", "tuo[201-202]", "--reason", "slow ssd"]
BOTH = {"rabbits": ["tuo201", "tuo202"]}
LATE = refused(errno.ETIMEDOUT, "the dws module has not answered for 60 s")
DENIED = refused(errno.EPERM)
READY = [rabbit(), rabbit("tuo202")]
IN_DWS = [rabbit(state="Disabled"), rabbit("tuo202")]


@pytest.mark.parametrize(
    ("words", "answer", "rabbits", "status", "said"),
    [
        (SLOW, BOTH, READY, 0, ""),
        (
            SLOW,
            {**BOTH, "replaced": {"tuo202": "new disks"}},
            READY,
            0,
            "tuo202 was disabled already: this replaces the reason 'new disks'",
        ),
        (SLOW, DENIED, [], 1, "ERROR: only the instance owner may disable Rabbits"),
        (["disable", "tuo9"], BOTH, [], 2, "--reason"),
        (
            ["disable", "tuo9", "--reason= "],
            *(BOTH, [], 1),
            "ERROR: --reason: expected a text, as in --reason='slow ssd'",
        ),
        (
            ["enable", "tuo201", "tuo202"],
            *({"rabbits": ["tuo202"]}, READY, 0),
            "WARNING: enabled already: tuo201",
        ),
        (
            ["enable", "tuo[201-202]"],
            *({"rabbits": ["tuo202"]}, IN_DWS, 1),
            "ERROR: Disabled in DWS, which is not undone here: tuo201; ",
        ),
        (
            ["enable", "tuo1"],
            *(DENIED, [], 1),
            "ERROR: only the instance owner may enable Rabbits",
        ),
        (
            ["enable", "tuo1"],
            *(LATE, [], 1),
            f"{LATE.strerror}: flux dws rabbits shows which Rabbits it has enabled",
        ),
        (
            ["enable", "tuo9"],
            refused(errno.ENOENT, "no tuo9\x1b"),
            [],
            1,
            "no tuo9\\x1b",
        ),
        (["enable", ","], BOTH, [], 1, "ERROR: no Rabbit is named"),
    ],
)
def test_the_instance_owner_takes_rabbits_out_of_service_and_puts_them_back(
    words: list[str], answer: Any, rabbits: Any, status: int, said: str
) -> None:
    topic = f"dws.rabbit-{words[0]}"
    listed = {**FRESH, "rabbits": rabbits}
    found = FixedInstance({topic: answer, "dws.rabbit-list": listed})
    done = dws(found, *words)
    assert done.out == "" and shows(done, status, said)
    assert bool(done.err) == bool(said)
    if words is SLOW:
        request = {**BOTH, "reason": "slow ssd", "by": "root"}
        assert found.requests == [(topic, request)]
    elif words == ["enable", "tuo201", "tuo202"]:
        assert found.requests[0] == (topic, BOTH)


@pytest.mark.parametrize("words", [("disable", "--reason=x"), ("enable",)])
def test_a_change_that_takes_a_moment_says_what_it_waits_for(
    words: tuple[str, ...],
) -> None:
    rabbits = {**FRESH, "rabbits": [rabbit()]}
    answers = {f"dws.rabbit-{words[0]}": {"rabbits": ["tuo201"]}}
    found = FixedInstance({**answers, "dws.rabbit-list": rabbits})
    for ticks, said in ((1, ""), (2, WAITS), (30, WAITS)):
        found.ticks = ticks
        assert dws(found, *words, "tuo201") == (0, "", said)
