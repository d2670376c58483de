# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""flux dws check."""

from __future__ import annotations

import errno
import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dwscli.fit import Rabbit, Release, fit
from dwscli.width import columns
from flux_k8s.dws.mapping import assemble
from flux_k8s.rfc import hostlist
from support.dwscli import (
    ANY_RABBITS,
    FIRST,
    FRESH,
    GIB,
    NOT_LOADED,
    NOW,
    OLD,
    FixedInstance,
    dws,
    is_golden,
)

XFS = "#DW jobdw type=xfs capacity=10GiB name=p1"
NODE = {"type": "node", "count": 2}
JOB = FIRST + 7


def rabbit(name: str = "tuo201", **changes: Any) -> dict[str, Any]:
    """A Rabbit of ``dws.rabbit-list`` with 16 nodes and room for all of them."""
    return {
        "name": name,
        "state": "Ready",
        "reason": "",
        "capacity": 200 * GIB,
        "free": 160 * GIB,
        "withheld": 0,
        "ssd_size": 1,
        "ssds": 200,
        "ssds_withheld": 0,
        "ssds_free": 176,
        "nodes": "tuo[1001-1016]",
        "broken": "",
        "njobs": 0,
        "jobs": [],
        "job_ssds": {},
        "disabled": None,
        **changes,
    }


def running(id: int = JOB, rabbits: str = "tuo201", **changes: Any) -> dict[str, Any]:
    """A job that runs, as job-list has it."""
    return {
        "id": id,
        "userid": 0,
        "state": 16,
        "expiration": NOW + 1200,
        "annotations": {"user": {"rabbits": rabbits}},
        **changes,
    }


def instance(*rabbits: Any, jobs: Any = (), rows: Any = (), **options: Any) -> Any:
    answers = {
        "dws.rabbit-list": {**FRESH, "rabbits": [*rabbits] or [rabbit()]},
        "dws.job-list": {**FRESH, "jobs": [*rows], "next": None, "totals": {}},
    }
    found = FixedInstance({**answers, **options}, jobs=jobs)
    rows = answers["dws.rabbit-list"]["rabbits"]
    texts = [row["nodes"] for row in rows if row["nodes"].startswith("tuo")]
    allocated = [job["nodelist"] for job in found.jobs if "nodelist" in job]
    found.allocated = frozenset(hostlist.decode_all(allocated))
    found.free = frozenset(hostlist.decode_all(texts)) - found.allocated
    return found


# Refusals


def test_the_word_that_is_wrong_is_underlined() -> None:
    done = dws(instance(), "check", XFS.replace("GiB", "Gib"))
    assert done == (
        1,
        "refused: capacity=10Gib is not a size: did you mean 10GiB?\n"
        "  #DW jobdw type=xfs capacity=10Gib name=p1\n"
        "                              ^~~~~\n",
        "",
    )


def test_a_refusal_needs_no_module() -> None:
    done = dws(FixedInstance(), "check", XFS.replace("10GiB", "10Gib"))
    assert done.status == 1 and "did you mean 10GiB?" in done.out
    assert dws(FixedInstance(), "check", XFS) == (1, "", NOT_LOADED)


def test_several_directives_are_checked_together() -> None:
    copy = "#DW copy_in source=/lustre/x destination=$DW_JOB_p2/"
    done = dws(instance(), "check", XFS, copy)
    assert done.status == 1 and "did you mean $DW_JOB_p1?" in done.out


def test_a_preset_is_checked_by_its_name() -> None:
    found = instance()
    found.table = {"presets": {"scratch": XFS}}
    assert "10GiB xfs" in dws(found, "check", "--preset", "scratch").out
    done = dws(found, "check", "--preset=scrtch")
    assert done.status == 1 and "did you mean scratch?" in done.out


def test_more_than_the_machine_has_is_refused() -> None:
    found = instance()
    found.mapping = assemble({"tuo201": ["tuo1001"]}, {"tuo201": 100 * GIB})
    done = dws(found, "check", XFS, "-N", "11")
    assert done.status == 1
    assert "asks for 110 GiB on 11 nodes; all Rabbits together have 100" in done.out


