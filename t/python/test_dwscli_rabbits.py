# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""flux dws rabbits, disable and enable."""

from __future__ import annotations

import errno
import shlex
from functools import partial
from typing import Any

import pytest

from flux_k8s.ports import Json
from support.dwscli import (
    FRESH,
    NEVER,
    OLD,
    FixedInstance,
    dws,
    is_golden,
    refused,
    shows,
)
from support.dwscli import rabbit as a_rabbit
from support.tables import rows

TIB = 2**40
WAITS = "flux-dws: WARNING: waiting for the dws module, which asks Kubernetes\n"


rabbit = partial(a_rabbit, capacity=30 * TIB, free=20 * TIB, njobs=2, jobs=[1 << 60])
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


def test_nodes_that_another_program_has_disabled_are_a_reason() -> None:
    row = rabbit(broken="tuo1003", disabled_nodes="tuo[1001-1002]")
    found = FixedInstance({"dws.rabbit-list": {**FRESH, "rabbits": [row]}})
    assert dws(found, "rabbits", "-n", "-o", "{reason}").out == (
        "broken links: tuo1003; disabled in SystemStatus: tuo[1001-1002]\n"
    )


def test_what_is_no_number_of_a_job_is_not_shown() -> None:
    row = rabbit(njobs=2, jobs=[0, -1, "1"])
    found = FixedInstance({"dws.rabbit-list": {**FRESH, "rabbits": [row]}})
    assert dws(found, "rabbits", "-n", "-o", "{jobs}").out == "ƒ1\n"


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


def test_colors_tell_who_serves() -> None:
    lines = dws(instance(), "rabbits", "--color").out.splitlines()
    colors = [line[:8] if line.startswith("\x1b") else "" for line in lines]
    red, yellow = "\x1b[01;31m", "\x1b[01;33m"
    assert colors == ["", yellow, red, red, ""]


# disable, enable


ANSWERS: dict[str, Any] = {
    "both": {"rabbits": ["tuo201", "tuo202"]},
    "second": {"rabbits": ["tuo202"]},
    "replaced": {"rabbits": ["tuo202"], "replaced": {"tuo202": "new disks"}},
    "denied": refused(errno.EPERM),
    "late": refused(errno.ETIMEDOUT, "the dws module has not answered for 60 s"),
    "none": refused(errno.ENOENT, "no tuo9\x1b"),
}
CHANGED = r"""
both: disable tuo[201-202] --reason 'slow ssd' -> 0
replaced: disable tuo202 --reason 'slow ssd' -> 0 -> flux-dws: WARNING: tuo202 was
  disabled already: this replaces the reason 'new disks'
denied: disable tuo202 --reason x -> 1 -> only the instance owner may disable Rabbits
both: disable tuo9 -> 2 -> --reason
both: disable tuo9 --reason=' ' -> 1 -> ERROR: --reason: expected a text, as in
  --reason='slow ssd'
second: enable tuo201 tuo202 -> 0 -> flux-dws: WARNING: enabled already: tuo201
second: enable tuo202 tuo203 -> 1 -> ERROR: Disabled in DWS, which is not undone here:
  tuo203;
denied: enable tuo201 -> 1 -> only the instance owner may enable Rabbits
late: enable tuo201 -> 1 -> the dws module has not answered for 60 s: flux dws rabbits
  shows which Rabbits it has enabled
none: enable tuo9 -> 1 -> no tuo9\x1b
both: enable , -> 1 -> ERROR: no Rabbit is named
"""
REQUESTED = {
    "disable": {**ANSWERS["both"], "reason": "slow ssd", "by": "root"},
    "enable": ANSWERS["both"],
}


@pytest.mark.parametrize(("words", "status", "said"), rows(CHANGED, 3))
def test_the_instance_owner_takes_rabbits_out_of_service_and_puts_them_back(
    words: str, status: str, said: str
) -> None:
    answer, verb, *args = shlex.split(words)
    listed = [rabbit(), rabbit("tuo202"), rabbit("tuo203", state="Disabled")]
    topic, given = f"dws.rabbit-{verb}", ANSWERS[answer[:-1]]
    found = FixedInstance(
        {topic: given, "dws.rabbit-list": {**FRESH, "rabbits": listed}}
    )
    done = dws(found, verb, *args)
    assert done.out == "" and shows(done, int(status), said)
    assert bool(done.err) == bool(said)
    if status == "0" and answer != "replaced:":
        assert found.requests[0] == (topic, REQUESTED[verb])


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
