# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""flux dws check."""

from __future__ import annotations

import errno
import json
import math
import re
import shlex
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dwscli.fit import Rabbit, Release, fit
from flux_k8s.formats import hostlist
from flux_k8s.objects.mapping import assemble
from flux_k8s.rules.directiverules import read_rules
from flux_k8s.text import columns
from rabbitsim.dws.directive import read_data
from support.dwscli import (
    ANY_RABBITS,
    FIRST,
    FRESH,
    GIB,
    NOW,
    OLD,
    FixedInstance,
    dws,
    is_golden,
    rabbit,
    shows,
)
from support.tables import rows

XFS = "#DW jobdw type=xfs capacity=10GiB name=p1"
COPY = "#DW copy_in source=/lustre/in destination=$DW_JOB_p1/in"
JOB = FIRST + 7


def running(id: int = JOB, rabbits: str = "tuo201", **changes: Any) -> dict[str, Any]:
    """A job that runs, as job-list has it."""
    annotations = {"user": {"rabbits": rabbits}}
    times = {"expiration": NOW + 1200, "annotations": annotations}
    return {"id": id, "userid": 0, "state": 16, **times, **changes}


def instance(
    *rabbits: Any, jobs: Any = (), down: Any = (), table: Any = None, **answer: Any
) -> FixedInstance:
    """An instance with these Rabbits, and more in their answer."""
    answers: Any = {
        "dws.rabbit-list": {**FRESH, "rabbits": [*rabbits] or [rabbit()], **answer},
        "dws.job-list": {**FRESH, "jobs": [], "next": None, "totals": {}},
    }
    found = FixedInstance(answers, jobs=jobs)
    texts = [row["nodes"] for row in answers["dws.rabbit-list"]["rabbits"]]
    allocated = [job["nodelist"] for job in found.jobs if "nodelist" in job]
    found.allocated = frozenset(hostlist.decode_all(allocated))
    found.free = frozenset(
        hostlist.decode_all(text for text in texts if text.startswith("tuo"))
    ) - found.allocated.union(down)
    found.down = frozenset(down)
    found.table = table if table is not None else {}
    found.rules = read_rules(read_data("ruleset.yaml")["spec"])
    return found


def script(dw: Any, *lines: str, **found: Any) -> FixedInstance:
    """An instance in which job.sh has these directives and lines."""
    system = {"dw": dw, "files": {"script": {"data": "\n".join(["#!/bin/sh", *lines])}}}
    resources = found.pop("resources", [{"type": "node", "count": 2}])
    jobspec = {"resources": resources, "attributes": {"system": system}}
    made = instance(**found)
    made.jobspecs = {"job.sh": jobspec}
    return made


def refused_script(error: Exception) -> FixedInstance:
    made = instance()
    made.jobspecs = {"job.sh": error}  # type: ignore[dict-item]
    return made


def mapped() -> FixedInstance:
    made = instance()
    made.mapping = assemble({"tuo201": ["tuo1001"]}, {"tuo201": 100 * GIB})
    return made


def no_table() -> FixedInstance:
    made = instance()
    made.table = None
    return made


def housekeeping() -> FixedInstance:
    made = instance()
    made.free -= {"tuo1001"}
    made.allocated = frozenset({"tuo1001"})
    return made