def test_more_on_a_node_than_the_largest_rabbit_has_is_refused() -> None:
    found = instance()
    nodes = {"tuo201": ["tuo1001"], "tuo202": ["tuo1002"]}
    found.mapping = assemble(nodes, dict.fromkeys(nodes, 6 * GIB))
    done = dws(found, "check", XFS)
    assert done.status == 1
    assert (
        "each node needs 10 GiB on its Rabbit, but the largest Rabbit has 6" in done.out
    )


def test_a_refusal_in_json_has_the_place_of_the_word() -> None:
    done = dws(instance(), "check", "--json", XFS.replace("GiB", "Gib"))
    found = json.loads(done.out)
    assert done.status == 1 and found["accepted"] is False
    assert found["line"][found["start"] : found["end"]] == "10Gib"
    assert found["meant"] == "10GiB"


def test_control_characters_do_not_reach_the_terminal() -> None:
    done = dws(instance(), "check", XFS.replace("xfs", "\x1b[31m") + " =\x1b[31m")
    assert done.status == 1 and "\x1b" not in done.out + done.err


@pytest.mark.parametrize(
    "words, error",
    [
        ([], "expected a #DW directive, a script or --preset"),
        ([""], "'' is neither a #DW directive nor a script"),
        (["scratch"], "scratch: no such script; a preset is checked with --preset="),
        ([XFS, "job.sh"], "job.sh: a script is checked alone"),
    ],
)
def test_check_without_directives_is_an_error_of_one_line(
    words: list[str], error: str
) -> None:
    done = dws(instance(), "check", *words)
    assert (done.status, done.out) == (1, "")
    assert (
        done.err.startswith(f"flux-dws: ERROR: {error}") and done.err.count("\n") == 1
    )


def test_a_flux_without_rabbits_checks_nothing() -> None:
    found = instance()
    found.table = None
    error = "flux-dws: ERROR: jobs get no storage here: Flux has no [rabbit] table\n"
    assert dws(found, "check", XFS) == (1, "", error)


@pytest.mark.parametrize("nodes", ["0", "-1", "x", "2.5", "99999999999", "²"])
def test_nodes_are_a_number(nodes: str) -> None:
    done = dws(instance(), "check", XFS, f"--nodes={nodes}")
    assert done.status == 2
    assert f"-N/--nodes: '{nodes}' is not a number from 1 to" in done.err


# Scripts


def jobspec(dw: Any, script: str = "#!/bin/sh\n") -> Any:
    system = {"dw": dw, "files": {"script": {"data": script}}}
    return {"resources": [NODE], "attributes": {"system": system}}


def test_a_script_is_checked_as_flux_batch_reads_it() -> None:
    found = instance()
    found.jobspecs = {"job.sh": jobspec([XFS])}
    done = dws(found, "check", "job.sh")
    assert done.status == 0 and "20GiB xfs" in done.out
    found.jobspecs = {"job.sh": jobspec(XFS.replace("GiB", "Gib"))}
    assert "did you mean 10GiB?" in dws(found, "check", "job.sh").out


def test_check_refuses_scripts_that_flux_batch_refuses_in_its_words() -> None:
    found = instance()
    found.jobspecs = {"job.sh": ValueError("line 3: a\n  b\x1b")}
    assert dws(found, "check", "job.sh") == (1, "refused: line 3: a\n  b\\x1b\n", "")


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
    script = f"#!/bin/sh\n#flux: -N1\n{line}\n"
    found = instance()
    found.jobspecs = {"job.sh": jobspec(None, script)}
    done = dws(found, "check", "job.sh")
    assert done.status == 1 and "job.sh: line 3: Flux " in done.err
    assert "and the job has no storage: expected '#flux: --dw=" in done.err


@pytest.mark.parametrize(
    "line", ["", "#flux: # #DW ", "# DW it", "echo '#DW '", "##DW "]
)
def test_a_script_without_directives_asks_for_no_storage(line: str) -> None:
    found = instance()
    found.jobspecs = {"job.sh": jobspec(None, f"#!/bin/sh\n{line}\n")}
    assert "asks for no storage" in dws(found, "check", "job.sh").err


