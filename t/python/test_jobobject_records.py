# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Job objects of jobspecs: what is told how, and that nothing gets lost. What became
of a job is in test_jobobject_history."""

from __future__ import annotations

import json
from typing import Any, Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_k8s.dws.directivebreakdown import apply_breakdowns
from flux_k8s.ports import Json
from sssjob import Element, write
from sssjob.from_flux.convert import ExportOptions, JobRecord, job_object
from sssjob.from_flux.remainder import Remainder
from sssjob.terms import path_keys
from sssjob.to_jobspec.attributes import Submitter
from sssjob.to_jobspec.convert import to_jobspecs
from support.jobrecords import (
    JOBID,
    eventlog,
    extensions,
    job_of,
    says,
    shown,
    spec,
)

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


def shell(**options: Any) -> Json:
    return spec(shell={"options": options})


def update(**changes: Any) -> tuple[str, Json]:
    """A jobspec-update of attributes, or of resources."""
    paths = {
        key if key == "resources" else f"attributes.system.{key}": value
        for key, value in changes.items()
    }
    return "jobspec-update", paths


def requested(*args: Any, **kvs: Any) -> Element:
    found = job_of(*args, **kvs).find("Requested")
    assert found is not None
    return found


# Nothing gets lost

KEYS = st.text(alphabet=st.sampled_from('ab."é\x01'), min_size=0, max_size=3)
LEAVES = st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=3))
TREES = st.dictionaries(
    KEYS,
    st.recursive(
        st.one_of(LEAVES, st.lists(LEAVES, max_size=2)),
        lambda inner: st.dictionaries(KEYS, inner, max_size=3),
        max_leaves=8,
    ),
    max_size=4,
)


Path = tuple[str, ...]


def places(tree: Any, path: Path = ()) -> list[Path]:
    """All places in a tree, but its root."""
    inner = tree.items() if isinstance(tree, dict) else ()
    below = [place for key, value in inner for place in places(value, (*path, key))]
    return [path, *below] if path else below


def leaves(tree: Any, path: Path = ()) -> list[tuple[Path, str]]:
    """Where what stands that has nothing in it."""
    if isinstance(tree, dict) and tree:
        return [leaf for key in tree for leaf in leaves(tree[key], (*path, key))]
    return [(path, json.dumps(tree))]


@given(TREES, st.data())
def test_the_rest_of_a_jobspec_is_written_in_extensions(
    tree: Json, data: st.DataObject
) -> None:
    remainder = Remainder(tree, "f1", lambda message: None)
    found: list[tuple[Path, str]] = []
    for path in data.draw(st.lists(st.sampled_from(places(tree) or [("x",)]))):
        value = remainder.take(*path)
        if value is not None:
            found += leaves(value, path)
    for inner in remainder.extensions():
        value = json.loads(str(inner.value))
        found += leaves(value, path_keys(str(inner.attribute("name"))))
    assert sorted(found) == sorted(leaves(tree) if tree else [])


def test_an_extension_is_for_the_topmost_key_without_an_element() -> None:
    jobspec = spec(
        job={"name": "n", "other": 1},
        shell={"options": {"verbose": 2, "rlimit": {"core": 0, "nice": 1}}},
        files={"f": {"data": "x"}},
    )
    jobspec["attributes"]["user"] = {"a": {"b": 1}}
    assert extensions(job_of(jobspec)) == {
        "attributes.system.job.other": 1,
        "attributes.system.shell.options.verbose": 2,
        "attributes.system.shell.options.rlimit.nice": 1,
        "attributes.system.files": {"f": {"data": "x"}},
        "attributes.user": {"a": {"b": 1}},
    }


# The size of a job


@pytest.mark.parametrize(
    ("options", "nodes", "processors", "gpus", "tasks"),
    [
        ([], [], [1], [], [1]),
        (["-n6", "-c2", "-g1"], [], [12], [6.0], [6]),
        (["-N2", "-n4", "-c3"], [2], [12], [], [4]),
        (["-N2", "-n3"], [2], [4], [], [3]),
        # Whole nodes: how many processors they have is not asked for.
        (["-N3"], [3], [], [], []),
    ],
)
def test_the_size_of_a_job_of_flux_submit_is_written_in_elements(
    options: list[str], nodes: Any, processors: Any, gpus: Any, tasks: Any
) -> None:
    job = job_of(spec(*options))
    asked = job.find("Requested")
    assert says(asked, "NodeCount") == nodes
    assert says(asked, "Processors") == processors
    assert says(asked, "Resource", name="GPU") == gpus
    if tasks:
        assert says(job.find("TaskGroup"), "TaskCount") == tasks
    assert not extensions(job)


def test_resources_that_elements_do_not_express_fully_are_an_extension_too() -> None:
    jobspec = spec("-N2", "-n4")
    jobspec["resources"][0]["exclusive"] = True
    job = job_of(jobspec)
    assert says(job.find("Requested"), "NodeCount") == [2]
    assert says(job.find("Requested"), "Processors") == [4]
    assert extensions(job) == {
        "resources": jobspec["resources"],
        "tasks": jobspec["tasks"],
    }


def test_ranges_are_two_conditions() -> None:
    jobspec = spec()
    jobspec["resources"] = [
        {
            "type": "node",
            "count": {"min": 2, "max": 4},
            "with": [
                {
                    "type": "slot",
                    "count": 1,
                    "label": "task",
                    "with": [{"type": "core", "count": "8+"}],
                }
            ],
        }
    ]
    asked = requested(jobspec)
    assert shown(asked, "NodeCount") == ["2 op=GE", "4 op=LE"]
    assert shown(asked, "Processors") == ["16 op=GE"]


def test_tasks_per_node_and_rules_are_distributions() -> None:
    job = job_of(shell(taskmap={"scheme": "cyclic", "value": ""}))
    assert shown(job.find("TaskGroup"), "TaskDistribution") == ["RoundRobin type=Rule"]
    assert not extensions(job)
    jobspec = spec(
        "-N2", shell={"options": {"per-resource": {"type": "node", "count": 3}}}
    )
    del jobspec["resources"][0]["exclusive"]
    job = job_of(jobspec)
    group = job.find("TaskGroup")
    assert says(group, "TaskCount") == [6]
    assert shown(group, "TaskDistribution") == ["3 type=TasksPerNode"]
    assert not extensions(job)


@pytest.mark.parametrize(
    ("system", "warning"),
    [
        (
            {"shell": {"options": {"taskmap": {"scheme": "manual", "value": "[[0]]"}}}},
            "",
        ),
        (
            {"shell": {"options": {"taskmap": {"scheme": "cyclic", "value": "2"}}}},
            "",
        ),
        (
            {"duration": 2.0**32},
            "attributes.system.duration is 4294967296 s, which is told as an Extension"
            " only: expected an integer of seconds, below 2^32",
        ),
        ({"constraints": {"ranks": ["0"]}}, ""),
        ({"constraints": {"not": []}}, ""),
        ({"constraints": {"moon": ["full"]}}, '"moon"'),
    ],
)
def test_what_no_element_says_is_an_extension(system: Json, warning: str) -> None:
    warnings: list[str] = []
    job = job_of(spec(**system), warnings=warnings)
    ((key, value),) = system.items()
    assert extensions(job) == {f"attributes.system.{key}": value}
    assert not says(job.find("Requested"), "Duration")
    assert not says(job.find("Requested"), "Feature")
    assert len(warnings) == bool(warning) and warning in "".join(warnings)


# Time, place, dependencies, files


@pytest.mark.parametrize(
    ("duration", "told", "exact"),
    [
        (0, [], None),
        (0.0, [], None),
        (3600, [3600], None),
        (3600.0, [3600], None),
        (0.5, [1], 0.5),
        (59.999, [60], 59.999),
    ],
)
def test_a_time_limit_is_in_seconds_rounded_up(
    duration: float, told: list[int], exact: Optional[float]
) -> None:
    job = job_of(spec(duration=duration))
    assert says(job.find("Requested"), "Duration") == told
    assert extensions(job).get("attributes.system.duration") == exact


def test_constraints_are_expressions() -> None:
    constraint = {"or": [{"properties": ["a"]}, {"hostlist": ["h[1-2]"]}]}
    asked = requested(spec(constraints=constraint))
    assert shown(asked, "Feature") == ["a group=1"]
    assert shown(asked, "Node") == ["h[1-2] aggregation=Range conj=Or group=-1"]


def test_dependencies_on_ids_are_elements_and_others_are_an_extension() -> None:
    other = {"scheme": "singleton", "value": "x"}
    dependencies = [
        {"scheme": "afterok", "value": "ƒuZZybuNNy"},
        {"scheme": "afternotok", "value": str(JOBID)},
        other,
        {"scheme": "afterany", "value": "f1"},
        {"scheme": "afterany", "value": "no-job"},
        {"scheme": "begin-time", "value": "1700001000.0"},
        {"scheme": "begin-time", "value": "1700002000.5"},
        {"scheme": "afterok", "value": "f1", "more": 1},
        {"scheme": "begin-time", "value": "1700003000"},
    ]
    job = job_of(spec(dependencies=dependencies))
    assert shown(job, "Dependency") == [
        "fuZZybuNNy condition=OnSuccess",
        "fuZZybuNNy condition=OnFailure",
        "f1 condition=OnExit",
    ]
    assert says(job, "EligibleTime") == [1700001000]
    rest = [dependencies[index] for index in (2, 4, 6, 7, 8)]
    assert extensions(job) == {"attributes.system.dependencies": rest}


def test_files_of_the_standard_streams_are_elements() -> None:
    job = job_of(
        shell(
            input={"stdin": {"type": "file", "path": "in"}},
            output={
                "mode": "append",
                "stdout": {"type": "file", "path": "out"},
                "stderr": {"type": "file", "path": "err", "label": True},
            },
        )
    )
    assert shown(job, "InputFile") == ["in"]
    assert shown(job, "OutputFile") == ["out redirectList=Append"]
    assert shown(job, "ErrorFile") == ["err redirectList=Append"]
    assert extensions(job) == {
        "attributes.system.shell.options.output.stderr.label": True
    }


@pytest.mark.parametrize("path", ["~", "~/x", "", " "])
def test_a_path_that_would_be_another_in_a_job_object_is_an_extension(
    path: str,
) -> None:
    output = {"stdout": {"type": "file", "path": path}}
    system = {"cwd": path, "shell": {"options": {"output": output}}}
    jobspec = spec(**system)
    job = job_of(jobspec)
    assert extensions(job) == {
        f"attributes.system.{key}": value for key, value in system.items()
    }
    here = Submitter(home="/home/me", cwd="/elsewhere")
    (found,) = to_jobspecs(job, pytest.fail, here)
    assert found.jobspec == jobspec


def test_resource_limits_have_the_names_of_the_job_object() -> None:
    job = job_of(shell(rlimit={"core": 0, "cpu": -1, "nice": 3, "as": "much"}))
    assert shown(job, "ResourceLimit") == [
        "0 name=CoreFileSize type=Soft",
        "unlimited name=CPUTime type=Soft",
    ]
    assert extensions(job) == {
        "attributes.system.shell.options.rlimit.nice": 3,
        "attributes.system.shell.options.rlimit.as": "much",
    }


def test_the_environment_is_an_element() -> None:
    warnings: list[str] = []
    environment = {"PATH": "/bin", "B": "\x01", "A.B": "1", "GONE": None, "E": ""}
    job = job_of(spec(environment=environment), warnings=warnings)
    variables = job.find("Environment")
    assert shown(variables, "Variable") == ["/bin name=PATH", "1 name=A.B", " name=E"]
    assert extensions(job) == {
        "attributes.system.environment.B": "\x01",
        "attributes.system.environment.GONE": None,
    }
    assert warnings == [
        "job fuZZybuNNy: attributes.system.environment.B has characters that XML"
        " cannot hold: it is told as an Extension"
    ]


def test_a_variable_that_no_element_can_name_is_an_extension() -> None:
    job = job_of(spec(environment={"": "1", "B=C": "2", "A B": "3"}))
    assert shown(job.find("Environment"), "Variable") == ["3 name=A B"]
    assert extensions(job) == {
        'attributes.system.environment.""': "1",
        "attributes.system.environment.B=C": "2",
    }


def test_text_that_xml_cannot_hold_is_an_extension_and_a_warning() -> None:
    warnings: list[str] = []
    jobspec = spec(job={"name": "bell \x07"}, cwd="/\ud800")
    jobspec["tasks"][0]["command"] = ["echo", "\x1b"]
    job = job_of(jobspec, warnings=warnings)
    assert job.find("Name") is None and job.find("Executable") is None
    assert extensions(job) == {
        "attributes.system.job": {"name": "bell \x07"},
        "attributes.system.cwd": "/\ud800",
        "tasks": jobspec["tasks"],
    }
    assert len(warnings) == 3


def test_an_unknown_user_is_written_as_a_number() -> None:
    assert job_of(spec()).text("User") == "5588"
    record = JobRecord(JOBID, {"eventlog": eventlog(), "jobspec": json.dumps(spec())})
    job = job_object(
        record, ExportOptions(user_name={5588: "amy"}.get, machine="tioga")
    )
    assert (job.text("User"), job.text("Machine")) == ("amy", "tioga")


def test_the_environment_is_left_out_unless_it_is_asked_for() -> None:
    jobspec = json.dumps(spec(environment={"SHELL": "\x01"}))
    record = JobRecord(JOBID, {"eventlog": eventlog(), "jobspec": jobspec})
    assert "SHELL" not in write(job_object(record))


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


# Changes after submission


def test_updates_of_a_user_count_as_requested() -> None:
    job = job_of(
        spec("-t", "1h", "-q", "batch", job={"name": "old"}),
        "validate",
        update(duration=60.0, queue="debug"),
        ("jobspec-update", {"attributes.system.job.name": "new"}),
    )
    assert says(job.find("Requested"), "Duration") == [60]
    assert says(job.find("Requested"), "Queue") == ["debug"]
    assert job.text("Name") == "new"


@pytest.mark.parametrize("alone", [True, False])
def test_updates_of_the_module_for_storage_do_not_count_as_requested(
    alone: bool,
) -> None:
    exclude = {"properties": ["^badrabbit"]}
    changed = {"constraints": exclude}
    resources = {} if alone else {"resources": [RABBIT]}
    jobspec = spec("-N2", "-n2", dw="#DW jobdw type=xfs capacity=10GiB name=a")
    job = job_of(jobspec, HOLD, update(**changed, **resources), LET_GO, "depend")
    asked = job.find("Requested")
    assert says(asked, "NodeCount") == [2] and not says(asked, "Feature")
    assert set(extensions(job)) == {"attributes.system.dw"}


def test_updated_constraints_count_as_requested() -> None:
    changed = {"properties": ["fast"]}
    for events in (
        [update(constraints=changed)],
        [HOLD, LET_GO, update(constraints=changed)],
    ):
        assert says(requested(spec(), *events), "Feature") == ["fast"]


def test_storage_is_removed_from_updated_resources() -> None:
    node = {**spec("-N4", "-n4")["resources"][0]}
    slot = {**RABBIT, "count": 4, "with": [{**node, "count": 1}, RABBIT["with"][1]]}
    assert apply_breakdowns((), [slot]) == [node]
    job = job_of(spec("-N2", "-n2"), update(resources=[slot]))
    assert says(job.find("Requested"), "NodeCount") == [4]
    assert says(job.find("Requested"), "Resource") == []
    assert "resources" not in extensions(job)


def test_constraints_that_come_with_another_queue_are_those_of_the_queue() -> None:
    moved = update(queue="debug", constraints={"properties": ["debug"]})
    assert not says(requested(spec(), moved), "Feature")
    # The instance had added those of the first queue: they are replaced.
    own = spec("-q", "batch", constraints={"properties": ["batch"]})
    assert says(requested(own, moved), "Feature") == ["debug"]