OTHERS = {"nodes": "tuo[1017-1032]", "ssds": 36, "ssds_free": 36}
BUSY = rabbit(ssds_free=5, njobs=1)
OF_NODES = [
    running(JOB, "", nodelist="tuo[1001-1013]", expiration=NOW + 600),
    running(JOB + 1, "", nodelist="tuo1014"),
    running(JOB + 2, "", nodelist="tuo[1014-1015]", state=32),
]
DISAGREE = "the rabbit mapping is wrong about tuo202"
NO_RABBIT = "Fluxion: no Rabbit found in its graph: jobs with storage wait"
CHASSIS = {"type": "chassis", "count": 2, "with": [{"type": "node", "count": 2}]}
INSTANCES = {
    "plain": instance(),
    "no module": FixedInstance(),
    "preset": instance(table={"presets": {"scratch": XFS}}),
    "mapped": mapped(),
    "no table": no_table(),
    "script": script([XFS]),
    "wrong script": script(XFS.replace("GiB", "Gib")),
    "bad script": refused_script(ValueError("line 3: a\n  b\x1b")),
    "folder": refused_script(IsADirectoryError(errno.EISDIR, "Is a directory")),
    "unread": script([XFS], f'#flux: --dw="{XFS}"', f"#flux: {COPY}"),
    "long option": script(
        XFS + "\n", '#flux: -S dw="""', f"#flux: {XFS}", '#flux: """'
    ),
    "other quotes": script(XFS, "#flux: -S dw='''", f"#flux: {XFS}", "#flux: '''"),
    "no limit": instance(BUSY, jobs=[running(expiration=0)]),
    "far limit": instance(BUSY, jobs=[running(expiration=9223372036.0)]),
    "copying": instance(BUSY, jobs=[running(state=32)]),
    "busy": instance(BUSY),
    "persistent": instance(
        rabbit(ssds=8, ssds_withheld=192, ssds_free=5, njobs=1), jobs=[running()]
    ),
    "large ssd": instance(rabbit(ssd_size=60, ssds=36, ssds_free=7)),
    "free ssd": instance(rabbit(ssd_size=60, ssds=36, ssds_free=36)),
    "several sizes": instance(
        rabbit(ssd_size=60), rabbit("b", ssd_size=5, **OTHERS), rabbit("c", **OTHERS)
    ),
    "links": instance(rabbit(broken="tuo[1002-1016]")),
    "status": instance(rabbit(disabled_nodes="tuo[1002-1016]")),
    "nodes": instance(jobs=OF_NODES),
    "down": instance(down={"tuo1003", "tuo1001", "tuo1002"}),
    "gone": instance(
        rabbit(broken="tuo1001"),
        rabbit("tuo202", nodes="gone[1-16]", reason="Offline"),
        down={"tuo1002", "other1"},
    ),
    "anywhere": instance(gives_ssd=False),
    "gives": instance(gives_ssd=True),
    "none": instance(why_none=NO_RABBIT),
    "disagrees": instance(disagreement=DISAGREE),
    "housekeeping": housekeeping(),
    "offline": instance(rabbit(reason="Offline: no answer")),
    "old": instance(**OLD),
}

# Whose instance, with which words, which exit status, and what is said.

