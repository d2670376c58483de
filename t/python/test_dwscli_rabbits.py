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
)

TIB = 2**40
WAITS = "flux-dws: WARNING: waiting for the dws module, which asks Kubernetes\n"


def rabbit(name: str = "tuo201", **changes: Any) -> dict[str, Any]:
    """A Rabbit of ``dws.rabbit-list``."""
    return {
        "name": name,
        "state": "Ready",
        "reason": "",
        "capacity": 30 * TIB,
        "free": 20 * TIB,
        "withheld": 0,
        "nodes": "tuo[1001-1016]",
        "broken": "",
        "njobs": 2,
        "jobs": [1 << 60],
        "disabled": None,
        **changes,
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


def test_rabbits_are_a_table_in_the_order_of_their_numbers() -> None:
    done = dws(instance(), "rabbits")
    assert (done.status, done.err) == (0, "")
    assert is_golden("rabbits.txt", done.out)


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


def test_who_disabled_a_rabbit_and_when_is_in_the_long_format() -> None:
    assert is_golden("rabbits-long.txt", dws(instance(), "rabbits", "-o", "long").out)


def test_some_rabbits_are_shown_in_the_order_of_the_command_line() -> None:
    done = dws(instance(), "rabbits", "tuo210", "tuo[203,210]", "-n", "-o", "{name}")
    assert done.out == "tuo210\ntuo203\n"
    done = dws(instance(), "rabbits", "--json", "tuo9")
    (found,) = json.loads(done.out)["rabbits"]
    assert found == RABBITS[1]


def test_a_rabbit_that_is_not_there_is_named() -> None:
    error = "flux-dws: ERROR: no such Rabbit: tuo[300-301]\n"
    assert dws(instance(), "rabbits", "tuo[300-301,203]") == (1, "", error)
    done = dws(instance(), "rabbits", "a[")
    assert done.status == 1 and "hostlist 'a[': misplaced bracket" in done.err


def test_rabbits_are_listed_with_the_age_of_their_state() -> None:
    found = FixedInstance({"dws.rabbit-list": {**OLD, "rabbits": [rabbit()]}})
    done = dws(found, "rabbits")
    assert "Kubernetes was last heard of 3.5m ago" in done.err and done.out


def test_rabbits_that_kubernetes_never_showed_have_no_free_storage() -> None:
    unseen = rabbit(state="unknown", reason="unknown", free=None, withheld=None)
    done = dws(
        FixedInstance({"dws.rabbit-list": {**NEVER, "rabbits": [unseen]}}), "rabbits"
    )
    warning = "Kubernetes was never reached since the dws service was started, what"
    assert f"WARNING: {warning} follows is without it: connection refused" in done.err
    line = done.out.splitlines()[1].split()
    assert line[:4] == ["tuo201", "unknown", "30TiB", "-"], done.out


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


def test_the_instance_owner_takes_rabbits_out_of_service() -> None:
    found = FixedInstance({"dws.rabbit-disable": {"rabbits": ["tuo201", "tuo202"]}})
    done = dws(found, "disable", "tuo[201-202]", "--reason", "slow ssd")
    assert done == (0, "", "")
    request = {"rabbits": ["tuo201", "tuo202"], "reason": "slow ssd", "by": "root"}
    assert found.requests == [("dws.rabbit-disable", request)]


def test_a_reason_that_another_one_replaces_is_shown() -> None:
    answer = {"rabbits": ["tuo201", "tuo202"], "replaced": {"tuo202": "new disks"}}
    done = dws(
        FixedInstance({"dws.rabbit-disable": answer}),
        *("disable", "tuo[201-202]", "--reason", "slow ssd"),
    )
    warning = "tuo202 was disabled already: this replaces the reason 'new disks'"
    assert done == (0, "", f"flux-dws: WARNING: {warning}\n")


def test_the_instance_owner_puts_rabbits_back_into_service() -> None:
    rabbits = {**FRESH, "rabbits": [rabbit(), rabbit("tuo202")]}
    enabled = {"rabbits": ["tuo202"]}
    found = FixedInstance({"dws.rabbit-enable": enabled, "dws.rabbit-list": rabbits})
    done = dws(found, "enable", "tuo201", "tuo202")
    assert done == (0, "", "flux-dws: WARNING: enabled already: tuo201\n")
    assert found.requests[:1] == [
        ("dws.rabbit-enable", {"rabbits": ["tuo201", "tuo202"]})
    ]


def test_enable_names_a_rabbit_that_is_disabled_in_dws() -> None:
    rabbits = {**FRESH, "rabbits": [rabbit(state="Disabled"), rabbit("tuo202")]}
    enabled = {"rabbits": ["tuo202"]}
    found = FixedInstance({"dws.rabbit-enable": enabled, "dws.rabbit-list": rabbits})
    done = dws(found, "enable", "tuo[201-202]")
    assert done.status == 1
    error = "flux-dws: ERROR: Disabled in DWS, which is not undone here: tuo201; "
    assert done.err.startswith(error) and len(done.err.splitlines()) == 1


@pytest.mark.parametrize("verb", ["disable", "enable"])
def test_a_guest_may_neither_disable_nor_enable_rabbits(verb: str) -> None:
    found = FixedInstance({f"dws.rabbit-{verb}": refused(errno.EPERM)})
    words = ["--reason=x"] if verb == "disable" else []
    done = dws(found, verb, "tuo201", *words)
    error = f"flux-dws: ERROR: only the instance owner may {verb} Rabbits\n"
    assert done == (1, "", error)


def test_a_change_that_takes_too_long_may_still_come() -> None:
    late = refused(errno.ETIMEDOUT, "the dws module has not answered for 60 s")
    done = dws(FixedInstance({"dws.rabbit-enable": late}), "enable", "tuo201")
    error = f"{late.strerror}: flux dws rabbits shows which Rabbits it has enabled"
    assert done == (1, "", f"flux-dws: ERROR: {error}\n")


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


def test_a_refusal_of_the_module_is_shown_in_its_words() -> None:
    found = FixedInstance({"dws.rabbit-enable": refused(errno.ENOENT, "no tuo9\x1b")})
    assert dws(found, "enable", "tuo9").err == "flux-dws: ERROR: no tuo9\\x1b\n"


def test_a_reason_is_required() -> None:
    assert dws(FixedInstance(), "disable", "tuo9").status == 2
    done = dws(FixedInstance(), "disable", "tuo9", "--reason= ")
    assert done.err == (
        "flux-dws: ERROR: --reason: expected a text, as in --reason='slow ssd'\n"
    )
    assert dws(FixedInstance(), "enable", ",").err == (
        "flux-dws: ERROR: no Rabbit is named\n"
    )
