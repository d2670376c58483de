# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The storage that the stand-in gives to jobs, and the data that it moves."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from random import Random
from typing import Any, Callable, Mapping

import pytest

from flux_k8s.dws.datamovement import parse
from flux_k8s.ports import (
    COMPUTES,
    NNFDATAMOVEMENT,
    SERVERS,
    WORKFLOW,
    Json,
    Kind,
)
from rabbitsim.dws import Fault, Files, Options, Topology, constant
from rabbitsim.dws.cli import read_topology, serve
from rabbitsim.dws.directive import STATES
from rabbitsim.dws.files import CopyError, NoCopy, NoFiles
from rabbitsim.kube.server import KubeServer
from rabbitsim.kube.store import Store
from rabbitsim.loop import RealLoop
from support.dws import XFS, System

JOB = "#DW jobdw type=xfs capacity=1GiB name=my-data"


def write(path: Path, text: str = "content") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def tree(top: Path) -> list[str]:
    return sorted(str(p.relative_to(top)) for p in top.rglob("*") if not p.is_dir())


def copy(files: Files, source: str, destination: str, **variables: str) -> None:
    job = files.copy(source, destination, variables)
    for _ in range(10_000):
        if job.step(1 << 20):
            return
    raise AssertionError("the copy does not end")


def test_storage_is_a_directory_while_the_job_has_it(tmp_path: Path) -> None:
    system = System(files=Files(tmp_path))
    system.submit(JOB)
    system.wait()
    system.assign()
    system.go("Setup")
    system.go("DataIn")
    path = Path(system.go("PreRun")["env"]["DW_JOB_my_data"])
    assert path.is_dir() and path.parent == tmp_path / "mnt" / "nnf"
    write(path / "some" / "file")
    system.go("PostRun")
    assert path.is_dir()
    system.remove()
    assert not path.exists()


def test_raw_storage_is_a_file_of_its_size(tmp_path: Path) -> None:
    system = System(files=Files(tmp_path))
    system.submit("#DW jobdw type=raw capacity=1MiB name=rr")
    system.wait()
    system.assign()
    system.go("Setup")
    path = tmp_path / "mnt" / "nnf" / (system.workflow()["metadata"]["uid"] + "-0")
    assert path.stat().st_size == (1 << 20) + (300 << 20)
    system.remove()
    assert not path.exists()


@pytest.mark.parametrize("name", ["my_data", "my-data"])
def test_data_is_brought_before_the_job_and_back_after_it(
    name: str, tmp_path: Path
) -> None:
    files = Files(tmp_path)
    write(tmp_path / "lustre" / "in" / "a", "alpha")
    write(tmp_path / "lustre" / "in" / "deep" / "b")
    system = System(files=files)
    system.submit(
        JOB,
        f"#DW copy_in source=/lustre/in destination=$DW_JOB_{name}/",
        f"#DW copy_out source=$DW_JOB_{name}/out/ destination=/lustre/results",
    )
    system.wait()
    system.assign()
    for state in STATES[1:4]:
        status = system.go(state)
    path = Path(status["env"]["DW_JOB_my_data"])
    assert (path / "in" / "a").read_text() == "alpha"
    assert (path / "in" / "deep" / "b").exists()
    movements = system.items(NNFDATAMOVEMENT)
    assert {m["metadata"]["namespace"] for m in movements} == {"rabbit-01", "rabbit-02"}
    assert {m["metadata"]["name"] for m in movements} == {"job-1-0"}
    for movement in movements:
        labels = movement["metadata"]["labels"]
        assert labels["nnf.cray.hpe.com/teardown_state"] == "DataIn"
        assert labels["dm.cray.hpe.com/initiator"] == "copy_in"
        assert movement["status"]["state"] == "Finished"
        assert movement["status"]["status"] == "Success"
        command = movement["status"]["commandStatus"]
        assert (command["progress"], command["files"]) == (100, 2)
    write(path / "out" / "result", "42")
    system.go("PostRun")
    assert system.go("DataOut")["ready"]
    assert (tmp_path / "lustre" / "results" / "result").read_text() == "42"
    system.remove()
    system.check_clean()
    assert list((tmp_path / "mnt" / "nnf").iterdir()) == []


