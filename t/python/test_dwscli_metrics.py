# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""flux dws metrics, and the examples of alerts and of a dashboard for it."""

from __future__ import annotations

import errno
import json
import re
import shutil
import stat
import subprocess
from pathlib import Path
from typing import Any, Iterable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dwscli.metrics import (
    COUNTER,
    GAUGE,
    HISTOGRAM,
    metric_lines,
)
from flux_k8s.ports import Json
from support.dwscli import (
    FRESH,
    NOT_LOADED,
    NOW,
    OLD,
    FixedInstance,
    dws,
    is_golden,
    rabbit,
    refused,
)
from support.queries import query
from support.service import jobspec, running, settle, started
from support.tree import TOP

EXAMPLES = TOP / "etc/examples"
ALERTS = EXAMPLES / "prometheus-alerts.yaml"
GIB = 2**30

ANSWER = {
    **FRESH,
    "version": "1.2.3",
    "plugin_version": "1.2.2",
    "protocol": 1,
    "started": NOW - 86400.5,
    "jobs": 3,
    "states": {"PreRun": 2, "none": 1},
    "ended": 40,
    "failed": 2,
    "ready": 1,
    "busy": 0,
    "retrying": 0,
    "oldest": 12.5,
    "seconds": {
        "Setup": {"bounds": [0.1, 1.0, 10.0], "counts": [1, 0, 3, 2], "sum": 120.25},
    },
    "requests": {"patch": {"ok": 120, "409": 3}, "list": {"no answer": 1}},
    "requests_in_flight": 4,
    "watches_lost": {"workflows": 2},
    "events": 7,
    "queries": {"held": 1, "in_work": 0},
}
RABBITS = [
    rabbit(broken="tuo[1003-1004]", njobs=2),
    rabbit(
        "tuo202",
        **{"reason": "Disabled", "free": 200 * GIB, "withheld": 10 * GIB},
        disabled={"by": "root", "at": NOW, "reason": "slow ssd"},
    ),
]


def instance(answer: Any = None, rabbits: Any = None) -> FixedInstance:
    return FixedInstance(
        {
            "dws.metrics": answer or ANSWER,
            "dws.rabbit-list": {**FRESH, "rabbits": rabbits or RABBITS},
        }
    )


