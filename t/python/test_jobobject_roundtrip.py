# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Jobspecs as job objects and back: the same job is asked for.

What may change is how something is said, not what: a string of ``#DW`` directives
becomes a list, a constraint is put in short, and dependencies are written in one
order and form.
"""

from __future__ import annotations

import copy
import json
import shutil
import subprocess
from typing import Any, Iterator

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from flux_k8s.formats import constraints, jobid
from flux_k8s.formats.directives import parse_attribute
from flux_k8s.ports import Json
from sssjob import Element, read, write
from sssjob.from_flux.convert import JobRecord, group_object, job_object
from sssjob.schema.model import ObjectErrors
from sssjob.to_jobspec.convert import Submission, to_jobspecs
from support.expressions import CONSTRAINTS, NODES
from support.forks import Run, forks
from support.jobrecords import JOBID, eventlog, job_of, spec
from support.service import XFS

OF_JOBS = ("after", "afterstart", "afterany", "afterok", "afternotok")


def only(root: Element) -> Submission:
    """What is to be submitted for one job, without a warning."""
    warnings: list[str] = []
    (submission,) = to_jobspecs(root, warnings.append)
    assert not warnings
    return submission


def back(jobspec: Json) -> Json:
    """The jobspec of the job object of a job with this jobspec."""
    return only(job_of(jobspec, warnings=[])).jobspec


def said(jobspec: Json, nodes: bool = False) -> Json:
    """What a jobspec says, however it does.

    Args:
        nodes: constraints are about ``NODES``; otherwise what has the same short
            form is the same.
    """
    jobspec = copy.deepcopy(jobspec)
    system = jobspec["attributes"]["system"]
    if "dw" in system:
        system["dw"] = [directive.text for directive in parse_attribute(system["dw"])]
    if "dependencies" in system:
        system["dependencies"] = sorted(map(meant, system["dependencies"]))
    constraint = constraints.parse(system.pop("constraints", {}))
    system["constraints"] = (
        [constraint.match(host, 0, features) for host, features in NODES]
        if nodes
        else constraints.normalise(constraint.to_json())
    )
    return jobspec


def meant(dependency: Json) -> str:
    scheme, value = dependency["scheme"], dependency["value"]
    if set(dependency) == {"scheme", "value"} and scheme in OF_JOBS:
        return f"{scheme} {jobid.decode(value)}"
    if set(dependency) == {"scheme", "value"} and scheme == "begin-time":
        return f"{scheme} {float(value)}"
    return json.dumps(dependency)


# Jobspecs of Flux's own commands

SUBMIT = [
    "a 'b c' ''",
    "-n4 -c2 -N2 -g1",
    "-n5 -N2",
    "-n5 -N2 -c3 -g2",
    "-N2",
    "-N2 --exclusive -n4",
    "-N2 --exclusive -n5 -c7",
    "-N2 --tasks-per-node=4",
    "-N2 --cores=8 --tasks-per-node=4",
    "-N2 --cores=8 --tasks-per-node=4 --taskmap=cyclic",
    "--cores=8 --tasks-per-core=2",
    "--cores=8 --tasks-per-node=2",
    "-N2 --gpus-per-node=1",
    "--taskmap=cyclic -n4",
    "--taskmap=manual:'[[0,1,4,1]]' -n4",
    "--begin-time=+1h",
    "--begin-time=2030-01-01 --dependency=afterok:fVtB5VXe",
    "--dependency=afterok:fVtB5VXe --dependency=string:foo"
    " --dependency=afterany:ƒVtB5VXf",
    "--requires='foo&-bar host:a[1-3] | rank:3'",
    "--requires='foo&-bar host:a[1-3]'",
    "--requires=foo,bar",
    "--output=o.txt --error=e.txt --input=in.txt",
    "--output=o.txt --label-io -u",
    "-o output.mode=append --output=o",
    "-o output.mode=append --output=o --error=e",
    "-o output.mode=append --error=o",
    "-o output.mode=append",
    "-t 1.5s --queue=q --bank=b --setattr=project=p --job-name=n --cwd=/tmp",
    "-t 90m --setopt=verbose --rlimit=nofile=100,-core,stack=unlimited,nice",
    "-S dw='#DW jobdw type=xfs capacity=1GiB name=p1' -S dw_failure_tolerance=2",
    "-S dw='#DW jobdw type=xfs capacity=10GB name=p1"
    " #DW create_persistent type=lustre name=x capacity=3TiB'",
    "--signal=TERM@60 --flags=debug --add-file=x=/etc/hostname",
    "--env='-*'",
    "--env='-*' --env='A=b c' --env='T={{id}}' --setattr=.user.foo=1 -S a.b=3",
    "--env=A='<&>\"' --env=B= --env=C=$'a\\nb\\tc\\r'",
]

needs_flux = pytest.mark.skipif(
    shutil.which("flux") is None, reason="there is no flux on PATH"
)


IMPORTS = """
import os, runpy, sys
import flux.cli.batch, flux.cli.submit
"""

COMMAND = """
folder = os.environ["FLUX_EXEC_PATH"].split(":")[-1]
sys.argv[0] = f"{folder}/flux-{sys.argv.pop(1)}.py"
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.fixture(scope="module")
def flux() -> Iterator[Run]:
    with forks(["flux", "python"], IMPORTS) as run:
        yield run