def test_a_directive_that_flux_does_not_read_beside_others_is_warned_of() -> None:
    copy = "#DW copy_in source=/lustre/in destination=$DW_JOB_p1/in"
    found = instance()
    script = f'#!/bin/sh\n#flux: --dw="{XFS}"\n#flux: {copy}\n'
    found.jobspecs = {"job.sh": jobspec([XFS], script)}
    done = dws(found, "check", "job.sh")
    assert done.status == 0
    assert "job.sh: line 3: Flux takes a #DW that is not within an option" in done.err
    assert "no storage" not in done.err


@pytest.mark.parametrize("quotes", ['"""', "'''"])
def test_directives_within_an_option_of_several_lines_are_read(quotes: str) -> None:
    script = f"#!/bin/sh\n#flux: -S dw={quotes}\n#flux: {XFS}\n#flux: {quotes}\n"
    found = instance()
    found.jobspecs = {"job.sh": jobspec(XFS + "\n", script)}
    assert dws(found, "check", "job.sh").err == ""


def test_a_file_that_cannot_be_read_is_named() -> None:
    found = instance()
    found.jobspecs = {"job.sh": IsADirectoryError(errno.EISDIR, "Is a directory")}
    done = dws(found, "check", "job.sh")
    assert (done.status, done.err) == (1, "flux-dws: ERROR: job.sh: Is a directory\n")


# What would be accepted


def test_check_shows_the_rabbits_on_which_the_storage_fits_now() -> None:
    found = instance(rabbit(), rabbit("tuo202", nodes="tuo[1017-1032]", ssds_free=35))
    done = dws(found, "check", "-N", "4", XFS)
    assert (done.status, done.err) == (0, "")
    assert is_golden("check-fits.txt", done.out)


def test_when_the_rest_fits_is_shown() -> None:
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
    assert is_golden("check-later.txt", dws(found, "check", "-N", "16", XFS).out)
    assert is_golden(
        "check-40.txt", dws(found, "check", "-N", "16", XFS, columns=40).out
    )


@pytest.mark.parametrize("expiration", [0, 9223372036.0])
def test_a_job_without_a_time_limit_is_named(expiration: float) -> None:
    busy = rabbit(ssds_free=5, njobs=1)
    done = dws(instance(busy, jobs=[running(expiration=expiration)]), "check", XFS)
    assert "Fits now:   no\n" in done.out and "Fits by:    not known\n" in done.out
    assert "without a time limit that runs" in done.out
    assert "Waits for:  1 job:" in dws(instance(busy), "check", XFS).out


def test_a_job_that_copies_data_out_has_no_known_end() -> None:
    busy = rabbit(ssds_free=5, njobs=1)
    done = dws(instance(busy, jobs=[running(state=32)]), "check", XFS)
    assert "Fits by:    not known\n" in done.out


def test_persistent_storage_does_not_go_with_the_jobs() -> None:
    full = rabbit(ssds=8, ssds_withheld=192, ssds_free=5, njobs=1)
    done = dws(instance(full, jobs=[running()]), "check", XFS)
    assert done.status == 0
    assert "Fits by:    not before storage that no job has is gone, the" in done.out


def test_an_ssd_goes_to_one_node_as_a_whole() -> None:
    found = instance(rabbit(ssd_size=60, ssds=36, ssds_free=7))
    done = dws(found, "check", "-N4", XFS)
    assert "40GiB xfs, 10 GiB for each node, in whole ssd of 60 GiB" in done.out
    assert "yes: 7 nodes on tuo201" in done.out
    more = XFS.replace("10GiB", "60GiB")  # and what the storage profile adds
    assert "no: 3 nodes on tuo201" in dws(found, "check", "-N4", more).out


def test_ssds_of_several_sizes_are_named_from_the_smallest_to_the_largest() -> None:
    others = {"nodes": "tuo[1017-1032]", "ssds": 36, "ssds_free": 36}
    found = instance(
        rabbit(ssd_size=60), rabbit("b", ssd_size=5, **others), rabbit("c", **others)
    )
    done = dws(found, "check", "-N4", XFS)
    assert "10 GiB for each node, in whole ssd of 1 to 60 GiB" in done.out
    assert "yes: 16 nodes on tuo201, 12 nodes on b, 3 nodes on c" in done.out