# The text format, as its documentation has it

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\[\\"n])*"'
SAMPLE = re.compile(rf"({NAME})(?:\{{({LABEL}(?:,{LABEL})*)\}})? (\S+)")
HEAD = re.compile(rf"# (HELP|TYPE) ({NAME}) ((?:[^\\\n]|\\[\\n])*)")
TYPES = (COUNTER, GAUGE, HISTOGRAM)

Sample = tuple[str, dict[str, str], float]


def read(text: str) -> tuple[dict[str, str], list[Sample]]:
    """The types of all metrics, and their samples. Each metric has its HELP, its TYPE
    and its samples, in this order."""
    assert text.endswith("\n")
    types: dict[str, str] = {}
    samples: list[Sample] = []
    helped = ""
    for line in text[:-1].split("\n"):
        head = HEAD.fullmatch(line)
        if head is not None and head[1] == "HELP":
            helped = head[2]
            assert helped not in types
        elif head is not None:
            assert head[2] == helped and head[3] in TYPES
            types[helped] = head[3]
        else:
            sample = SAMPLE.fullmatch(line)
            assert sample is not None, line
            assert family(sample[1], types) == helped
            samples.append((sample[1], labels_of(sample[2]), float(sample[3])))
    keys = [(name, tuple(labels.items())) for name, labels, _ in samples]
    assert len(set(keys)) == len(keys)
    return types, samples


def document(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def family(name: str, types: dict[str, str]) -> str:
    """The metric that a sample belongs to."""
    base = re.sub("_(bucket|sum|count)$", "", name)
    return base if types.get(base) == HISTOGRAM else name


def labels_of(text: str | None) -> dict[str, str]:
    found = {}
    for label in re.findall(LABEL, text or ""):
        name, _, value = label.partition("=")
        value = re.sub(r"\\(.)", lambda m: {"n": "\n"}.get(m[1], m[1]), value[1:-1])
        found[name] = value
    return found


def value_of(samples: list[Sample], name: str, **labels: str) -> float:
    (found,) = [s[2] for s in samples if s[0] == name and s[1] == labels]
    return found


def test_the_metrics_are_in_the_text_format() -> None:
    done = dws(instance(), "metrics")
    assert (done.status, done.err) == (0, "")
    assert is_golden("metrics.txt", done.out)
    types, _ = read(done.out)
    for metric, type in types.items():
        assert metric.endswith("_total") == (type == COUNTER)


# Changes of the answer and of the first Rabbit, and the metrics that follow, without
# "flux_dws_".

MISSING = {"kubernetes": "dws-jobtap.so is not loaded", "incomplete": True}
WRONG = {"disagreement": "graph.json lacks it"}
UNKNOWN = {"state": "unknown", "reason": "unknown"}


@pytest.mark.parametrize(
    ("answer", "changes", "found"),
    [
        (OLD, {}, [("kubernetes_up", {}, 0), ("kubernetes_age_seconds", {}, 210)]),
        # A plugin that is missing is no outage of Kubernetes.
        (
            MISSING,
            {},
            [
                *(("kubernetes_up", {}, 1), ("jobs_known", {}, 0)),
                ("kubernetes_age_seconds", {}, 0),
            ],
        ),
        # One that is not known is neither up nor down.
        ({}, UNKNOWN, [("rabbit_up", {"rabbit": "tuo201"}, None)]),
        ({}, WRONG, [("rabbit_disagreement", {"rabbit": "tuo201"}, 1)]),
    ],
)
def test_metrics_say_what_the_module_answers(
    answer: Any, changes: Any, found: list[Any]
) -> None:
    rabbits = [{**RABBITS[0], **changes}, RABBITS[1]]
    _, samples = read(dws(instance({**ANSWER, **answer}, rabbits), "metrics").out)
    values = {(name, *sorted(labels.items())): v for name, labels, v in samples}
    for name, labels, value in found:
        assert values.get((f"flux_dws_{name}", *sorted(labels.items()))) == value


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(
    st.dictionaries(st.sampled_from(sorted(ANSWER)), json_values),
    st.lists(
        st.dictionaries(st.sampled_from(sorted(RABBITS[0])), json_values), max_size=1
    ),
)
def test_any_answer_gives_what_prometheus_reads(answer: Json, rabbits: Any) -> None:
    read(document(metric_lines(answer, rabbits)))


# When the module does not answer


def test_without_the_module_there_is_one_metric() -> None:
    done = dws(FixedInstance(), "metrics")
    assert (done.status, done.err) == (1, NOT_LOADED)
    assert read(done.out)[1] == [("flux_dws_up", {}, 0.0)]


def test_a_guest_gets_no_metrics() -> None:
    found = FixedInstance({"dws.metrics": refused(errno.EPERM)})
    error = "flux-dws: ERROR: only the instance owner may see metrics\n"
    assert dws(found, "metrics") == (1, "", error)


# The file for node exporter


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "flux-dws.prom"
    path.write_text("old")
    before = path.open()
    done = dws(instance(), "metrics", "--output", str(path))
    assert done == (0, "", "")
    assert before.read() == "old"
    assert path.read_text() == dws(instance(), "metrics").out
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert list(tmp_path.iterdir()) == [path]
    assert dws(FixedInstance(), "metrics", "-o", str(path)).status == 1
    assert path.read_text().endswith("flux_dws_up 0\n")


def test_a_file_that_cannot_be_written_is_left_as_it_is(tmp_path: Path) -> None:
    directory = tmp_path / "flux-dws.prom"
    directory.mkdir()
    done = dws(instance(), "metrics", "--output", str(directory))
    error = f"flux-dws: ERROR: {directory}: Is a directory\n"
    assert done == (1, "", error)
    assert list(tmp_path.iterdir()) == [directory]
    path = tmp_path / "none/x.prom"
    done = dws(instance(), "metrics", "-o", str(path))
    error = f"flux-dws: ERROR: {path}: No such file or directory\n"
    assert done.status == 1 and done.err == error


@pytest.mark.parametrize("path", ["x.txt", "link", "-", "", "x.prom/"])
def test_a_file_that_node_exporter_would_not_read_is_refused(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    link = tmp_path / "link"  # as /dev/stdout is one, which must not be replaced
    link.symlink_to("/proc/self/fd/1")
    found = instance()
    done = dws(found, "metrics", "-o", path)
    assert (done.status, done.out, found.requests) == (1, "", [])
    error = f"flux-dws: ERROR: --output: '{path}' does not end in .prom: node exporter"
    assert done.err.startswith(error) and len(done.err.splitlines()) == 1
    assert link.is_symlink() and list(tmp_path.iterdir()) == [link]


# A service, and what is made of its metrics


def test_the_service_has_every_metric() -> None:
    system = started()
    jobids = [system.instance.submit(jobspec(nodes=1)) for _ in range(2)]
    running(system, jobids[0])
    settle(system)
    system.loop.run(timeout=1.0)
    answer = query(system, "metrics")
    rabbits = query(system, "rabbit-list")["rabbits"]
    types, samples = read(document(metric_lines(answer, rabbits)))
    name = "flux_dws_state_duration_seconds_count"
    assert value_of(samples, name, state="Teardown") == len(jobids)
    assert value_of(samples, "flux_dws_jobs_ended_total") == len(jobids)
    with_samples = {family(name, types) for name, _, _ in samples}
    assert set(types) - with_samples == {"flux_dws_watches_lost_total"}


def metrics_named(text: str) -> set[str]:
    """The metrics of ours that a text names."""
    return set(re.findall(r"\bflux_dws_\w+", text))


def expressions(node: Any) -> Iterator[str]:
    """All PromQL in a dashboard."""
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "expr":
                yield value
            yield from expressions(value)
    elif isinstance(node, list):
        for value in node:
            yield from expressions(value)


def test_alerts_and_dashboard_name_metrics_and_labels_that_there_are() -> None:
    types, samples = read(dws(instance(), "metrics").out)
    text, alerts = (EXAMPLES / "grafana-dashboard.json").read_text(), ALERTS.read_text()
    shown = metrics_named(" ".join(expressions(json.loads(text))))
    named = metrics_named(alerts)
    assert len(named) > 8
    assert {family(name, types) for name in named} <= set(types)
    # The dashboard leaves out no metric.
    assert {family(name, types) for name in shown} == set(types)
    known = {(name, label) for name, labels, _ in samples for label in labels}
    for name, matchers in re.findall(r"(flux_dws_\w+)\{([^}]*)\}", text + alerts):
        for label in re.findall(r"(\w+)(?:=|!)", matchers):
            assert (name, label) in known


def promtool(*words: str, input: str = "") -> str:
    """Run promtool, and return what it writes."""
    path = shutil.which("promtool")
    if path is None:
        pytest.skip("promtool is not on PATH (Debian: apt-get install prometheus)")
    done = subprocess.run([path, *words], input=input, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_promtool_finds_nothing_wrong_and_each_alert_is_raised_when_it_should_be(
    tmp_path: Path,
) -> None:
    text = (TOP / "t/data/prometheus-alerts.test.yaml").read_text()
    alerts = re.findall(r"- alert: (\w+)", ALERTS.read_text())
    # Each when nothing is well, and not when all is.
    assert sorted(re.findall(r"alertname: (\w+)", text)) == sorted(alerts * 2)
    assert promtool("check", "metrics", input=dws(instance(), "metrics").out) == ""
    found = promtool("check", "rules", str(ALERTS))
    assert f"{len(alerts)} rules found" in found
    test = tmp_path / "test.yaml"
    test.write_text(text.replace("ALERTS", str(ALERTS)))
    promtool("test", "rules", str(test))
