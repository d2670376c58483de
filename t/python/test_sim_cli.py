# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""``python -m rabbitsim``."""

from __future__ import annotations

import json
import pathlib
import signal
import subprocess
import sys
import urllib.error
import urllib.request

import pytest
import yaml

from rabbitsim.cli import demo, main
from rabbitsim.dws import constant
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
        (["cluster"], "the following arguments are required: --kubeconfig"),
        (["cluster", "--kubeconfig=k", "--fault=x"], "'x'"),
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


def test_a_cluster_has_its_rabbits_for_who_can_read_its_kubeconfig(
    tmp_path: pathlib.Path,
) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    process = subprocess.Popen(
        [sys.executable, "-m", "rabbitsim", "cluster", f"--kubeconfig={kubeconfig}"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        said = process.stdout.readline()
        assert said.endswith(", driving Workflows for 4 nodes on 2 Rabbits\n")
        (user,) = yaml.safe_load(kubeconfig.read_text())["users"]
        url = said.split()[3].rstrip(",") + "/apis/dataworkflowservices.github.io"
        request = urllib.request.Request(f"{url}/v1alpha7/storages")
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(request)
        request.add_header("Authorization", f"Bearer {user['user']['token']}")
        with urllib.request.urlopen(request) as answer:
            assert len(json.load(answer)["items"]) == 2
    finally:
        process.terminate()
        process.communicate()
    assert process.returncode == 0


def test_a_cluster_that_cannot_be_made_ends_with_one_line(
    tmp_path: pathlib.Path, capfd: Captured
) -> None:
    mapping = tmp_path / "mapping.json"
    rabbits = {"No_name": {"capacity": 1 << 40, "hostlist": "node"}}
    mapping.write_text(
        json.dumps({"computes": {"node": "No_name"}, "rabbits": rabbits})
    )
    for path, problem in (
        (tmp_path / "kubeconfig", 'Namespace "No_name" is invalid'),
        (tmp_path / "no" / "kubeconfig", "No such file or directory"),
    ):
        args = ["cluster", f"--mapping={mapping}", f"--kubeconfig={path}"]
        assert main(args) == 1
        err = capfd.readouterr().err
        assert err.startswith("rabbitsim cluster: ") and problem in err
        assert err.count("\n") == 1
