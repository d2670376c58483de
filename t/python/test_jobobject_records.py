# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Job objects of jobspecs: what is told how, and that nothing gets lost. What became
of a job is in test_jobobject_history."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest

from flux_k8s.ports import Json
from sssjob import write
from sssjob.to_jobspec.attributes import Submitter
from sssjob.to_jobspec.convert import to_jobspecs
from support.jobrecords import facts, job_of, spec
from support.tables import rows

# What is told of the options of flux submit, beside what is told of any job, and a
# warning.

TOLD = r"""
-n6 -c2 -g1
  -> Requested/Processors 12; Requested/Resource 6.0 name=GPU; TaskGroup/TaskCount 6
-N2 -n4 -c3 -> Requested/NodeCount 2; Requested/Processors 12; TaskGroup/TaskCount 4
-N2 -n3 -> Requested/NodeCount 2; Requested/Processors 4; TaskGroup/TaskCount 3
# Whole nodes: how many processors they have is not asked for.
-N3 -> Requested/NodeCount 3
-N2 -n2 -o per-resource='{"type": "node", "count": 3}' -> Requested/NodeCount 2;
  Requested/Processors 2; TaskGroup/TaskCount 6;
  TaskGroup/TaskDistribution 3 type=TasksPerNode
-o taskmap='{"scheme": "cyclic", "value": ""}'
  -> TaskGroup/TaskDistribution RoundRobin type=Rule
-o taskmap='{"scheme": "manual", "value": "[[0]]"}'
  -> attributes.system.shell: {"options": {"taskmap": {"scheme": "manual",
  "value": "[[0]]"}}}
-o taskmap='{"scheme": "cyclic", "value": "2"}'
  -> attributes.system.shell: {"options": {"taskmap": {"scheme": "cyclic",
  "value": "2"}}}
# A time limit is in seconds, rounded up.
-S duration=0.0 ->
-S duration=3600 -> Requested/Duration 3600
-S duration=3600.0 -> Requested/Duration 3600
-S duration=0.5 -> attributes.system.duration: 0.5; Requested/Duration 1
-S duration=59.999 -> attributes.system.duration: 59.999; Requested/Duration 60
-S duration=4294967296.0 -> attributes.system.duration: 4294967296.0
  -> attributes.system.duration is 4294967296 s, which is told as an Extension only:
  expected an integer of seconds, below 2^32
# Constraints are expressions, if one can say them.
-S constraints='{"or": [{"properties": ["a"]}, {"hostlist": ["h[1-2]"]}]}'
  -> Requested/Feature a group=1;
  Requested/Node h[1-2] aggregation=Range conj=Or group=-1
-S constraints='{"ranks": ["0"]}' -> attributes.system.constraints: {"ranks": ["0"]}
-S constraints='{"not": []}' -> attributes.system.constraints: {"not": []}
-S constraints='{"moon": ["full"]}'
  -> attributes.system.constraints: {"moon": ["full"]} -> "moon"
# Files, limits and the environment.
--output=out --error=err -o output.mode=append -o output.stderr.label=true
  -o input.stdin='{"type": "file", "path": "in"}'
  -> InputFile in; OutputFile out redirectList=Append;
  ErrorFile err redirectList=Append;
  attributes.system.shell.options.output.stderr.label: true
-o rlimit='{"core": 0, "cpu": -1, "nice": 3, "as": "much"}'
  -> ResourceLimit 0 name=CoreFileSize type=Soft;
  ResourceLimit unlimited name=CPUTime type=Soft;
  attributes.system.shell.options.rlimit.nice: 3;
  attributes.system.shell.options.rlimit.as: "much"
-S environment='{"PATH": "/bin", "B": "\u0001", "A.B": "1", "GONE": null, "E": ""}'
  -> attributes.system.environment.B: "\u0001";
  attributes.system.environment.GONE: null;
  Environment/Variable /bin name=PATH; Environment/Variable 1 name=A.B;
  Environment/Variable  name=E
  -> attributes.system.environment.B has characters that XML cannot hold: it is told as
  an Extension
-S environment='{"": "1", "B=C": "2", "A B": "3"}'
  -> attributes.system.environment."": "1"; attributes.system.environment.B=C: "2";
  Environment/Variable 3 name=A B
# An extension is for the topmost key without an element.
--job-name=n -S job.other=1 -o verbose=2 -o rlimit.core=0 -S files.f.data=x -S
  .user.a.b=1
  -> Name n; ResourceLimit 0 name=CoreFileSize type=Soft; attributes.system.job.other:
  1;
  attributes.system.shell.options.verbose: 2;
  attributes.system.files: {"f": {"data": "x"}}; attributes.user: {"a": {"b": 1}}
# Dependencies on IDs are elements, and so is one moment.
-S dependencies='[{"scheme": "afterok", "value": "ƒuZZybuNNy"},
  {"scheme": "afternotok", "value": "6731191091817518"},
  {"scheme": "singleton", "value": "x"}, {"scheme": "afterany", "value": "f1"},
  {"scheme": "afterany", "value": "no-job"},
  {"scheme": "begin-time", "value": "1700001000.0"},
  {"scheme": "begin-time", "value": "1700002000.5"},
  {"scheme": "afterok", "value": "f1", "more": 1},
  {"scheme": "begin-time", "value": "1700003000"}]'
  -> EligibleTime 1700001000; Dependency fuZZybuNNy condition=OnSuccess;
  Dependency fuZZybuNNy condition=OnFailure; Dependency f1 condition=OnExit;
  attributes.system.dependencies: [{"scheme": "singleton", "value": "x"},
  {"scheme": "afterany", "value": "no-job"},
  {"scheme": "begin-time", "value": "1700002000.5"},
  {"scheme": "afterok", "value": "f1", "more": 1},
  {"scheme": "begin-time", "value": "1700003000"}]
"""
ALWAYS = facts(job_of(spec()))