def dry_run(flux: Run, command: str) -> Json:
    """The jobspec that a command of Flux would submit."""
    words = subprocess.run(
        ["bash", "-c", f"printf '%s\\0' {command}"], stdout=subprocess.PIPE, text=True
    )
    done = flux(COMMAND, *words.stdout.split("\0")[:-1])
    assert done.status == 0, done.said
    return dict(json.loads(done.said))


@needs_flux
@pytest.mark.parametrize("options", SUBMIT)
def test_a_job_of_flux_submit_is_requested_unchanged_by_its_job_object(
    flux: Run, options: str
) -> None:
    command = f"{options} hostname" if options.startswith("-") else options
    asked = dry_run(flux, f"submit --dry-run {command}")
    assert said(back(asked)) == said(asked)


# Other parts of a jobspec

TEXTS = st.text(max_size=6)
# In an Executable, some of them would have to be fetched.
PROGRAMS = TEXTS | st.sampled_from(["#script", "https://example.com/program"])
COUNTS = st.integers(1, 12)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner),
    max_leaves=6,
).filter(lambda value: "Infinity" not in json.dumps(value))
TREES = st.dictionaries(TEXTS, VALUES, max_size=4)


@st.composite
def sizes(draw: st.DrawFn) -> Json:
    """The jobspec for a job of some size: one that Flux's commands ask for, or any
    that jobspec version 1 allows."""
    nodes, slots, cores = draw(st.none() | COUNTS), draw(COUNTS), draw(COUNTS)
    gpus, exclusive = draw(st.integers(0, 3)), draw(st.booleans())
    jobspec = spec()
    inner: list[Json] = [{"type": "core", "count": cores}]
    if gpus:
        inner.append({"type": "gpu", "count": gpus})
    label = draw(st.sampled_from(["task", "default"]))
    slot = {"type": "slot", "count": slots, "with": inner, "label": label}
    node = {"type": "node", "count": nodes, "with": [slot]}
    if exclusive:
        node["exclusive"] = True
    total = slots * (nodes or 1)
    count = st.just({"per_slot": 1}) | st.builds(
        lambda total: {"total": total}, st.integers(1, total)
    )
    jobspec["resources"] = [slot if nodes is None else node]
    command = [draw(PROGRAMS), *draw(st.lists(TEXTS, max_size=3))]
    task = {"command": command, "slot": label, "count": draw(count)}
    jobspec["tasks"] = [task]
    return jobspec


def options() -> st.SearchStrategy[Json]:
    """Options of the job shell."""
    limits = st.sampled_from(["core", "cpu", "nofile", "stack", "nice", "ofile"])
    per_resource = st.fixed_dictionaries(
        {"type": st.sampled_from(["node", "core"])}, optional={"count": COUNTS}
    )
    files = st.fixed_dictionaries(
        {"type": st.sampled_from(["file", "kvs"]), "path": TEXTS.filter(str.strip)},
        optional={"label": st.booleans(), "buffer": st.just({"type": "none"})},
    )
    known = st.fixed_dictionaries(
        {},
        optional={
            "per-resource": per_resource,
            "taskmap": st.fixed_dictionaries(
                {"scheme": st.sampled_from(["block", "cyclic", "manual"])},
                optional={"value": st.sampled_from(["", "[[0,1,4,1]]"])},
            ),
            "rlimit": st.dictionaries(limits, st.integers(-1, 2**40)),
            "output": st.fixed_dictionaries(
                {},
                optional={
                    "stdout": files,
                    "stderr": files,
                    "mode": st.sampled_from(["append", "truncate"]),
                },
            ),
            "input": st.fixed_dictionaries({"stdin": files}),
            "verbose": st.integers(0, 2),
        },
    )
    return st.builds(lambda more, known: {**more, **known}, TREES, known)


