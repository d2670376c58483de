# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What the stand-in controllers do with data."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Optional

import pytest

from flux_k8s.ports import NNFDATAMOVEMENT
from rabbitsim.dws import Fault, Files, Options, constant
from rabbitsim.dws.directive import STATES
from rabbitsim.dws.files import CopyError, NoFiles
from support.dws import System

JOB = "#DW jobdw type=xfs capacity=1GiB name="


def write(path: Path, text: str = "content") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def tree(top: Path) -> list[str]:
    return sorted(str(p.relative_to(top)) for p in top.rglob("*") if not p.is_dir())


def failed_copy(**options: Any) -> System:
    """A system whose copy_out has failed on rabbit-02, but not on rabbit-01, and whose
    failed data movement has no status any more."""
    fault = Fault("DataOut", "copy", node="rabbit-02", **options)
    rates = {"copy_rate": 1.0, "copy_step": 1}
    system = System(
        Options(latency=constant(0), faults=(fault,), **rates), files=NoFiles(size=9)
    )
    out = "#DW copy_out source=$DW_JOB_my_data/ destination=/lustre/out"
    system.submit(JOB + "my-data", out)
    system.wait()
    system.assign()
    for state in STATES[1:6]:
        status = system.go(state)
    assert (status["status"], status["ready"]) == ("Error", False)
    assert results(system) == {"rabbit-01": "Success", "rabbit-02": "Failed"}
    system.sleep(100.0)
    assert system.status()["status"] == "Error"
    clear = {"status": None}
    system.store.merge_patch(
        NNFDATAMOVEMENT, "rabbit-02", "job-1-0", clear, subresource="status"
    )
    return system


def results(system: System) -> dict[str, str]:
    """The results of the data movements, by Rabbit."""
    return {
        item["metadata"]["namespace"]: item.get("status", {}).get("status", "")
        for item in system.items(NNFDATAMOVEMENT)
    }


@pytest.mark.parametrize("duration, status", [(60.0, "Completed"), (0.0, "Error")])
def test_a_failed_data_movement_whose_status_is_removed_is_made_again(
    duration: float, status: str
) -> None:
    system = failed_copy(duration=duration)
    system.sleep(2.0)
    assert system.status()["status"] == "DriverWait"
    system.sleep(18.0)
    found = system.status()
    assert (found["status"], found["ready"]) == (status, duration > 0)
    assert results(system)["rabbit-02"] == ("Success" if duration else "Failed")


def test_teardown_gives_up_data_movement_that_is_under_way(tmp_path: Path) -> None:
    with open(write(tmp_path / "lustre" / "big"), "wb") as file:
        file.truncate(8 << 20)
    options = Options(copy_step=1, latency=constant(0))
    system = System(options, files=Files(tmp_path))
    system.submit(JOB + "aa", "#DW copy_in source=/lustre/big destination=$DW_JOB_aa/")
    system.wait()
    system.assign()
    system.go("Setup")
    system.patch({"desiredState": "DataIn"})
    assert system.loop.run(lambda: list(tmp_path.rglob("mnt/nnf/*/big")) != [])
    assert not system.status()["ready"]
    system.remove()
    system.check_clean()


def copy(files: Files, source: str, destination: str, **variables: str) -> None:
    job = files.copy(source, destination, variables)
    for _ in range(10_000):
        if job.step(1 << 20):
            return
    raise AssertionError("the copy does not end")


@pytest.mark.parametrize(
    "source, destination, result",
    [
        ("/lustre/file", "/lustre/new", ["new"]),
        ("/lustre/file", "/lustre/there", ["there/file"]),
        ("/lustre/file", "/lustre/new/", ["new/file"]),
        ("/lustre/dir", "/lustre/new", ["new/x", "new/y/z"]),
        ("/lustre/dir", "/lustre/there", ["there/dir/x", "there/dir/y/z"]),
        ("/lustre/dir/", "/lustre/there", ["there/x", "there/y/z"]),
        ("/lustre/../secret", "/lustre/stolen", None),
        ("/lustre/link/secret", "/lustre/stolen", None),
        ("/lustre/link", "/lustre/stolen", None),
        ("/lustre/file", "/lustre/link/planted", None),
        ("/lustre/file", "$DW_JOB_x/../planted", None),
        ("/etc/passwd", "/lustre/stolen", None),
        ("$HOME/secret", "/lustre/stolen", None),
        ("/lustre/dir", "/lustre/dir/sub/", None),
        ("/lustre/file", "/lustre/file", None),
    ],
)
def test_data_goes_where_cp_and_rsync_put_it_and_stays_in_its_file_systems(
    tmp_path: Path, source: str, destination: str, result: Optional[list[str]]
) -> None:
    files = Files(tmp_path)
    job = tmp_path / "mnt" / "nnf" / "x"
    job.mkdir()
    write(tmp_path / "secret")
    top = tmp_path / "lustre"
    (top / "there").mkdir()
    for name in ("file", "dir/x", "dir/y/z"):
        write(top / name)
    (top / "link").symlink_to(tmp_path)
    before = tree(tmp_path)
    if result is None:
        with pytest.raises(CopyError):
            copy(files, source, destination, DW_JOB_x=str(job))
    else:
        copy(files, source, destination)
    new = [name for name in tree(tmp_path) if name not in before]
    assert new == [f"lustre/{name}" for name in result or ()]


def test_a_copy_that_has_failed_is_not_done_at_the_next_step(tmp_path: Path) -> None:
    files = Files(tmp_path)
    write(tmp_path / "lustre" / "file")
    (tmp_path / "lustre" / "new" / "file").mkdir(parents=True)
    job = files.copy("/lustre/file", "/lustre/new", {})
    for _ in range(2):
        with pytest.raises(CopyError, match="Is a directory"):
            job.step(2 << 20)
