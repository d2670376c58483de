# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The results of ``make bench``: what is in the files, and which files are meant."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from measure import results
from measure.results import NoResults, Results, begin, find, read, write
from measure.rows import STATISTICS, Floor, Row
from support.effort import night
from support.tree import TOP

COMMIT = "0123456789abcdef0123456789abcdef01234567"

FIGURES = st.floats(-1e6, 1e6).map(lambda value: float(f"{value:.6g}"))
ROWS = st.lists(
    st.builds(
        Row,
        st.sampled_from(["stand-in", "real Flux"]),
        st.just("jobs"),
        st.text(min_size=1),
        st.lists(FIGURES, min_size=1, max_size=5),
        st.sampled_from(["ms", "jobs/s", ""]),
        st.none() | FIGURES,
        st.text(),
        st.sampled_from(sorted(STATISTICS)),
        st.booleans(),
        st.none() | st.builds(Floor, FIGURES, st.text()),
    ),
    unique_by=lambda row: row.key,
    max_size=4,
)


def run(**more: Any) -> Results:
    facts: dict[str, Any] = {
        "time": "2026-01-31T12:34:56Z",
        "quick": False,
        "machine": {"cpu": "A", "cores": 2},
        "versions": {"python": "3.9.0", "commit": COMMIT, "dirty": False},
        "used_by_others": {"jobs": 0.125},
        **more,
    }
    return Results(**facts)


def saved(path: Path, **changes: Any) -> Path:
    """A file of results with one row, where these fields are others."""
    write(path, run(rows=[Row("stand-in", "jobs", "time of a job", [1.0, 2.0], "ms")]))
    fields = json.loads(path.read_text())
    path.write_text(json.dumps({**fields, **changes}))
    return path


@given(ROWS)
def test_what_is_written_is_read_again(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Row]
) -> None:
    path = tmp_path_factory.mktemp("results") / "new" / "a.json"
    write(path, run(rows=rows, failed=["ideal"]))
    assert read(path) == run(rows=rows, failed=["ideal"])


def test_results_have_single_values_and_what_follows_from_them(tmp_path: Path) -> None:
    row = Row("stand-in", "jobs", "time of a job", [1.0, 2.0, 9.0], "ms", 1.5)
    write(tmp_path / "a.json", run(rows=[row]))
    (found,) = json.loads((tmp_path / "a.json").read_text())["rows"]
    assert found["values"] == [1.0, 2.0, 9.0]
    assert (found["value"], found["target"], found["met"]) == (2.0, 1.5, False)


def test_results_name_the_machine_and_the_versions_but_no_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system, _, release, version, machine = os.uname()
    node = "node-of-this-test"
    names = os.uname_result((system, node, release, version, machine))
    monkeypatch.setattr(os, "uname", lambda: names)
    now = begin(False)
    assert set(now.machine) == {"cpu", "cores", "memory", "kernel"}
    assert {"python", "flux-core", "flux-sched", "flux-dws"} <= set(now.versions)
    assert {"commit", "dirty"} <= set(now.versions)
    assert all(now.machine.values())
    write(tmp_path / "a.json", now)
    text = (tmp_path / "a.json").read_text()
    assert release in text and node not in text
    assert str(TOP) not in text and sys.prefix not in text


def test_results_are_called_after_their_time_and_commit() -> None:
    versions = {"commit": COMMIT, "dirty": True}
    assert run().name == "2026-01-31-123456-012345678"
    assert run(versions=versions).name == "2026-01-31-123456-012345678-dirty"
    assert run(versions={}).name == "2026-01-31-123456-unknown-dirty"


ROW = {
    "section": "stand-in",
    "measurement": "jobs",
    "what": "time of a job",
    "unit": "ms",
    "statistic": "median",
    "more_is_better": False,
    "values": [1.0],
    "note": "",
}


@pytest.mark.parametrize(
    "changes, problem",
    [
        ({"format": 0}, "format is 0, expected 1"),
        ({"format": None}, "format is null, expected 1"),
        ({"rows": [ROW, ROW]}, "expected rows of which no two have the same name"),
        ({"rows": [{**ROW, "values": []}]}, "rows[0].values"),
        ({"rows": [{**ROW, "values": ["1"]}]}, "rows[0].values"),
        ({"rows": [{**ROW, "values": [float("nan")]}]}, "rows[0].values"),
        ({"rows": [{**ROW, "statistic": "mean"}]}, "expected one of median"),
        ({"rows": [{**ROW, "unit": 1}]}, "rows[0].unit is 1, expected a string"),
        ({"machine": "mine"}, "machine"),
        ({"used_by_others": {"jobs": "all"}}, "used_by_others.jobs"),
    ],
)
def test_a_file_of_another_form_is_refused_with_its_name_and_the_field(
    tmp_path: Path, changes: dict[str, Any], problem: str
) -> None:
    path = saved(tmp_path / "bad.json", **changes)
    with pytest.raises(NoResults) as error:
        read(path)
    assert str(error.value).startswith("bad.json: ")
    assert problem in str(error.value)


@pytest.mark.parametrize("text", [b"", b"PASS", b"\xff\xfe", b"[1]", b"null"])
def test_what_is_no_json_object_is_refused(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "bad.json").write_bytes(text)
    with pytest.raises(NoResults, match="^bad.json"):
        read(tmp_path / "bad.json")


def test_results_are_found_by_file_and_by_name(tmp_path: Path) -> None:
    path = saved(tmp_path / "before.json")
    for word in str(path), "before.json", "before":
        assert [each.time for each in find(word, tmp_path)] == ["2026-01-31T12:34:56Z"]


def test_a_commit_means_all_full_results_of_its_clean_tree(tmp_path: Path) -> None:
    facts = {"commit": COMMIT, "dirty": False}
    saved(tmp_path / "1.json", time="first")
    saved(tmp_path / "2.json", time="second")
    saved(tmp_path / "3.json", time="dirty", versions={**facts, "dirty": True})
    saved(tmp_path / "4.json", time="unknown", versions={**facts, "dirty": None})
    saved(tmp_path / "5.json", time="quick", quick=True)
    saved(tmp_path / "6.json", time="other", versions={**facts, "commit": "f" * 40})
    (tmp_path / "7.json").write_text("no results")
    found = find(COMMIT[:7], tmp_path)
    assert [each.time for each in found] == ["first", "second"]


def test_a_word_without_results_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NoResults, match="^nothing is no file, and no commit"):
        find("nothing", tmp_path)


def test_a_revision_of_git_means_its_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(tmp_path / "1.json")
    answers = {"main^{commit}": COMMIT}
    monkeypatch.setattr(results, "_git", lambda *words: answers.get(words[-1]))
    assert len(find("main", tmp_path)) == 1


def _bench_compare(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(TOP / "bench" / "compare.py"), *words]
    return subprocess.run(command, capture_output=True, text=True)


@night
def test_bench_compare_prints_the_table(tmp_path: Path) -> None:
    path = str(saved(tmp_path / "a.json"))
    done = _bench_compare("--old", path, path, "--new", path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("OLD: ") == 2
    assert done.stdout.endswith("\n0 better, 0 worse, 1 same\n")


@night
def test_bench_compare_refuses_bad_input_with_one_line(tmp_path: Path) -> None:
    good, bad = str(saved(tmp_path / "a.json")), str(tmp_path / "bad.json")
    Path(bad).write_text("no results")
    done = _bench_compare("--old", good, "--new", bad)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "bench-compare: bad.json is no JSON\n"
