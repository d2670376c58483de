# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""``python -m rabbitsim``."""

from __future__ import annotations

import json
import pathlib
import re
import signal
import subprocess
import sys

import pytest

from flux_k8s.ports import Json
from rabbitsim.cli import demo, main
from rabbitsim.cli.realflux import find_flux
from rabbitsim.cli.report import Report, WorkflowProgress
from rabbitsim.dws import constant
from support.effort import night
from support.service import LIFE

DATA = pathlib.Path(__file__).parents[1] / "data"

Captured = pytest.CaptureFixture[str]

STAND_INS = ["--flux=sim", "--kube=sim"]

DW = 'dw="#DW jobdw type=xfs capacity=1GiB name=abc"'


def sim(*args: object) -> int:
    """Run a command that runs a job, on the stand-ins."""
    command, *rest = map(str, args)
    return main([command, *STAND_INS, *rest])


def write_script(folder: pathlib.Path, *lines: str) -> pathlib.Path:
    path = folder / "job.sh"
    path.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    return path


@pytest.mark.parametrize("package", ["aiohttp", "jsonpatch"])
def test_a_package_that_is_not_installed_is_named(package: str) -> None:
    code = (
        f"import runpy, sys; sys.modules[{package!r}] = None\n"
        "sys.argv[1:] = ['kube']; runpy.run_module('rabbitsim', run_name='__main__')"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=60)
    expected = f"rabbitsim: {package} is not installed (pip: flux-dws[sim])\n"
    assert (done.returncode, done.stderr) == (1, expected)