SAID = r"""
plain: XFS=10Gib -> 1 -> did you mean 10GiB?
no module: XFS -> 1 -> the dws module is not loaded
preset: --preset scratch -> 0 -> 10GiB xfs
preset: --preset=scrtch -> 1 -> did you mean scratch?
mapped: XFS=101GiB -N 11 -> 1 -> asks for 101 GiB; all Rabbits together have 100
no table: XFS -> 1 -> ERROR: jobs get no storage here: Flux has no [rabbit] table
plain: -> 1 -> ERROR: expected a #DW directive, a script or --preset
plain: '' -> 1 -> ERROR: '' is neither a #DW directive nor a script
plain: scratch -> 1 -> scratch: no such script; a preset is checked with --preset=
plain: XFS job.sh -> 1 -> job.sh: a script is checked alone
plain: job.sh other.sh -> 1 -> job.sh: a script is checked alone
plain: job.sh --preset=scratch -> 1 -> job.sh: a script is checked alone
plain: XFS --nodes=0 -> 2 -> -N/--nodes: '0' is not a number from 1 to
plain: XFS --nodes=2.5 -> 2 -> -N/--nodes: '2.5' is not a number from 1 to
plain: XFS --nodes=99999999999 -> 2 -> -N/--nodes: '99999999999' is not a number from
plain: XFS --nodes=² -> 2 -> -N/--nodes: '²' is not a number from 1 to
script: job.sh -> 0 -> 20GiB xfs
wrong script: job.sh -> 1 -> did you mean 10GiB?
bad script: job.sh -> 1 -> refused: line 3: a b\x1b
folder: job.sh -> 1 -> ERROR: job.sh: Is a directory
unread: job.sh -> 0 -> job.sh: line 3: Flux takes a #DW that is not within an option
  | -- no storage
long option: job.sh -> 0 -> Accepted | -- WARNING
other quotes: job.sh -> 0 -> Accepted | -- WARNING
# When it fits
no limit: XFS -> 0 -> Fits now: no | Fits by: not known | without a time limit that runs
far limit: XFS -> 0 -> Fits by: not known | without a time limit that runs
busy: XFS -> 0 -> Waits for: 1 job:
copying: XFS -> 0 -> Fits by: not known
persistent: XFS -> 0 -> Fits by: not before storage that no job has is gone, the
large ssd: -N4 XFS -> 0 -> 40GiB xfs, 10 GiB for each node, in whole ssd of 60 GiB
  | yes: 7 nodes on tuo201
large ssd: -N4 XFS=60GiB -> 0 -> no: 3 nodes on tuo201
several sizes: -N4 XFS -> 0 -> 10 GiB for each node, in whole ssd of 1 to 60 GiB
  | yes: 16 nodes on tuo201, 12 nodes on b, 3 nodes on c
links: XFS -> 0 -> 1 of tuo1001 | yes: 1 node on tuo201
links: -N2 XFS -> 0 -> Fits by: not before all nodes are connected, the
status: -N2 XFS -> 0 -> not before nodes are Enabled in SystemStatus, the
nodes: -N4 XFS -> 0 -> 4 of tuo[1001-1016], 1 of which are free now
  | Fits now: no: 1 node on tuo201
  | Fits by: 2025-11-24T16:10:00 (in 10m): 14 nodes on tuo201
  | Waits for: the time limit of ƒ3gDmDv6tjHQ
nodes: XFS -> 0 -> yes: 1 node on tuo201
nodes: -N15 XFS -> 0 -> Fits by: not known
down: -N14 XFS -> 0 -> Fits now: no: 13 nodes on tuo201 Fits by: not known
  | Avoids: tuo[1001-1003]: down, drained or unknown to Flux | -- Waits for
down: -N14 --json XFS -> 0 -> "free_nodes": 13
housekeeping: -N16 XFS -> 0 -> no: 15 nodes on tuo201 | -- Avoids
  | Waits for: 1 job: without a time limit that runs
plain: '#DW destroy_persistent name=keep' -> 0 -> Storage: none | -- Fits
plain: '#DW persistentdw name=keep' -> 0 -> Storage: persistent keep | -- Fits
plain: -N4 LUSTRE=10GiB -> 0 -> 10GiB lustre, 3 GiB for each node
offline: XFS -> 0 -> no Rabbit serves jobs | 10GiB xfs, 10 GiB for each node
  | Fits by: not before others are back, the Rabbits that serve
  | Avoids: tuo201: Offline: no answer
none: XFS -> 0 -> Fits now: no: Fluxion: no Rabbit found in its graph: jobs with
  storage wait
# Never: as the module refuses it in Proposal, where it knows what is added.
gone: -N17 XFS -> 1 -> Never: the job asks for 17 nodes, and 16 are below Rabbits
  | -- Fits | -- Accepted
gone: -N16 XFS -> 0 -> Accepted | -- Never
gone: -N17 '#DW persistentdw name=keep' -> 0 -> Accepted | -- Never
gone: -N18 --json '#DW persistentdw name=keep' -> 1
  -> "never": "the job asks for 18 nodes, and Flux has 17" | "accepted": false
free ssd: -N16 XFS=120GiB -> 1 -> Never: the job asks for 16 nodes with 121 GiB each, in
  whole ssd of 60 GiB, and the Rabbits have room for 12
# Lustre may be on other Rabbits, unless the scheduler gives the storage.
anywhere: LUSTRE=300GiB -> 0 -> Accepted
gives: LUSTRE=300GiB -> 1 -> Never:
# As in Proposal: the mapping may be that of another machine.
disagrees: -N99 XFS -> 0 -> Fits now: no: the rabbit mapping is wrong about tuo202
disagrees: -N99 '#DW persistentdw name=keep' -> 0 -> Fits now: no: the rabbit mapping
disagrees: -N99 --json XFS -> 0 -> "accepted": true
plain: -N99 XFS -> 1 -> Never:
old: XFS -> 0 -> last heard of 3.5m ago
"""


