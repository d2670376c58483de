# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""rabbitsim.kube.cli, and kubectl against it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Optional

import pytest

from rabbitsim.kube.server import KubeServer
from rabbitsim.kube.table import age
from support.effort import night
from support.kubernetes import workflow


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (599, "9m59s"),
        (3600, "60m"),
        (4 * 3600 + 120, "4h2m"),
        (30 * 3600, "30h"),
        (3 * 86400, "3d"),
        (3 * 86400 + 3600, "3d1h"),
        (100 * 86400, "100d"),
        (-10, "<invalid>"),
    ],
)
def test_ages_have_at_most_two_units(seconds: int, text: str) -> None:
    assert age("2027-01-15T08:00:00Z", 1_800_000_000.0 + seconds) == text


def serve(tmp_path: Path) -> tuple[subprocess.Popen[str], str]:
    code = (
        "import sys; from rabbitsim.kube.cli import serve;"
        "sys.exit(serve(0, sys.argv[1]))"
    )
    path = str(tmp_path / "kc")
    process = subprocess.Popen(
        [sys.executable, "-c", code, path], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    assert re.fullmatch(r"Kubernetes API at http://127\.0\.0\.1:\d+\n", line)
    return process, path


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_serve_runs_until_a_signal_and_exits_with_0(
    tmp_path: Path, number: signal.Signals
) -> None:
    process, _ = serve(tmp_path)
    process.send_signal(number)
    assert process.wait(10) == 0


def test_serve_names_the_reason_why_it_cannot_start(
    server: KubeServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from rabbitsim.kube.cli import serve as run

    port = int(server.url.rpartition(":")[2])
    assert run(port, None, lambda: None) == 1
    assert f"port {port}" in capsys.readouterr().err
    missing = str(tmp_path / "no" / "folder")
    assert run(0, missing, lambda: None) == 1
    assert f"{missing}: No such file or directory" in capsys.readouterr().err


KUBECTL: Optional[str] = shutil.which("kubectl")


@night
@pytest.mark.skipif(KUBECTL is None, reason="there is no kubectl on PATH")
def test_kubectl_works_unchanged(tmp_path: Path) -> None:
    process, kubeconfig = serve(tmp_path)
    body = workflow()
    body["status"] = {"state": "Proposal", "ready": True, "status": "Completed"}
    (tmp_path / "w.json").write_text(json.dumps(body))
    environment = {**os.environ, "HOME": str(tmp_path), "KUBECONFIG": kubeconfig}

    def kubectl(*arguments: str) -> str:
        done = subprocess.run(
            [str(KUBECTL), *arguments],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    try:
        kubectl("create", "-f", str(tmp_path / "w.json"))
        header, row = kubectl("get", "workflows", "-A").splitlines()
        assert header.split()[:5] == ["NAMESPACE", "NAME", "STATE", "READY", "STATUS"]
        assert row.split()[:5] == ["default", "w", "Proposal", "true", "Completed"]
        watching = subprocess.Popen(
            [str(KUBECTL), "get", "workflows", "-A", "-w", "--no-headers"],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert watching.stdout is not None
        assert "Proposal" in watching.stdout.readline()
        patch = '{"status": {"state": "Setup", "ready": false}}'
        kubectl("patch", "workflow", "w", "--type=merge", "-p", patch)
        assert "Setup" in watching.stdout.readline()
        watching.terminate()
        watching.wait(10)
        assert "desiredState" in kubectl("explain", "workflow.spec")
        kubectl("delete", "workflow", "w")
    finally:
        process.terminate()
        assert process.wait(10) == 0