def test_nodes_without_a_link_do_not_count() -> None:
    found = instance(rabbit(broken="tuo[1002-1016]"))
    done = dws(found, "check", XFS)
    assert "1 of tuo1001" in done.out and "yes: 1 node on tuo201" in done.out


def test_nodes_of_jobs_are_free_at_their_time_limits() -> None:
    jobs = [
        running(JOB, "", nodelist="tuo[1001-1013]", expiration=NOW + 600),
        running(JOB + 1, "", nodelist="tuo1014"),
        running(JOB + 2, "", nodelist="tuo[1014-1015]", state=32),
    ]
    found = instance(jobs=jobs)
    done = dws(found, "check", "-N4", XFS)
    assert "4 of tuo[1001-1016], 1 of which are free now\n" in done.out
    assert "Fits now:   no: 1 node on tuo201\n" in done.out
    assert "Fits by:    2025-11-24T16:10:00 (in 10m): 14 nodes on tuo201\n" in done.out
    assert "Waits for:  the time limit of ƒ3gDmDv6tjHQ\n" in done.out
    assert "yes: 1 node on tuo201" in dws(found, "check", XFS).out
    done = dws(found, "check", "-N15", XFS)
    assert "Fits by:    not known\n" in done.out


def test_nodes_that_are_down_do_not_count_and_are_named() -> None:
    found = instance()
    found.down = frozenset({"tuo1003", "tuo1001", "tuo1002"})
    found.free -= found.down
    done = dws(found, "check", "-N14", XFS)
    assert "Fits now:   no: 13 nodes on tuo201\nFits by:    not known\n" in done.out
    assert "Avoids:     tuo[1001-1003]: down, drained or unknown to Flux\n" in done.out
    assert "Waits for" not in done.out
    assert json.loads(dws(found, "check", "--json", XFS).out)["free_nodes"] == 13


def test_more_nodes_than_flux_has_never_fit() -> None:
    out = rabbit("tuo202", nodes="gone[1-16]", reason="Offline")
    found = instance(rabbit(broken="tuo1001"), out)
    found.down = frozenset({"tuo1002", "other1"})
    found.free -= found.down
    done = dws(found, "check", "-N17", XFS)
    never = "Never:      the job asks for 17 nodes, and 16 are below Rabbits\n"
    assert done.status == 1 and done.out.startswith(never)
    assert "Fits" not in done.out and "Accepted" not in done.out
    use = "#DW persistentdw name=keep"  # perhaps over the network
    done = dws(found, "check", "-N18", "--json", use)
    answer = json.loads(done.out)
    assert answer["never"] == "the job asks for 18 nodes, and Flux has 17"
    assert answer["accepted"] is False
    assert done.status == 1
    for nodes, dw in (("-N16", XFS), ("-N17", use)):
        done = dws(found, "check", nodes, dw)
        assert done.status == 0 and "never" not in done.out.lower()


def test_what_no_rabbits_have_room_for_never_fits() -> None:
    """As the module refuses it in Proposal, where it knows what is added."""
    found = instance(rabbit(ssd_size=60, ssds=36, ssds_free=36))
    done = dws(found, "check", "-N16", XFS.replace("10GiB", "120GiB"))
    assert done.status == 1
    assert done.out.startswith(
        "Never:      the job asks for 16 nodes with 121 GiB each, in whole ssd of 60"
        " GiB,\n            and the Rabbits have room for 12\n"
    )


def test_lustre_may_be_on_other_rabbits_where_the_scheduler_does_not_give_it() -> None:
    answer = {**FRESH, "rabbits": [rabbit()], "gives_ssd": False}
    found = instance(**{"dws.rabbit-list": answer})
    lustre = XFS.replace("xfs", "lustre").replace("10GiB", "300GiB")
    assert dws(found, "check", lustre).status == 0
    answer["gives_ssd"] = True
    assert "Never:" in dws(found, "check", lustre).out


def test_check_says_why_the_scheduler_gives_no_storage_to_any_job() -> None:
    text = "Fluxion: no Rabbit found in its graph: jobs with storage wait"
    answer = {**FRESH, "rabbits": [rabbit()], "why_none": text}
    done = dws(instance(**{"dws.rabbit-list": answer}), "check", XFS)
    assert done.status == 0 and f"Fits now:   no: {text}\n" in done.out