def test_a_missing_source_is_an_error_in_data_in(tmp_path: Path) -> None:
    system = System(files=Files(tmp_path))
    system.submit(JOB, "#DW copy_in source=/lustre/none destination=$DW_JOB_my_data/")
    assert system.wait()["ready"]
    system.assign()
    system.go("Setup")
    status = system.go("DataIn")
    assert status["status"] == "Error"
    assert status["message"] == (
        "DW Directive 1: Internal error: data movement operation failed during "
        "'DataIn', message: source '/lustre/none' does not exist"
    )
    driver = next(d for d in status["drivers"] if d["status"] == "Error")
    assert "source '/lustre/none' does not exist" in driver["error"]
    for movement in system.items(NNFDATAMOVEMENT):
        assert movement["status"]["status"] == "Failed"
    system.remove()
    system.check_clean()


class TimedCopy(NoCopy):
    """A copy that is complete at a certain time, and says when to look again."""

    def __init__(self, system: System, end: float) -> None:
        super().__init__(100)
        self._system = system
        self._end = end

    @property
    def pause(self) -> float:
        return max(0.0, self._end - self._system.loop.now())

    def step(self, limit: int) -> bool:
        if self.pause == 0.0:
            self.progress.bytes = 100
        return self.pause == 0.0


class TimedFiles(NoFiles):
    """Files whose copies take 30 s."""

    system: System

    def copy(
        self, source: str, destination: str, variables: Mapping[str, str]
    ) -> TimedCopy:
        return TimedCopy(self.system, self.system.loop.now() + 30.0)


def test_a_copy_that_takes_its_own_time_is_complete_then() -> None:
    files = TimedFiles()
    system = files.system = System(Options(latency=constant(0)), files=files)
    system.submit(JOB, "#DW copy_in source=/lustre/in destination=$DW_JOB_my_data/")
    system.wait()
    system.assign()
    system.go("Setup")
    begin, steps = system.loop.now(), len(system.events)
    assert system.go("DataIn")["ready"]
    assert system.loop.now() - begin == pytest.approx(30.0, abs=0.1)
    assert len(system.events) - steps < 30


def test_a_copy_is_reported_once_in_each_interval() -> None:
    options = Options(
        latency=constant(0), copy_rate=10.0, copy_step=1, report_interval=4.0
    )
    system = System(options, files=NoFiles(size=100))
    system.submit(JOB, "#DW copy_in source=/lustre/in destination=$DW_JOB_my_data/")
    system.wait()
    system.assign()
    system.go("Setup")
    system.go("DataIn")
    movement = system.items(NNFDATAMOVEMENT)[0]["metadata"]
    reports = [
        object["status"]["commandStatus"]["progress"]
        for _, _, object in system.events
        if object["kind"] == "NnfDataMovement" and "status" in object
        if object["metadata"]["namespace"] == movement["namespace"]
    ]
    assert len(reports) == 4 and reports[-1] == 100


@pytest.mark.parametrize("size, halfway", [(100, 50), (0, 100)])
def test_a_copy_that_stalls_is_still_reported_and_goes_on_later(
    size: int, halfway: int
) -> None:
    fault = Fault("DataIn", "stall", duration=60.0)
    options = Options(latency=constant(0), copy_rate=10.0, copy_step=1, faults=(fault,))
    system = System(options, files=NoFiles(size=size))
    system.submit(JOB, "#DW copy_in source=/lustre/in destination=$DW_JOB_my_data/")
    system.wait()
    system.assign()
    system.go("Setup")
    system.patch({"desiredState": "DataIn"})
    reports = []
    for _ in range(2):
        system.sleep(25.0)
        reports.append(system.items(NNFDATAMOVEMENT)[0]["status"])
    assert [each["state"] for each in reports] == ["Running", "Running"]
    first, second = (each["commandStatus"] for each in reports)
    assert first["progress"] == second["progress"] == halfway
    assert first["data"] == second["data"]
    assert first["elapsedTime"] != second["elapsedTime"]
    system.sleep(20.0)
    assert system.status()["ready"]