def test_dws_names_the_option_for_a_kubeconfig_that_is_not_there(
    tmp_path: pathlib.Path, capfd: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = tmp_path / "none"
    assert main(["dws", f"--kubeconfig={missing}"]) == 1
    expected = f"rabbitsim dws: --kubeconfig: {missing}: No such file or directory\n"
    assert capfd.readouterr().err == expected
    monkeypatch.setenv("KUBECONFIG", str(missing))
    assert main(["dws"]) == 1
    expected = f"rabbitsim dws: --kubeconfig: none is given, none is at {missing} "
    assert capfd.readouterr().err.startswith(expected)


def in_order(wanted: list[str], found: list[str]) -> bool:
    rest = iter(found)
    return all(name in rest for name in wanted)


def test_run_shows_each_transition_and_keeps_the_eventlog_and_files(
    tmp_path: pathlib.Path, capfd: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    eventlog, scratch = tmp_path / "ev.json", tmp_path / "scratch"
    options = ("--eventlog", eventlog, "--scratch", scratch)
    status = sim("run", *options, DATA / "copy-in-out.sh")
    out, err = capfd.readouterr()
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert in_order(
        ["NEW → DEPEND", "DEPEND → PRIORITY", "PRIORITY → SCHED", "SCHED → RUN"]
        + ["RUN → CLEANUP", "CLEANUP → INACTIVE"],
        [line.partition("job       ")[2] for line in lines],
    )
    for state in "Proposal Setup DataIn PreRun PostRun DataOut Teardown".split():
        assert any(line.endswith(f"workflow  {state} completed") for line in lines)
    assert "words: 26" in lines
    assert "  /lustre/output/words.txt" in lines
    assert any("stand-in Flux" in line for line in lines)
    assert any("stand-in Kubernetes" in line for line in lines)
    assert "\033" not in out
    # RFC 18 lines, in the order that is specified.
    events = [json.loads(line) for line in eventlog.read_text().splitlines()]
    assert in_order(LIFE, [event["name"] for event in events])
    assert all(set(event) <= {"timestamp", "name", "context"} for event in events)
    assert (scratch / "lustre/output/words.txt").read_text() == "26\n"
    assert not list((scratch / "mnt/nnf").iterdir())


def test_run_exits_with_the_status_of_the_job(tmp_path: pathlib.Path) -> None:
    assert sim("run", write_script(tmp_path, "#FLUX: -N1", "exit 7")) == 7
    killed = write_script(tmp_path, "#FLUX: -N1 -t0.2s", "sleep 1000")
    assert sim("run", killed) == 142


def test_a_word_that_is_wrong_is_underlined_as_by_flux(
    tmp_path: pathlib.Path, capfd: Captured
) -> None:
    """With the lines that t/t2012-submission.t expects of ``flux submit``."""
    guide = (DATA.parents[1] / "doc/user.md").read_text(encoding="utf-8")
    refusal = r"flux-submit: ERROR: (capacity=10Gib .*\n.*\n.*\^~+\n)"
    expected = re.search(refusal, guide)
    line = "#FLUX: -S dw='#DW jobdw type=xfs capacity=10Gib name=p1'"
    assert sim("run", write_script(tmp_path, "#FLUX: -N1", line)) == 1
    assert expected is not None
    assert f"the job was refused: {expected[1]}" in capfd.readouterr().out


@pytest.mark.parametrize(
    "args, problem",
    [
        ([], "the following arguments are required: COMMAND"),
        (["dance"], "invalid choice: 'dance'"),
        (["run"], "the following arguments are required: SCRIPT"),
        (["run", "/no/such.sh"], "/no/such.sh: No such file or directory"),
        (["run", "--nodes=0", "x.sh"], "--nodes: '0' is not a positive integer"),
        (["run", "--node=3", "x.sh"], "unrecognized arguments: --node=3"),
        (["run", "--rabbits=5", str(DATA / "copy-in-out.sh")], "4 nodes on 5 Rabbits"),
        (["run", "--eventlog=/no/such/e", "x.sh"], "/no/such/e: No such file"),
        (["kube", "--port=70000"], "'70000' is not a port"),
        (["dws", "--mapping=/no/such"], "/no/such: No such file or directory"),
    ],
)
def test_a_bad_command_line_gets_one_line(
    args: list[str],
    problem: str,
    tmp_path: pathlib.Path,
    capfd: Captured,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    write_script(tmp_path, "#FLUX: -N1").rename(tmp_path / "x.sh")
    assert main(args) == 2
    out, err = capfd.readouterr()
    assert problem in err
    assert err.startswith("rabbitsim: ")
    assert err.count("\n") == 1


def test_demo_shows_the_whole_story(
    capfd: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "recorded", lambda: constant(0.001))
    assert sim("demo") == 0
    out, _ = capfd.readouterr()
    assert in_order(
        ["its storage", "the job's variables", "what copy_out brought back"],
        out.splitlines(),
    )
    assert "  A Rabbit is a box of flash storage" in out and "the stand-in's" in out
    assert "  DW_JOB_demo=/" in out
    assert "  /lustre/total.txt: carrots: 42\n" in out
    assert ": gone\n" in out
    assert "  Workflows in Kubernetes: 0\n" in out


def test_an_interrupt_cancels_the_job(tmp_path: pathlib.Path) -> None:
    script = write_script(
        tmp_path, "#FLUX: -N1", f"#FLUX: -S {DW}", "echo up", "sleep 1000"
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "rabbitsim", "run", *STAND_INS, str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert "up\n" in iter(process.stdout.readline, "")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (143, "")
    assert "exception cancel: interrupted" in out
    assert "CLEANUP → INACTIVE" in out


def why_not_real() -> str:
    """Why the real Flux cannot be used; empty when it can be."""
    installation = find_flux()
    if installation is None:
        return "no flux on PATH"
    return installation.missing() or ""


@night
@pytest.mark.skipif(why_not_real() != "", reason=why_not_real())
def test_a_real_flux_gives_the_same_eventlog(
    tmp_path: pathlib.Path, capfd: Captured
) -> None:
    names = {}
    saved = {}
    for flux in ("real", "sim"):
        eventlog = tmp_path / flux
        script = DATA / "copy-in-out.sh"
        choice = [f"--flux={flux}", "--kube=sim", f"--eventlog={eventlog}"]
        folder = tmp_path / f"saved-{flux}"
        assert main(["run", *choice, "--save", str(folder), str(script)]) == 0
        (job,) = folder.iterdir()
        saved[flux] = {path.name for path in job.iterdir()}
        events = [json.loads(line) for line in eventlog.read_text().splitlines()]
        # job-exec releases the nodes beside the epilog, not before or after it.
        beside = ("memo", "release")
        names[flux] = [e["name"] for e in events if e["name"] not in beside]
        out = capfd.readouterr().out
        assert "words: 26\n" in out
        times = re.findall(r"^ *([0-9.]+)s ", out, re.MULTILINE)
        assert times == sorted(times, key=float)
    assert names["real"] == names["sim"]
    assert saved["real"] >= saved["sim"]


def changed(wanted: str, state: str, ready: bool, *done: str) -> Json:
    """A Workflow of a job whose drivers have completed some states."""
    drivers = [{"watchState": name, "completed": True} for name in done]
    return {
        "metadata": {"name": "fluxjob-1"},
        "spec": {"desiredState": wanted},
        "status": {"state": state, "ready": ready, "drivers": drivers},
    }


def test_states_of_which_no_event_was_seen_are_told_with_the_next(
    capsys: Captured,
) -> None:
    """Of several changes of an object an informer may show the last one alone."""
    progress = WorkflowProgress(Report(verbose=False))
    progress.event(1.0, "ADDED", changed("Proposal", "Proposal", True))
    progress.event(2.0, "MODIFIED", changed("PreRun", "PreRun", True))
    done = ("Setup", "PreRun", "PostRun")
    progress.event(3.0, "MODIFIED", changed("Teardown", "Teardown", True, *done))
    told = re.findall(r"workflow  (\w+) completed", capsys.readouterr().out)
    # DataOut may have been given up.
    assert told == ["Proposal", "Setup", "DataIn", "PreRun", "PostRun", "Teardown"]
