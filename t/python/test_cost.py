# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Whatever guests and the cluster write, reading it ends in a value or an error for
people, and soon: a reader whose time is quadratic would take hours for these texts."""

from __future__ import annotations

import json
from typing import Any, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_k8s.config.arguments import Arguments, queue_properties
from flux_k8s.config.submission import Site, check_submission
from flux_k8s.config.table import Config
from flux_k8s.config.values import parse_fsd
from flux_k8s.control.kubecalls import refusal
from flux_k8s.errors import DWSError, show
from flux_k8s.formats import constraints, directives, hostlist, idset, jgf, jobid, rset
from flux_k8s.formats.timestamps import parse_go_duration, parse_timestamp
from flux_k8s.jobs.datarecords import join_logs
from flux_k8s.jobs.hello import held_job
from flux_k8s.jobs.plugin import read_create
from flux_k8s.jobs.workflowrequests import read_token
from flux_k8s.kube.cache import Cache
from flux_k8s.kube.status import response_error, status_error
from flux_k8s.objects import mapping
from flux_k8s.objects.workflowview import WorkflowView
from flux_k8s.ports import Json, KubeError
from flux_k8s.rules import getrabbit
from flux_k8s.rules.directivebreakdown.breakdown import parse as parse_breakdown
from flux_k8s.rules.directivebreakdown.resources import requested_nodes
from flux_k8s.text import printable
from support.breakdowns import colocated
from support.effort import examples

MEGABYTE = 2**20
LONGEST_MESSAGE = 10_000

FRAGMENTS = (
    *"09aZ_-+.,:;=[](){}#\"'\\/ \t\n\x0b\x1c\x00\x1b\u00a0\u2028é٣²😀\ud800",
    "#DW",
    " #DW",
    "#DW ",
    "#DW jobdw ",
    "name=a ",
    "capacity=",
    "1GiB",
    "00",
    "1-",
    "0-1",
    "2,",
    "0-131071,",
    "h[0-9],",
    "h[0-131071]",
    "[1",
    "1]",
    "1m",
    "1.",
    "µs",
    "-05:00",
    "2026-11-21T02:30:40Z",
    "0x",
    "1e9",
    "true",
    '{"a":',
    "rabbits",
)
TEXTS = st.tuples(
    st.lists(st.sampled_from(FRAGMENTS), max_size=3).map("".join),
    st.lists(st.sampled_from(FRAGMENTS), min_size=1, max_size=3).map("".join),
    st.lists(st.sampled_from(FRAGMENTS), max_size=3).map("".join),
)
"""A beginning, what is repeated, an end."""


def long_text(parts: tuple[str, str, str], size: int) -> str:
    first, middle, last = parts
    return first + middle * (size // len(middle)) + last


def workflow(**parts: Any) -> Json:
    return {
        "metadata": {"name": "fluxjob-1", "uid": "1", "resourceVersion": "1"},
        "spec": {"wlmID": "flux", "desiredState": "Setup", "dwDirectives": []},
        **parts,
    }


def view(text: str) -> None:
    spec = {"jobID": text, "wlmID": text, "desiredState": "Setup"}
    status = {"status": text, "message": text, "elapsedTimeLastState": text}
    status["desiredStateChange"] = text
    WorkflowView.parse(workflow(spec={**spec, "dwDirectives": [text]}, status=status))
    WorkflowView.parse(workflow(status={"drivers": [{"watchState": text}] * 9}))
    WorkflowView.parse(workflow(status={"env": {text: text}, text: text}))
    WorkflowView.parse(workflow(spec=text, status=text))


def event(text: str) -> None:
    for type in ("ADDED", "DELETED", text):
        known = Cache()
        for version in ("1", text, "2"):
            metadata = {"name": "a", "resourceVersion": version}
            known.add_event(type, {"metadata": metadata})


def resources(text: str) -> None:
    requested_nodes([{"type": "node", "count": text}])
    requested_nodes([{"type": text, "count": 1, "with": []}])
    requested_nodes([{"type": "node", "count": {"min": 1, "operator": text}}])


def R(text: str) -> None:
    lite = [{"rank": text, "children": {"core": text}}]
    rset.parse({"version": 1, "execution": {"R_lite": lite, "nodelist": [text]}})


def graph(text: str) -> None:
    ssd = {"type": "ssd", "name": "a", "paths": {"containment": text}}
    jgf.parse({"graph": {"nodes": [{"metadata": ssd}]}})


def breakdown(text: str) -> None:
    access = {"type": text, "priority": text}
    location = {"reference": {"fieldPath": text, "name": text}, "access": [access]}
    entry = {"label": text, "constraints": {"labels": [text]}}
    parse_breakdown(
        {
            "metadata": {"name": text, "namespace": text},
            "spec": {"directive": text},
            "status": {
                "ready": True,
                "compute": {"constraints": {"location": [location]}},
                "storage": {"lifetime": "job", "allocationSets": [entry]},
            },
        }
    )


def eventlog(text: str) -> None:
    memo = {"name": "memo", "context": {"rabbits": text}}
    getrabbit.rabbits_of_job("f1", json.dumps(memo), None)


def mapped(text: str) -> None:
    rabbit = {"capacity": 1, "hostlist": text}
    mapping.parse({"computes": {text: "r"}, "rabbits": {"r": rabbit}})


def occupied(text: str) -> None:
    key = "flux-framework.readthedocs.io/colocation"
    colocated({"metadata": {"name": text, "annotations": {key: text}}})


def configured(text: str) -> None:
    for table in (
        {text: 1},
        {"presets": {text: text}},
        {"daemons": {text: {text: text}}},
        {"policy": {"maximums": {text: 1}}},
    ):
        try:
            Config.parse(table)
        except DWSError as error:
            assert str(error).isprintable()


def created(text: str) -> None:
    read_create(
        {
            "jobid": 1,
            "userid": 1,
            "dw_directives": [text, text],
            "resources": [text],
            "failure_tolerance": 0,
        },
        Config(),
    )


def token(text: str) -> None:
    read_token({"data": {"token": text}})
    message = f'admission webhook "a" denied the request: {text}'
    refusal(KubeError(403, "Forbidden", message))
    status_error({"reason": text, "details": {"retryAfterSeconds": text}}, 429)
    head = [b"HTTP/1.1 429 " + text.encode(), b"Retry-After: " + text.encode()]
    response_error(429, head, b"", "https://k")


READERS: dict[str, Callable[[str], Any]] = {
    "directive": directives.parse,
    "attribute": lambda text: directives.parse_attribute([text, text]),
    "capacity": lambda text: directives.parse_capacity("#DW", text + "GiB"),
    "submission": lambda text: check_submission(
        {"dw": text}, [], Site({"presets": {"a": "#DW"}})
    ),
    "hostlist": hostlist.decode,
    "hostlists": lambda text: hostlist.decode_all(text.split("\n")),
    "hosts": lambda text: hostlist.encode([text, text]),
    "natural order": hostlist.natural_key,
    "idset": idset.decode,
    "spans": idset.spans,
    "job ID": jobid.decode,
    "Workflow's name": lambda text: jobid.jobid_of_workflow("fluxjob-" + text),
    "R": R,
    "graph": graph,
    "constraint": lambda text: constraints.parse({"hostlist": [text]}),
    "property": lambda text: constraints.parse({"properties": [text]}),
    "operator": lambda text: constraints.parse({text: [text]}),
    "ranks": lambda text: constraints.normalise({"ranks": [text]}),
    "breakdown": breakdown,
    "Workflow": view,
    "event": event,
    "resources": resources,
    "time stamp": parse_timestamp,
    "Go duration": parse_go_duration,
    "duration": lambda text: parse_fsd("key", text),
    "config": configured,
    "arguments": lambda text: Arguments.parse([text]),
    "queues": lambda text: queue_properties({text: {"requires": [text]}}, [text]),
    "mapping": mapped,
    "eventlog": eventlog,
    "occupied": occupied,
    "hello": lambda text: held_job({"id": 1, "phase": text}),
    "dws.create": created,
    "token": token,
    "logs": lambda text: join_logs([("a", text), ("b", text)], 50_000),
    "printable": printable,
    "show": lambda text: show([text, {text: text}]),
}
NAMES = st.sampled_from(sorted(READERS))


def harmless(name: str, text: str) -> None:
    """Read, and let nothing but errors for people escape."""
    try:
        READERS[name](text)
    except (DWSError, KubeError, ValueError) as error:
        # A ValueError is a decoder's: its caller makes an error for people of it.
        message = str(error)
        printable, length = message.isprintable(), len(message)
        assert printable and length < LONGEST_MESSAGE, f"{name}: {message[:100]!r}"


HARD = [
    ("#DW jobdw", " ", "x"),
    ("", "#DW ", ""),
    ("", "1", ""),
    ("", "1", "x"),
    ("h", "1", "x"),
    ("", "1x", ""),
    ("", "0", "-131071"),
    ("a[", "0-131071,", "]"),
    ("[0-131071]", "a", ""),
    ("", "a/", ""),
    ("", "[", ""),
    ("", "\x1b", ""),
    ("", "\ud800", ""),
]


@pytest.mark.parametrize("name", sorted(READERS))
def test_known_hard_texts_are_read_or_refused(name: str) -> None:
    for parts in HARD:
        harmless(name, long_text(parts, MEGABYTE // 4))


@examples(10)
@given(name=NAMES, parts=TEXTS)
def test_a_megabyte_is_read_or_refused(name: str, parts: tuple[str, str, str]) -> None:
    harmless(name, long_text(parts, MEGABYTE))


# Short texts that stand for much


@pytest.mark.parametrize(
    "text",
    [
        "h[0-999999999]",
        "h[0-131071,0-131071]",
        ",".join(["h[0-131071]"] * 2),
        "h[" + "0" * 4000 + "-131071]",
        "a" * 300 + "[0-131071]",
    ],
)
def test_a_short_hostlist_does_not_stand_for_too_many_hosts(text: str) -> None:
    with pytest.raises(ValueError):
        hostlist.decode(text)
    with pytest.raises(ValueError, match="more than"):
        hostlist.decode_all(["h[0-100000]"] * 2)


def test_a_short_idset_does_not_stand_for_too_many_ids() -> None:
    with pytest.raises(ValueError, match="more than 1048576 ids"):
        idset.decode("0-4294967293")
    assert idset.spans("0-4294967293") == ((0, 4294967293),)
    many: list[Any] = [{"type": "node", "count": "1-1000000"}] * 20_000
    assert requested_nodes(many) == 20_000


def test_a_short_constraint_does_not_name_too_many_hosts() -> None:
    with pytest.raises(DWSError, match="at most 1048576"):
        constraints.parse({"or": [{"hostlist": ["h[0-100000]"]}] * 20})


@pytest.mark.parametrize("value", ["1e999", "9" * 400, "9" * 400 + "d"])
def test_a_duration_that_is_not_finite_is_refused(value: str) -> None:
    with pytest.raises(DWSError):
        parse_fsd("key", value)
    assert parse_go_duration(value + "h") is None


@pytest.mark.parametrize("number", [10**400, float("inf"), float("nan")])
def test_a_number_of_the_configuration_is_finite(number: Any) -> None:
    with pytest.raises(DWSError, match="rabbit.tc_timeout: is "):
        Config.parse({"tc_timeout": number})


# Nesting


def nested(levels: int, make: Callable[[Any], Any]) -> Any:
    value: Any = []
    for _ in range(levels):
        value = make(value)
    return value


MAKERS: list[Callable[[Any], Any]] = [
    lambda value: [value],
    lambda value: {"a": value},
    lambda value: {"and": [value]},
    lambda value: {"type": "rack", "count": 1, "with": [value]},
]


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("levels", [200, 900, 10_000])
def test_deep_nesting_is_refused(make: Callable[[Any], Any], levels: int) -> None:
    value = nested(levels, make)
    calls: list[Callable[[], Any]] = [
        lambda: constraints.parse(value),
        lambda: requested_nodes([value]),
        lambda: directives.parse_attribute(value),
        lambda: rset.parse({"version": 1, "execution": value}),
        lambda: Config.parse({"presets": value}),
        lambda: parse_breakdown({"metadata": value}),
    ]
    for call in calls:
        with pytest.raises(DWSError):
            call()
    assert WorkflowView.parse(workflow(metadata=value)).damage
    assert WorkflowView.parse(workflow(spec={"jobID": value})).damage
    assert show(value)