@pytest.mark.parametrize("size", [0, 1, 1023, 1500, 3 * 2**20, 5 * 2**30])
def test_the_size_of_a_copy_is_that_of_its_data(size: int) -> None:
    system = System(Options(latency=constant(0)), files=NoFiles(size=size))
    system.submit(JOB, "#DW copy_in source=/lustre/in destination=$DW_JOB_my_data/")
    system.wait()
    system.assign()
    system.go("Setup")
    system.go("DataIn")
    for movement in system.items(NNFDATAMOVEMENT):
        moved = parse(movement).bytes
        assert moved is not None and abs(moved - size) <= size / 1000


COPY_OUT = "#DW copy_out source=$DW_JOB_my_data/ destination=/lustre/out"


def failed_copy(duration: float = 0.0, **options: Any) -> System:
    """A system whose copy_out has failed on rabbit-02, but not on rabbit-01."""
    fault = Fault(
        "DataOut", "copy", duration=duration, node="rabbit-02", message="no space"
    )
    system = System(
        Options(latency=constant(0), faults=(fault,), **options), files=NoFiles(size=9)
    )
    system.submit(JOB, COPY_OUT)
    system.wait()
    system.assign()
    for state in ("Setup", "DataIn", "PreRun", "PostRun"):
        system.go(state)
    status = system.go("DataOut")
    assert (status["status"], status["ready"]) == ("Error", False)
    assert "no space" in status["message"]
    assert results(system) == {"rabbit-01": "Success", "rabbit-02": "Failed"}
    return system


def results(system: System) -> dict[str, str]:
    """The results of the data movements, by Rabbit."""
    return {
        item["metadata"]["namespace"]: item.get("status", {}).get("status", "")
        for item in system.items(NNFDATAMOVEMENT)
    }


def clear(system: System, rabbit: str) -> None:
    """Remove the status of a data movement."""
    for item in system.items(NNFDATAMOVEMENT):
        if item["metadata"]["namespace"] == rabbit:
            name = item["metadata"]["name"]
            system.store.merge_patch(
                NNFDATAMOVEMENT, rabbit, name, {"status": None}, subresource="status"
            )


def test_a_failed_data_movement_whose_status_is_removed_is_made_again() -> None:
    system = failed_copy(duration=60.0)
    system.sleep(100.0)
    assert system.status()["status"] == "Error"
    clear(system, "rabbit-02")
    system.sleep(1.0)
    status = system.status()
    assert (status["status"], status["ready"]) == ("Completed", True)
    assert set(results(system).values()) == {"Success"}


def test_a_data_movement_that_is_made_again_and_fails_leaves_the_error() -> None:
    system = failed_copy(copy_rate=1.0, copy_step=1)
    clear(system, "rabbit-02")
    system.sleep(2.0)
    assert system.status()["status"] == "DriverWait"
    system.sleep(20.0)
    assert (system.status()["status"], system.status()["ready"]) == ("Error", False)
    assert results(system)["rabbit-02"] == "Failed"


def test_teardown_gives_up_data_movement_that_is_under_way(tmp_path: Path) -> None:
    with open(write(tmp_path / "lustre" / "big"), "wb") as file:
        file.truncate(8 << 20)
    options = Options(copy_step=1, latency=constant(0))
    system = System(options, files=Files(tmp_path))
    system.submit(JOB, "#DW copy_in source=/lustre/big destination=$DW_JOB_my_data/")
    system.wait()
    system.assign()
    system.go("Setup")
    system.patch({"desiredState": "DataIn"})
    seen = system.loop.run(lambda: bool(system.items(NNFDATAMOVEMENT)))
    assert seen and system.loop.run(lambda: list(tmp_path.rglob("mnt/nnf/*/big")) != [])
    assert not system.status()["ready"]
    system.remove()
    system.check_clean()