def told_beside(jobspec: Json, *events: Any, warnings: Any = None) -> list[str]:
    """The facts of a job beside those of any job."""
    return [
        fact
        for fact in facts(job_of(jobspec, *events, warnings=warnings))
        if fact not in ALWAYS
    ]


@pytest.mark.parametrize(("options", "told", "warning"), rows(TOLD, 3))
def test_a_jobspec_is_told_in_elements_and_the_rest_in_extensions(
    options: str, told: str, warning: str
) -> None:
    warnings: list[str] = []
    jobspec = spec(*shlex.split(options))
    if "per-resource" in options:
        jobspec["resources"][0].pop("exclusive", None)
    assert " ; ".join(told_beside(jobspec, warnings=warnings)) == told.replace(
        ";", " ;"
    )
    assert len(warnings) == bool(warning) and warning in "".join(warnings)


@pytest.mark.parametrize("path", ["~", "~/x", "", " "])
def test_a_path_that_would_be_another_in_a_job_object_is_an_extension(
    path: str,
) -> None:
    output = {"stdout": {"type": "file", "path": path}}
    jobspec = spec(cwd=path, shell={"options": {"output": output}})
    shell = json.dumps(jobspec["attributes"]["system"]["shell"])
    assert told_beside(jobspec) == [
        f"attributes.system.cwd: {json.dumps(path)}",
        f"attributes.system.shell: {shell}",
    ]
    here = Submitter(home="/home/me", cwd="/elsewhere")
    (found,) = to_jobspecs(job_of(jobspec), pytest.fail, here)
    assert found.jobspec == jobspec


def test_variables_that_seem_secret_are_never_written() -> None:
    secret = {
        "DW_WORKFLOW_TOKEN": "s3cr3t",
        "AWS_SECRET_ACCESS_KEY": "s3cr3t",
        "MY_PW": "s3cr3t",
        "github_pat": "s3cr3t",
        "PGPASSWORD": None,
        "PROXY": "http://amy:s3cr3t@proxy:8080/",
    }
    plain = {"PATH": "/bin", "MONKEY": "banana", "URL": "http://a@b:80/"}
    warnings: list[str] = []
    job = job_of(spec(environment={**secret, **plain}), warnings=warnings)
    text = write(job)
    assert "s3cr3t" not in text and not any(name in text for name in secret)
    assert all(name in text for name in plain)
    (line,) = warnings
    assert line.endswith(f"left out, as they may be secret: {', '.join(secret)}")


# Changes after submission: a user's count as requested, the module's do not.

HOLD = ("dependency-add", {"description": "dws-create"})
LET_GO = ("dependency-remove", {"description": "dws-create"})
RABBIT = {
    "type": "slot",
    "count": 2,
    "label": "rabbit",
    "with": [
        {"type": "node", "count": 1},
        {"type": "ssd", "count": 10, "exclusive": True},
    ],
}
DIRECTIVE = "#DW jobdw type=xfs capacity=10GiB name=a"
WITHOUT = {"properties": ["^badrabbit"]}
FAST = {"properties": ["fast"]}
DEBUG = {"properties": ["debug"]}
OF_DW = [
    f'attributes.system.dw: ["{DIRECTIVE}"]',
    "Requested/NodeCount 2",
    "Requested/Processors 2",
    "Requested/Resource 10.0 name=Storage type=xfs units=GB",
    "TaskGroup/TaskCount 2",
]


def update(**changes: Any) -> tuple[str, Json]:
    """A jobspec-update of attributes, or of resources."""
    paths = {
        key if key == "resources" else f"attributes.system.{key}": value
        for key, value in changes.items()
    }
    return "jobspec-update", paths


@pytest.mark.parametrize(
    ("jobspec", "events", "told"),
    [
        (
            spec("-t", "1h", "-q", "batch", job={"name": "old"}),
            [
                update(duration=60.0, queue="debug"),
                ("jobspec-update", {"attributes.system.job.name": "new"}),
            ],
            ["Name new", "Requested/Queue debug", "Requested/Duration 60"],
        ),
        (
            spec("-N2", "-n2", dw=DIRECTIVE),
            [HOLD, update(constraints=WITHOUT), LET_GO, "depend"],
            OF_DW,
        ),
        (
            spec("-N2", "-n2", dw=DIRECTIVE),
            [HOLD, update(constraints=WITHOUT, resources=[RABBIT]), LET_GO, "depend"],
            OF_DW,
        ),
        (spec(), [update(constraints=FAST)], ["Requested/Feature fast"]),
        (spec(), [HOLD, LET_GO, update(constraints=FAST)], ["Requested/Feature fast"]),
        # Those that come with another queue are those of the queue.
        (spec(), [update(queue="debug", constraints=DEBUG)], ["Requested/Queue debug"]),
        # The instance had added those of the first queue: they are replaced.
        (
            spec("-q", "batch", constraints={"properties": ["batch"]}),
            [update(queue="debug", constraints=DEBUG)],
            ["Requested/Queue debug", "Requested/Feature debug"],
        ),
    ],
)
def test_updates_of_a_user_count_as_requested(
    jobspec: Json, events: list[Any], told: list[str]
) -> None:
    assert told_beside(jobspec, "validate", *events) == told