# No job can wait for itself: its ID is not known when it is submitted.
IDS = st.integers(2**24, 2**64 - 1).filter(lambda id: id != JOBID).map(jobid.f58)
DEPENDENCIES = st.one_of(
    st.builds(lambda s, v: {"scheme": s, "value": v}, st.sampled_from(OF_JOBS), IDS),
    st.builds(
        lambda v: {"scheme": "begin-time", "value": v},
        st.sampled_from(["17", "1893528568.0", "1893528568.25", "1e9"]),
    ),
    st.builds(lambda v, t: {"scheme": "string", "value": v, "type": t}, TEXTS, TEXTS),
)
DIRECTIVES = st.sampled_from(
    [
        XFS,
        [XFS, "#DW jobdw type=lustre capacity=7TB name=p2"],
        f"{XFS} #DW persistentdw name=old",
        ["#DW create_persistent type=gfs2 capacity=1MiB name=new"],
        ["#DW destroy_persistent name=old"],
    ]
)


def attributes() -> st.SearchStrategy[Json]:
    """What stands below ``attributes.system``."""
    seconds = st.integers(0, 10**6) | st.floats(0, 10**11)
    known = st.fixed_dictionaries(
        {"duration": seconds},
        optional={
            "cwd": TEXTS,
            "queue": TEXTS,
            "bank": TEXTS,
            "project": TEXTS,
            "job": st.builds(lambda more, name: {**more, "name": name}, TREES, TEXTS),
            "environment": st.dictionaries(TEXTS, TEXTS | st.none()),
            "shell": st.builds(
                lambda more, options: {**more, "options": options}, TREES, options()
            ),
            "dependencies": st.lists(DEPENDENCIES, max_size=4),
            "constraints": CONSTRAINTS,
            "dw": DIRECTIVES,
            "dw_failure_tolerance": st.integers(0, 3),
        },
    )
    return st.builds(lambda more, known: {**more, **known}, TREES, known)


@given(sizes(), attributes(), st.none() | TREES)
def test_nothing_of_a_jobspec_gets_lost(jobspec: Json, system: Json, user: Any) -> None:
    system = {**system, "dependencies": distinct(system.get("dependencies", []))}
    jobspec["attributes"] = {"system": system}
    if user is not None:
        jobspec["attributes"]["user"] = user
    try:
        again = back(jobspec)
    except ObjectErrors as error:  # two hosts at once, as no job can have
        assume("which no node can be" not in str(error))
        raise
    expected, found = said(jobspec, nodes=True), said(again, nodes=True)
    # Where nothing is waited for, there may be a list of nothing, or none.
    for one in (expected, found):
        one["attributes"]["system"].setdefault("dependencies", [])
    assert found == expected


def distinct(dependencies: list[Json]) -> list[Json]:
    """The dependencies, those that mean the same once."""
    return list({meant(dependency): dependency for dependency in dependencies}.values())


# Several jobs


def record(number: int, parent: str = "", **system: Any) -> JobRecord:
    """What Flux has of a job that runs."""
    kvs = {"eventlog": eventlog("start"), "jobspec": json.dumps(spec(**system))}
    return JobRecord(FIRST + number, kvs, parent)


FIRST = 2**40
"""An ID that Flux may give."""


def id_of(number: int) -> str:
    return jobid.f58(FIRST + number)


def after(scheme: str, number: int) -> Json:
    return {"scheme": scheme, "value": id_of(number)}


def group_of(*records: JobRecord) -> Element:
    """Jobs as others read them."""
    return read(write(group_object("g", [job_object(one) for one in records])))


def test_jobs_of_a_group_wait_for_each_other_and_not_for_those_of_the_past() -> None:
    group = group_of(
        record(1, dependencies=[after("afterok", 2), after("afterany", 9)]),
        record(2, dependencies=[after("afterstart", 3)]),
        record(3),
    )
    found = to_jobspecs(group, lambda line: None)
    assert [(one.index, one.id) for one in found] == [
        (index, id_of(index + 1)) for index in (2, 1, 0)
    ]
    given = {id_of(3): "fD", id_of(2): "fC", id_of(1): "fB"}
    waits = [
        one.resolved(given)["attributes"]["system"].get("dependencies") for one in found
    ]
    assert waits == [
        None,
        [{"scheme": "afterstart", "value": "fD"}],
        [
            {"scheme": "afterok", "value": "fC"},
            {"scheme": "afterany", "value": id_of(9)},
        ],
    ]


def test_a_batch_job_runs_its_steps_itself() -> None:
    one = id_of(1)
    group = group_of(record(1), record(1, f"{one}/"), record(2, f"{one}/"))
    warnings: list[str] = []
    (batch,) = to_jobspecs(group, warnings.append)
    assert batch.id == one
    assert warnings == [
        f'line {line}: /JobGroup/Job[{number}]: "{one}/{step}" is a step of "{one}",'
        " which runs it itself: it is not submitted"
        for line, number, step in ((21, 2, one), (37, 3, id_of(2)))
    ]