def test_persistent_storage_keeps_its_files(tmp_path: Path) -> None:
    system = System(files=Files(tmp_path))
    create = "#DW create_persistent type=lustre capacity=1GiB name=keep1"
    system.run(create, name="creator")
    for number in (1, 2):
        name = f"user{number}"
        system.submit("#DW persistentdw name=keep1", name=name)
        system.wait(name)
        system.assign(name=name)
        for state in STATES[1:4]:
            status = system.go(state, name)
        path = Path(status["env"]["DW_PERSISTENT_keep1"])
        assert (path / "left").exists() == (number == 2)
        write(path / "left")
        system.remove(name)
        assert not path.exists()
    system.run("#DW destroy_persistent name=keep1", name="destroyer")
    assert list((tmp_path / "persistent").iterdir()) == []


@pytest.mark.parametrize(
    "source, destination, result",
    [
        ("/lustre/file", "/lustre/new", ["new"]),
        ("/lustre/file", "/lustre/there/", ["there/file"]),
        ("/lustre/file", "/lustre/there", ["there/file"]),
        ("/lustre/file", "/lustre/new/", ["new/file"]),
        ("/lustre/dir", "/lustre/new", ["new/x", "new/y/z"]),
        ("/lustre/dir", "/lustre/new/", ["new/dir/x", "new/dir/y/z"]),
        ("/lustre/dir", "/lustre/there", ["there/dir/x", "there/dir/y/z"]),
        ("/lustre/dir/", "/lustre/there", ["there/x", "there/y/z"]),
        ("/lustre/dir/", "/lustre/new/", ["new/x", "new/y/z"]),
        ("/lustre/dir/y", "/lustre/new/deep", ["new/deep/z"]),
    ],
)
def test_slashes_mean_what_they_mean_to_cp_and_rsync(
    tmp_path: Path, source: str, destination: str, result: list[str]
) -> None:
    files = Files(tmp_path)
    top = tmp_path / "lustre"
    (top / "there").mkdir()
    for name in ("file", "dir/x", "dir/y/z"):
        write(top / name)
    before = tree(top)
    copy(files, source, destination)
    assert [name for name in tree(top) if name not in before] == result


@pytest.mark.parametrize(
    "source, destination",
    [
        ("/lustre/../secret", "/lustre/stolen"),
        ("/lustre/link/secret", "/lustre/stolen"),
        ("/lustre/link", "/lustre/stolen"),
        ("/lustre/file", "/lustre/link/planted"),
        ("/lustre/file", "$DW_JOB_x/../planted"),
        ("/etc/passwd", "/lustre/stolen"),
        ("$HOME/secret", "/lustre/stolen"),
        ("/lustre/dir", "/lustre/dir/sub/"),
        ("/lustre/file", "/lustre/file"),
    ],
)
def test_data_movement_stays_in_its_file_systems(
    tmp_path: Path, source: str, destination: str
) -> None:
    files = Files(tmp_path)
    job = tmp_path / "mnt" / "nnf" / "x"
    job.mkdir()
    write(tmp_path / "secret")
    write(tmp_path / "lustre" / "file")
    write(tmp_path / "lustre" / "dir" / "x")
    (tmp_path / "lustre" / "link").symlink_to(tmp_path)
    before = tree(tmp_path)
    with pytest.raises(CopyError):
        copy(files, source, destination, DW_JOB_x=str(job))
    assert tree(tmp_path) == before


def test_links_in_a_tree_are_copied_as_links(tmp_path: Path) -> None:
    files = Files(tmp_path)
    write(tmp_path / "secret")
    write(tmp_path / "lustre" / "dir" / "x")
    (tmp_path / "lustre" / "dir" / "link").symlink_to(tmp_path / "secret")
    copy(files, "/lustre/dir", "/lustre/new")
    copied = tmp_path / "lustre" / "new" / "link"
    assert copied.is_symlink() and os.readlink(copied) == str(tmp_path / "secret")


def test_a_big_file_is_copied_in_many_steps(tmp_path: Path) -> None:
    files = Files(tmp_path)
    with open(tmp_path / "lustre" / "big", "wb") as file:
        file.truncate(10 << 20)
    job = files.copy("/lustre/big", "/lustre/new", {})
    steps = 1
    while not job.step(2 << 20):
        steps += 1
        assert job.progress.bytes <= job.progress.bytes_total == 10 << 20
    assert steps >= 5
    assert job.progress.bytes == 10 << 20