def test_a_job_that_fits_nowhere_waits_where_the_mapping_is_wrong() -> None:
    """As it does in Proposal: the mapping may be that of another machine."""
    text = "the rabbit mapping is wrong about tuo202"
    answer = {**FRESH, "rabbits": [rabbit()], "disagreement": text}
    found = instance(**{"dws.rabbit-list": answer})
    for directive in (XFS, "#DW persistentdw name=keep"):
        done = dws(found, "check", "-N99", directive)
        assert done.status == 0 and f"Fits now:   no: {text}\n" in done.out
    assert json.loads(dws(found, "check", "--json", "-N99", XFS).out)["accepted"]
    del answer["disagreement"]
    assert dws(found, "check", "-N99", XFS).status == 1


def test_nodes_are_divided_evenly_among_as_many_rabbits_as_a_script_says() -> None:
    small = rabbit("tuo202", nodes="tuo[1017-1032]", ssds_free=20)
    found = instance(rabbit(), small)
    spec = jobspec([XFS])
    below = [{"type": "node", "count": 2}]
    spec["resources"] = [{"type": "chassis", "count": 2, "with": below}]
    found.jobspecs = {"job.sh": spec}
    done = dws(found, "check", "job.sh")
    assert "Fits now:   no: 16 nodes on tuo201, 1 node on tuo202\n" in done.out


def test_a_node_that_no_job_has_may_be_allocated() -> None:
    found = instance()
    found.free -= {"tuo1001"}
    found.allocated = frozenset({"tuo1001"})  # by housekeeping
    done = dws(found, "check", "-N16", XFS)
    assert "no: 15 nodes on tuo201" in done.out and "Avoids" not in done.out
    assert "Waits for:  1 job: without a time limit that runs\n" in done.out


def test_a_job_that_makes_no_storage_gets_none() -> None:
    done = dws(instance(), "check", "#DW destroy_persistent name=keep")
    assert "Storage:    none\n" in done.out and "Fits" not in done.out


def test_the_capacity_of_lustre_is_shared_by_the_nodes() -> None:
    lustre = XFS.replace("xfs", "lustre")
    done = dws(instance(), "check", "-N4", lustre)
    assert "10GiB lustre, 3 GiB for each node" in done.out


def test_a_job_that_only_uses_storage_needs_no_room() -> None:
    done = dws(instance(), "check", "#DW persistentdw name=keep")
    assert "Storage:    persistent keep\n" in done.out and "Fits" not in done.out


def test_without_a_rabbit_that_serves_it_fits_when_one_is_back() -> None:
    done = dws(instance(rabbit(reason="Offline: no answer")), "check", XFS)
    assert "no Rabbit serves jobs" in done.out
    assert "10GiB xfs, 10 GiB for each node\n" in done.out
    assert "Fits by:    not before others are back, the Rabbits that serve" in done.out
    assert "Avoids:     tuo201: Offline: no answer" in done.out


def test_check_writes_accepted_directives_as_json() -> None:
    done = dws(instance(), "check", "--json", "-N2", XFS)
    found = json.loads(done.out)
    assert found["accepted"] is True and found["ssd"] == 10
    assert found["constraint"] == {"hostlist": ["tuo[1001-1016]"]}
    assert found["fits_now"] == {"tuo201": 16} and found["fits_by"] is None


def test_check_warns_that_its_answer_is_old() -> None:
    found = instance(**{"dws.rabbit-list": {**OLD, "rabbits": [rabbit()]}})
    assert "last heard of 3.5m ago" in dws(found, "check", XFS).err


# Properties

times = st.one_of(st.just(math.inf), st.integers(0, 9))
releases = st.lists(
    st.builds(
        Release,
        jobid=st.integers(0, 50),
        at=times,
        ssds=st.one_of(st.none(), st.integers(0, 40)),
    ),
    max_size=4,
)
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


def test_a_word_is_underlined_on_a_narrow_terminal() -> None:
    wrong = "#DW jobdw type=xfs capacity=10Gib name=p1"
    done = dws(instance(), "check", wrong, columns=30)
    line, marks = done.out.splitlines()[1:]
    assert columns(line) <= 30
    assert line.index("capacity=10Gib") + len("capacity=") == marks.index("^~~~~")


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