@pytest.mark.parametrize(("words", "status", "said"), rows(SAID, 3))
def test_check_says_whether_and_when_storage_fits(
    words: str, status: str, said: str
) -> None:
    name, _, words = words.partition(":")
    given = [
        re.sub(r"^(XFS|LUSTRE)=?(.*)$", directive, word) for word in shlex.split(words)
    ]
    done = dws(INSTANCES[name], "check", *given, COLUMNS="500")
    assert shows(done, int(status), *said.split(" | "))


def directive(found: re.Match[str]) -> str:
    return f"#DW jobdw type={found[1].lower()} capacity={found[2] or '10GiB'} name=p1"


def test_the_word_that_is_wrong_is_underlined() -> None:
    wrong = XFS.replace("GiB", "Gib")
    assert dws(instance(), "check", wrong) == (
        1,
        "refused: capacity=10Gib is not a size: did you mean 10GiB?\n"
        "  #DW jobdw type=xfs capacity=10Gib name=p1\n"
        "                              ^~~~~\n",
        "",
    )
    line, marks = dws(instance(), "check", wrong, columns=30).out.splitlines()[1:]
    assert columns(line) <= 30
    assert line.index("capacity=10Gib") + len("capacity=") == marks.index("^~~~~")
    found = json.loads(dws(instance(), "check", "--json", wrong).out)
    assert found["line"][found["start"] : found["end"]] == "10Gib"
    assert (found["accepted"], found["meant"]) == (False, "10GiB")


UNREAD_LINES = [
    XFS,
    f"#DW\t{XFS[4:]}",
    f"#FLUX: {XFS}",
    f"#flux:{XFS}",
    f"# flux: {XFS}",
    f"#FLUX: -t 5m {XFS}",
]


@pytest.mark.parametrize("line", UNREAD_LINES)
def test_a_directive_that_flux_does_not_read_is_named(line: str) -> None:
    done = dws(script(None, "#flux: -N1", line), "check", "job.sh")
    assert done.status == 1 and "job.sh: line 3: Flux " in done.err
    assert "and the job has no storage: expected '#flux: --dw=" in done.err


@pytest.mark.parametrize(
    "line", ["", "#flux: # #DW ", "# DW it", "echo '#DW '", "##DW "]
)
def test_a_script_without_directives_asks_for_no_storage(line: str) -> None:
    assert "asks for no storage" in dws(script(None, line), "check", "job.sh").err


def test_check_shows_the_rabbits_on_which_the_storage_fits_now_or_later() -> None:
    two = instance(rabbit(), rabbit("tuo202", nodes="tuo[1017-1032]", ssds_free=35))
    done = dws(two, "check", "-N", "4", XFS)
    assert (done.status, done.err) == (0, "")
    assert is_golden("check-fits.txt", done.out)
    jobs = [
        running(JOB, "tuo201", expiration=NOW + 600),
        running(JOB + 1, "tuo[201-202]"),
        running(JOB + 2, "tuo202", expiration=NOW + 86400),
    ]
    found = instance(
        rabbit(ssds_free=15, njobs=2, job_ssds={str(JOB): 20}),
        rabbit("tuo202", ssds_free=5, nodes="tuo[1017-1032]", njobs=2),
        rabbit("tuo203", disabled={"by": "root", "at": NOW, "reason": "slow ssd"}),
        jobs=jobs,
    )
    words = ("check", "-N", "16", XFS)
    assert is_golden("check-later.txt", dws(found, *words).out)
    assert is_golden("check-40.txt", dws(found, *words, columns=40).out)