def test_a_copy_that_has_failed_is_not_done_at_the_next_step(tmp_path: Path) -> None:
    files = Files(tmp_path)
    write(tmp_path / "lustre" / "file")
    (tmp_path / "lustre" / "new").mkdir()
    (tmp_path / "lustre" / "new" / "file").mkdir()
    job = files.copy("/lustre/file", "/lustre/new", {})
    for _ in range(2):
        with pytest.raises(CopyError, match="Is a directory"):
            job.step(2 << 20)


def test_any_directory_can_stand_for_a_global_file_system(tmp_path: Path) -> None:
    write(tmp_path / "project" / "data")
    files = Files(tmp_path / "scratch", {"/p/lustre1": tmp_path / "project"})
    copy(files, "/p/lustre1/data", "/p/lustre1/other")
    assert (tmp_path / "project" / "other").exists()
    with pytest.raises(CopyError, match="none of the file systems /p/lustre1"):
        files.copy("/lustre/data", "/p/lustre1/x", {})


def test_a_real_api_server_can_be_driven(tmp_path: Path) -> None:
    server = KubeServer(Store(time.time, Random(1)))
    server.start()
    kubeconfig = str(tmp_path / "kubeconfig")
    server.write_kubeconfig(kubeconfig)
    driven: list[bool] = []

    def stopper(loop: RealLoop) -> Callable[[], bool]:
        def drive() -> None:
            done = _drive(server)
            loop.call_soon_threadsafe(lambda: driven.append(done))

        threading.Thread(target=drive).start()
        return lambda: bool(driven)

    code = serve(
        kubeconfig,
        Topology.regular(2, 1),
        scratch=str(tmp_path / "scratch"),
        stopper=stopper,
    )
    left = server.call(lambda: server.store.list(SERVERS)["items"])
    server.stop()
    assert code == 0 and driven == [True] and left == []


def _drive(server: KubeServer) -> bool:
    """Take a Workflow through its states. Return whether it is gone in the end."""
    store = server.store
    spec = {
        "desiredState": "Proposal",
        "dwDirectives": [XFS],
        "groupID": 0,
        "jobID": "f1",
        "userID": 0,
        "wlmID": "flux",
    }
    body = {"metadata": {"name": "job"}, "spec": spec}
    server.call(lambda: store.create(WORKFLOW, "default", body))
    for state in STATES:
        if state != "Proposal":
            _patch(server, WORKFLOW, "job", {"spec": {"desiredState": state}})
        if not _ready(server, state):
            return False
        if state == "Proposal":
            _assign(server)
    server.call(lambda: store.delete(WORKFLOW, "default", "job"))
    for _ in range(3000):
        if server.call(lambda: store.find(WORKFLOW, "default", "job")) is None:
            return True
        time.sleep(0.01)
    return False


def _assign(server: KubeServer) -> None:
    storage = [{"name": "rabbit-01", "allocationCount": 1}]
    entry = {"label": "xfs", "allocationSize": 11051991040, "storage": storage}
    _patch(server, SERVERS, "job-0", {"spec": {"allocationSets": [entry]}})
    _patch(server, COMPUTES, "job", {"data": [{"name": "compute-01"}]})


def _patch(server: KubeServer, kind: Kind, name: str, patch: Json) -> None:
    server.call(lambda: server.store.merge_patch(kind, "default", name, patch))


def _ready(server: KubeServer, state: str) -> bool:
    for _ in range(3000):
        workflow = server.call(lambda: server.store.get(WORKFLOW, "default", "job"))
        status = workflow.get("status") or {}
        if status.get("state") == state and status.get("ready"):
            return True
        time.sleep(0.01)
    return False


def test_a_rabbitmapping_that_is_none_is_refused_in_one_line(tmp_path: Path) -> None:
    path = write(tmp_path / "map.json", '{"computes": {"n1": "r9"}, "rabbits": {}}')
    with pytest.raises(ValueError, match="computes.n1 is 'r9', expected one of"):
        read_topology(str(path), 4, 2)
    path.write_text("[1]")
    with pytest.raises(ValueError, match="expected a rabbitmapping"):
        read_topology(str(path), 4, 2)
    assert read_topology(None, 4, 2) == Topology.regular(4, 2)