def test_nodes_are_divided_evenly_among_as_many_rabbits_as_a_script_says() -> None:
    found = instance(rabbit(), rabbit("tuo202", nodes="tuo[1017-1032]", ssds_free=20))
    found.jobspecs = script([XFS], resources=[CHASSIS]).jobspecs
    done = dws(found, "check", "job.sh")
    assert "Fits now:   no: 16 nodes on tuo201, 1 node on tuo202\n" in done.out


def test_check_writes_accepted_directives_as_json() -> None:
    found = json.loads(dws(instance(), "check", "--json", "-N2", XFS).out)
    assert found["accepted"] is True and found["ssd"] == 10
    assert found["constraint"] == {"hostlist": ["tuo[1001-1016]"]}
    assert found["fits_now"] == {"tuo201": 16} and found["fits_by"] is None


# Properties

times = st.one_of(st.just(math.inf), st.integers(0, 9))
ssds = st.one_of(st.none(), st.integers(0, 40))
releases = st.lists(st.builds(Release, st.integers(0, 50), times, ssds), max_size=4)
node_releases = st.builds(Release, st.integers(0, 50), times, st.none())
rabbits = st.lists(
    st.builds(
        lambda name, hosts, taken, free, more, size, releases: Rabbit(
            f"r{name}",
            tuple(map(str, range(hosts))),
            free,
            free + more,
            size,
            releases,
            {host: taken[host] for host in taken if int(host) < hosts},
        ),
        st.integers(0, 99),
        st.integers(0, 5),
        st.dictionaries(st.sampled_from("01234"), node_releases),
        st.integers(0, 40),
        st.integers(0, 90),
        st.integers(1, 12),
        releases,
    ),
    max_size=4,
    unique_by=lambda each: each.name,
)


@given(rabbits, st.integers(1, 12), st.integers(1, 20))
def test_the_time_is_the_first_at_which_all_nodes_have_room(
    found: list[Rabbit], nodes: int, gib: int
) -> None:
    def room(moment: float) -> int:
        return sum(each.nodes_at(moment, gib * GIB) for each in found)

    place = fit(found, nodes, gib * GIB)
    assert sum(place.now.values()) == room(-math.inf)
    expected = next((t for t in range(10) if room(t) >= nodes), None)
    if room(-math.inf) >= nodes:
        expected = None
    assert place.at == expected
    assert place.most == room(math.inf) >= sum(place.later.values())


@given(ANY_RABBITS, st.integers(20, 100))
def test_any_answer_is_shown_within_the_width(found: list[Any], width: int) -> None:
    words = ["check", "--color=never", "-N4", XFS]
    done = dws(instance(*found), *words, columns=width)
    assert done.status == done.out.startswith("Never:")
    lines = done.out.split("\n")[:-1]
    assert all(line.isprintable() and columns(line) <= width for line in lines)


def test_a_memo_that_names_any_number_of_rabbits_costs_others_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = []

    def release(*values: Any) -> Release:
        made.append(values)
        return Release(*values)

    monkeypatch.setattr("dwscli.fit.Release", release)
    jobs = [
        running(JOB, "tuo[201,0-999,300-99999]"),
        running(JOB + 1, "tuo[300-301]"),
        running(JOB + 2, "tuo201,tuo201"),
    ]
    done = dws(instance(rabbit("tuo201"), rabbit("tuo202"), jobs=jobs), "check", XFS)
    assert (done.status, done.err) == (0, "")
    assert [jobid for jobid, *_ in made] == [JOB + 2]
