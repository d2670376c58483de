# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What is in etc/: scripts, the plugin of the commands, examples.

With Flux itself they are tested in t/t2004-site-files.t.
"""

from __future__ import annotations

import copy
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import types
from pathlib import Path
from typing import Any, Callable, Iterator, Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_k8s.config.table import Config
from flux_k8s.dws.directivebreakdown import apply_breakdowns, requested_nodes
from flux_k8s.dws.directives import GIB
from support.breakdowns import breakdown, per_compute

ETC = Path(__file__).parents[2] / "etc"
SCRIPTS = [
    ETC / "system/dws-perilog.sh",
    ETC / "system/prolog.d/dws",
    ETC / "system/epilog.d/dws",
]
PATIENCE = 30
XFS = "#DW jobdw type=xfs capacity=10GiB name=p1"


def read_toml(text: str) -> dict[str, Any]:
    try:
        import tomllib
    except ImportError:
        pytest.skip("Python 3.11 or newer reads TOML")
    return tomllib.loads(text)


# The example of a configuration


def uncommented(text: str) -> str:
    """The example with all its settings in force."""
    return re.sub(r'^#(?=[a-z"\[\]])', "", text, flags=re.M)


def test_the_example_of_a_configuration_is_right_as_it_stands() -> None:
    table = read_toml((ETC / "examples/rabbit.toml").read_text())["rabbit"]
    assert Config.parse(table).mapping == "/etc/flux/system/rabbitmapping.json"


def test_the_example_has_every_key_and_each_may_be_uncommented() -> None:
    text = (ETC / "examples/rabbit.toml").read_text()
    table = read_toml(uncommented(text))["rabbit"]
    Config.parse(table)
    fields = {name for name in Config.__dataclass_fields__ if name != "maximums"}
    assert fields | {"policy"} == set(table)


def test_the_defaults_in_the_example_are_those_in_force() -> None:
    text = (ETC / "examples/rabbit.toml").read_text()
    table = read_toml(uncommented(text))["rabbit"]
    defaults, shown = vars(Config()), vars(Config.parse(table))
    keys = [key for key, value in defaults.items() if value not in (None, {})]
    assert {"tc_timeout", "soft_drain", "save_datamovements"} <= set(keys)
    assert {key: shown[key] for key in keys} == {key: defaults[key] for key in keys}


# Scripts: run with a systemctl and a flux that the test plays


class Node:
    """A compute node. ``wait`` is what ``flux job wait-event`` does."""

    def __init__(
        self,
        folder: Path,
        eventlog: list[str],
        wait: str = "exit 0",
        units: Optional[str] = None,
    ):
        if units is not None:
            (folder / "rabbit_units").write_text(f"{units}\n")
        self.log = folder / "log"
        self.folder = folder
        bin = folder / "bin"
        bin.mkdir(exist_ok=True)
        # systemd starts a unit only so often, but for reset-failed.
        self._program(
            bin / "systemctl",
            f"""case "$1" in
            reset-failed) touch "{folder}/reset-$2"; exit ;;
            start) rm "{folder}/reset-$2" || exit ;;
            esac
            echo "$@" >>{self.log}""",
        )
        (folder / "eventlog").write_text("".join(f"{line}\n" for line in eventlog))
        self._program(
            bin / "flux",
            f"""case "$1 $2" in
            "job info") cat {folder}/"$4" ;;
            "job raise") echo "$@" >>{self.log}; touch {folder}/failed ;;
            "R decode") cat ;;
            "dws show") cat {folder}/show ;;
            "job eventlog") cat {folder}/eventlog ;;
            "getattr rank") test -z "$FLUX_IS_GONE" && echo 2 ;;
            "hostlist --nth=2") echo compute-03 ;;
            "hostlist --quiet") case "$5" in compute-03 | "compute-[02-03]") ;;
                *) false ;; esac ;;
            "job wait-event") echo "$@" >>{self.log}; {wait} ;;
            "config get") cat {folder}/config-"$4" 2>/dev/null || echo "${{3#*=}}" ;;
            esac""",
        )
        self.environment = {
            "PATH": f"{bin}:{os.environ['PATH']}",
            "FLUX_JOB_ID": "f1234",
            "RUNTIME_DIRECTORY": str(folder),
        }

    def _program(self, path: Path, text: str) -> None:
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def configure(self, key: str, value: str) -> None:
        (self.folder / f"config-{key}").write_text(f"{value}\n")

    def start(self, name: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [str(ETC / f"system/{name}.d/dws")],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, name: str) -> tuple[int, str]:
        """The exit status, and what was written to standard error."""
        process = self.start(name)
        _, error = process.communicate(timeout=PATIENCE)
        return process.returncode, error

    @property
    def done(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []


def await_wait(process: subprocess.Popen[str]) -> None:
    """Return when the script waits for an event."""
    assert process.stdout is not None
    assert process.stdout.readline() == "waits\n"


def event(name: str, context: str = "{}") -> str:
    return f'{{"timestamp":1700000000.25,"name":"{name}","context":{context}}}'


DW_JOB = [event("submit"), event("dependency-add", '{"description":"dws-create"}')]
MOUNTED = [*DW_JOB, event("dws_environment", '{"variables":{}}')]
START, STOP = "start nnf-clientmount", "stop nnf-clientmount"
WAIT = "job wait-event --quiet {}--match-context=description={} f1234 {}-finish"
FOR_MOUNT = WAIT.format("--timeout=30m ", "dws-setup", "prolog")
FOR_EPILOG = WAIT.format("", "dws-epilog", "epilog")


@pytest.mark.parametrize("name", ["prolog", "epilog"])
def test_a_job_without_directives_costs_one_look_at_its_eventlog(
    tmp_path: Path, name: str
) -> None:
    node = Node(tmp_path, [event("submit"), event("memo", '{"x":"dws-create"}')])
    assert node.run(name) == (0, "")
    assert node.done == []


def test_the_prolog_runs_the_service_until_storage_is_mounted(tmp_path: Path) -> None:
    node = Node(tmp_path, MOUNTED)
    assert node.run("prolog") == (0, "")
    assert node.done == [START, FOR_MOUNT, STOP]


def test_the_epilog_runs_the_service_until_storage_is_gone(tmp_path: Path) -> None:
    node = Node(tmp_path, MOUNTED)
    assert node.run("epilog") == (0, "")
    assert node.done == [START, FOR_EPILOG, STOP]


@pytest.mark.parametrize("kept", ["compute-03", "compute-[02-03]"])
def test_the_service_goes_on_where_storage_is_kept(tmp_path: Path, kept: str) -> None:
    node = Node(tmp_path, MOUNTED)
    record = {"nodes": kept, "at": 1.5, "until": "x"}
    (tmp_path / "rabbit_kept_for").write_text(json.dumps(record))
    assert node.run("epilog") == (0, "")
    assert node.done == [START, FOR_EPILOG]


def test_the_service_ends_where_storage_is_kept_for_another_node(
    tmp_path: Path,
) -> None:
    node = Node(tmp_path, MOUNTED)
    (tmp_path / "rabbit_kept_for").write_text('{"nodes": "compute-01", "at": 1.5}')
    assert node.run("epilog") == (0, "")
    assert node.done == [START, FOR_EPILOG, STOP]


LATE = "storage is not mounted after 5m (rabbit.prolog_timeout)"
RAISE = f"job raise --severity=0 --type=dws f1234 {LATE}"
FOR_END = FOR_MOUNT.replace("30m", "10s")


def late(folder: Path, state: str, ranks: str, end: str = "failed") -> Node:
    """A node on which storage is not mounted in time. dws-setup ends if the job is
    failed, or at ``end``."""
    folder.mkdir(exist_ok=True)
    node = Node(folder, DW_JOB, f"test -e {folder}/{end}")
    node.configure("rabbit.prolog_timeout", "5m")
    (folder / "R").write_text(f"{ranks}\n")
    shown = {"state": state, "directives": ['#DW x "state": "PreRun"']}
    (folder / "show").write_text(json.dumps(shown))
    return node


@pytest.mark.parametrize("ranks", ["2", "2-5", "2,4", "1-5"])
def test_prolog_timeout_is_how_long_the_prolog_waits_for_mounts(
    tmp_path: Path, ranks: str
) -> None:
    node = late(tmp_path, "PreRun", ranks)
    assert node.run("prolog") == (1, f"dws: f1234: {LATE}\n")
    assert node.done == [START, FOR_MOUNT.replace("30m", "5m"), STOP, FOR_END]


@pytest.mark.parametrize("ranks", ["2", "2-5", "2,4"])
def test_a_job_fails_whose_data_is_not_copied_in_by_then(
    tmp_path: Path, ranks: str
) -> None:
    node = late(tmp_path, "DataIn", ranks)
    assert node.run("prolog") == (0, "")
    assert node.done == [START, FOR_MOUNT.replace("30m", "5m"), STOP, RAISE, FOR_END]


def test_a_module_that_does_not_answer_does_not_hold_the_prolog_up(
    tmp_path: Path,
) -> None:
    """The other nodes wait for ten seconds."""
    node = late(tmp_path, "", "2-5")
    (tmp_path / "show").unlink()
    os.mkfifo(tmp_path / "show")
    assert node.run("prolog") == (0, "")
    assert RAISE in node.done


def test_its_other_nodes_leave_that_to_the_first(tmp_path: Path) -> None:
    node = late(tmp_path, "DataIn", "1-5")
    assert node.run("prolog") == (1, f"dws: f1234: {LATE}\n")
    assert RAISE not in node.done


def test_a_job_whose_storage_is_mounted_at_the_last_moment_gets_its_units(
    tmp_path: Path,
) -> None:
    again = tmp_path / "again"
    wait = f"test -e {again} || {{ touch {again}; exit 1; }}"
    node = Node(tmp_path, MOUNTED, wait, units=units("a.service"))
    node.configure("rabbit.daemons", DAEMONS)
    (tmp_path / "R").write_text("2\n")
    (tmp_path / "show").write_text('{"state": "PreRun"}')
    assert node.run("prolog") == (0, "")
    assert node.done == [START, FOR_MOUNT, STOP, FOR_END, "start a.service"]


def test_a_prolog_whose_flux_ends_does_not_blame_the_timeout(tmp_path: Path) -> None:
    node = Node(tmp_path, DW_JOB, "exit 1")
    node.environment["FLUX_IS_GONE"] = "1"
    assert node.run("prolog") == (
        1,
        "dws: f1234: Flux ended before storage was mounted\n",
    )
    assert node.done == [START, FOR_MOUNT, STOP]


@pytest.mark.parametrize("name", ["prolog", "epilog"])
def test_a_job_whose_eventlog_root_may_not_see_is_an_error(
    tmp_path: Path, name: str
) -> None:
    node = Node(tmp_path, DW_JOB)
    (tmp_path / "eventlog").unlink()
    status, error = node.run(name)
    assert status == 1
    assert error.splitlines()[-1] == (
        "dws: f1234: cannot read the eventlog of the job, as root: see"
        " access.allow-root-owner"
    )


@pytest.mark.parametrize("name", ["prolog", "epilog"])
def test_an_eventlog_that_cannot_be_searched_is_an_error(
    tmp_path: Path, name: str
) -> None:
    """As where a node has no memory left. The job may have storage."""
    node = Node(tmp_path, DW_JOB)
    grep = tmp_path / "bin/grep"
    grep.write_text("#!/bin/sh\nkill -KILL $$\n")
    grep.chmod(0o755)
    status, error = node.run(name)
    assert status == 1
    assert error.splitlines()[-1] == (
        "dws: f1234: cannot search the eventlog of the job"
    )


@pytest.mark.parametrize("script", ["prolog", "epilog"])
def test_what_users_post_to_their_jobs_does_not_hang_a_script(
    tmp_path: Path, script: str
) -> None:
    """It took the square of the length: hours, for this one."""
    note = event("exception", '{"type":"x","severity":7,"note":"' + 500000 * "f" + '"}')
    assert Node(tmp_path, [*DW_JOB, note, note]).run(script) == (0, "")


@pytest.mark.parametrize("name", ["prolog", "epilog"])
def test_a_flux_that_ends_in_the_middle_of_a_memo_is_an_error(
    tmp_path: Path, name: str
) -> None:
    node = Node(tmp_path, [event("submit")])
    with open(tmp_path / "eventlog", "a") as file:
        file.write(event("memo", '{"x":"much')[:-1])
    flux = tmp_path / "bin/flux"
    flux.write_text(flux.read_text().replace("/eventlog ;;", "/eventlog; exit 137 ;;"))
    status, error = node.run(name)
    assert status == 1
    assert "cannot read the eventlog of the job" in error


@pytest.mark.parametrize("name", ["prolog", "epilog"])
def test_a_script_that_does_not_find_flux_says_where_it_looked(
    tmp_path: Path, name: str
) -> None:
    node = Node(tmp_path, DW_JOB)
    (tmp_path / "bin/flux").unlink()
    for program in ("basename", "dirname"):
        (tmp_path / "bin" / program).symlink_to(str(shutil.which(program)))
    node.environment["PATH"] = str(tmp_path / "bin")
    assert node.run(name) == (1, f"dws: f1234: no flux on PATH={tmp_path}/bin\n")


@pytest.mark.parametrize("value", [None, ""])
@pytest.mark.parametrize("name", ["prolog", "epilog"])
def test_without_a_job_in_the_environment_a_script_says_who_must_pass_it(
    tmp_path: Path, name: str, value: Optional[str]
) -> None:
    node = Node(tmp_path, DW_JOB)
    del node.environment["FLUX_JOB_ID"]
    if value is not None:
        node.environment["FLUX_JOB_ID"] = value
    assert node.run(name) == (
        1,
        "dws: FLUX_JOB_ID is not set: see allowed-environment of flux-imp\n",
    )


@pytest.mark.parametrize("name", ["prolog", "epilog"])
def test_a_script_that_is_told_to_end_stops_the_service(
    tmp_path: Path, name: str
) -> None:
    node = Node(tmp_path, DW_JOB, "echo waits; exec sleep 1000")
    process = node.start(name)
    await_wait(process)
    process.send_signal(signal.SIGTERM)
    _, error = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1
    assert error.startswith("dws: f1234: ") and error.count("\n") == 1
    assert node.done[-1] == STOP


def test_the_service_is_not_stopped_under_another_job(tmp_path: Path) -> None:
    """The second job's prolog starts while the first one waits."""
    os.mkfifo(tmp_path / "goes")
    (tmp_path / "one").mkdir()
    wait = f"echo waits; read line <{tmp_path}/goes"
    first = Node(tmp_path / "one", MOUNTED, wait)
    first.environment["RUNTIME_DIRECTORY"] = str(tmp_path)
    process = first.start("prolog")
    await_wait(process)
    second = Node(tmp_path, MOUNTED)
    assert second.run("prolog") == (0, "")
    assert second.done == [START, FOR_MOUNT]
    (tmp_path / "goes").write_text("\n")
    process.communicate(timeout=PATIENCE)
    assert first.done == [START, FOR_MOUNT, STOP]


def units(*names: str) -> str:
    """As the service writes them to the job's KVS directory."""
    quoted = ",".join(f'"{name}"' for name in names)
    return f"[{quoted}]"


DAEMONS = r'{"a":{"unit":"a.service"},"b":{"unit":"b@x\\x2dy.service"}}'


def test_units_are_started_when_storage_is_there_and_stopped_first(
    tmp_path: Path,
) -> None:
    wanted = units("a.service", r"b@x\\x2dy.service")
    node = Node(tmp_path, MOUNTED, units=wanted)
    node.configure("rabbit.daemons", DAEMONS)
    assert node.run("prolog") == (0, "")
    unit = r"b@x\x2dy.service"
    assert node.done == [START, FOR_MOUNT, STOP, "start a.service", f"start {unit}"]
    node.log.unlink()
    assert node.run("epilog") == (0, "")
    assert node.done == ["stop a.service", f"stop {unit}", START, FOR_EPILOG, STOP]


def test_a_unit_is_not_stopped_under_another_job(tmp_path: Path) -> None:
    jobs = []
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        node = Node(folder, MOUNTED, units=units("a.service"))
        node.configure("rabbit.daemons", DAEMONS)
        node.environment.update(RUNTIME_DIRECTORY=str(tmp_path), FLUX_JOB_ID=name)
        jobs.append(node)
    first, second = jobs
    assert first.run("prolog") == second.run("prolog") == (0, "")
    assert second.run("epilog") == (0, "")
    assert "stop a.service" not in second.done
    assert first.run("epilog") == (0, "")
    assert "stop a.service" in first.done


@pytest.mark.parametrize("unit", ["evil.service", 'x\\",\\"a.service', "a.serviceX"])
def test_only_units_that_the_configuration_names_are_started(
    unit: str, tmp_path: Path
) -> None:
    node = Node(tmp_path, MOUNTED, units=units(unit))
    node.configure("rabbit.daemons", DAEMONS)
    assert node.run("prolog") == (0, "")
    assert node.done == [START, FOR_MOUNT, STOP]


def test_a_memo_starts_and_stops_no_unit(tmp_path: Path) -> None:
    memo = event("memo", '{"rabbit_units":["a.service"]}')
    node = Node(tmp_path, [*MOUNTED, memo])
    node.configure("rabbit.daemons", DAEMONS)
    assert node.run("prolog") == (0, "")
    assert node.run("epilog") == (0, "")
    assert node.done == [START, FOR_MOUNT, STOP, START, FOR_EPILOG, STOP]


def test_no_unit_is_started_for_a_job_that_has_failed(tmp_path: Path) -> None:
    node = Node(tmp_path, DW_JOB, units=units("a.service"))
    node.configure("rabbit.daemons", DAEMONS)
    assert node.run("prolog") == (0, "")
    assert node.done == [START, FOR_MOUNT, STOP]


def test_a_memo_cannot_pass_for_another_event(tmp_path: Path) -> None:
    inner = '{"name":"dependency-add","context":{"description":"dws-create"}}'
    node = Node(tmp_path, [event("submit"), event("memo", inner)])
    assert node.run("prolog") == (0, "")
    assert node.done == []


SHELL = [
    *SCRIPTS,
    ETC / "completions/flux-dws",
    *ETC.parent.glob("src/*.sh"),
    ETC.parent / "t/setup.sh",
]


@pytest.mark.parametrize("script", SHELL, ids=lambda path: path.name)
def test_shellcheck_accepts_the_scripts(script: Path) -> None:
    beside = os.path.dirname(sys.executable)
    shellcheck = shutil.which("shellcheck", path=f"{beside}:{os.environ['PATH']}")
    if shellcheck is None:
        pytest.skip("shellcheck is not installed")
    done = subprocess.run(
        [shellcheck, "-x", str(script)], stdout=subprocess.PIPE, text=True
    )
    assert done.stdout == ""


# The plugin of the commands


@pytest.fixture(scope="module")
def plugin() -> Iterator[Any]:
    """The plugin's file, with a stand-in for what it takes from Flux."""

    class CLIPlugin:
        pass

    base = types.ModuleType("flux.cli.plugin")
    base.CLIPlugin = CLIPlugin  # type: ignore[attr-defined]
    fakes = {
        "flux": types.ModuleType("flux"),
        "flux.cli": types.ModuleType("flux.cli"),
        "flux.cli.plugin": base,
    }
    patch = pytest.MonkeyPatch()
    for name, module in fakes.items():
        patch.setitem(sys.modules, name, module)
    path = ETC / "cli/plugins/rabbit.py"
    spec = importlib.util.spec_from_file_location("rabbit_cli_plugin", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    patch.undo()


def nodes(count: int) -> list[dict[str, Any]]:
    core = {"type": "core", "count": 1}
    slot = {"type": "slot", "count": 1, "label": "task", "with": [core]}
    return [{"type": "node", "count": count, "exclusive": True, "with": [slot]}]


@given(chassis=st.integers(1, 50), each=st.integers(1, 50))
def test_chassis_share_the_nodes_evenly(plugin: Any, chassis: int, each: int) -> None:
    (vertex,) = plugin.spread(nodes(chassis * each), chassis)
    assert (vertex["type"], vertex["count"]) == ("chassis", chassis)
    assert vertex["with"] == nodes(each)
    assert requested_nodes([vertex]) == chassis * each


@given(count=st.integers(1, 100), chassis=st.integers(2, 100))
def test_nodes_that_chassis_cannot_share_evenly_are_refused(
    plugin: Any, count: int, chassis: int
) -> None:
    if count % chassis == 0:
        count += 1
    with pytest.raises(ValueError, match=f"-N must be a multiple of {chassis}$"):
        plugin.spread(nodes(count), chassis)


def test_chassis_share_nothing_but_nodes(plugin: Any) -> None:
    (node,) = nodes(4)
    for resources in (node["with"], [node, node]):
        with pytest.raises(ValueError, match="needs a number of nodes"):
            plugin.spread(resources, 2)


@pytest.mark.parametrize("value", ["0", "-1", "x", "1.5", "1000000000", ""])
def test_the_number_of_chassis_is_a_number_from_1(plugin: Any, value: str) -> None:
    assert plugin.positive("8") == plugin.positive(8) == 8
    refusal = f"--rabbit-chassis={value}: must be a number from 1"
    with pytest.raises(ValueError, match=refusal):
        plugin.positive(value)


def test_directives_come_from_one_option(plugin: Any) -> None:
    jobspec = types.SimpleNamespace(attributes={"system": {"dw": XFS}})
    with pytest.raises(ValueError, match="--dw and -S dw: give only one of them"):
        plugin.RabbitPlugin.modify_jobspec(
            types.SimpleNamespace(), types.SimpleNamespace(dw=[XFS]), jobspec
        )


@given(chassis=st.integers(1, 50), each=st.integers(1, 50))
def test_storage_comes_from_the_chassis_of_its_nodes(
    plugin: Any, chassis: int, each: int
) -> None:
    spread = plugin.spread(nodes(chassis * each), chassis)
    (vertex,) = apply_breakdowns([breakdown(per_compute(10 * GIB))], spread)
    assert (vertex["type"], vertex["count"]) == ("chassis", chassis)
    (slot,) = vertex["with"]
    assert (slot["type"], slot["label"], slot["count"]) == ("slot", "rabbit", each)
    assert [(v["type"], v["count"]) for v in slot["with"]] == [("node", 1), ("ssd", 10)]
    assert requested_nodes([vertex]) == chassis * each


@pytest.mark.parametrize("attributes", [{}, {"system": {}}, {"system": 7}])
def test_a_job_without_directives_costs_one_look_at_its_attributes(
    plugin: Any, attributes: Any
) -> None:
    """There is no flux.Flux here to ask."""
    plugin.RabbitPlugin.check(
        types.SimpleNamespace(), types.SimpleNamespace(attributes=attributes)
    )


def test_all_jobs_are_checked_over_one_connection_until_it_fails(plugin: Any) -> None:
    jobspec = types.SimpleNamespace(attributes={"system": {"dw": "x"}}, jobspec={})
    answers: list[Any] = [None, None, OSError(), None, None]
    handles: list[Any] = []

    def check(handle: Any, jobspec: Any, userid: Any, columns: Any) -> None:
        handles.append(handle)
        answer = answers[len(handles) - 1]
        if answer is not None:
            raise answer

    checker = types.SimpleNamespace(
        handle=None, ingest=types.SimpleNamespace(check=check)
    )
    with pytest.MonkeyPatch().context() as patch:
        patch.setattr(plugin.flux, "Flux", object, raising=False)
        for _ in answers:
            plugin.RabbitPlugin.check(checker, jobspec)
    assert len({id(handle) for handle in handles[:3]}) == 1
    assert handles[2] is not handles[3] and handles[3] is handles[4]


# The plugin of flux-job-frobnicator


@pytest.fixture(scope="module")
def frobnicate() -> Iterator[Callable[[Any], Any]]:
    """What becomes of ``attributes.system``, with stand-ins for Flux."""

    class FrobnicatorPlugin:
        pass

    base = types.ModuleType("flux.job.frobnicator")
    # A module that is made here has no attributes that mypy knows.
    base.FrobnicatorPlugin = FrobnicatorPlugin  # type: ignore[attr-defined]
    patch = pytest.MonkeyPatch()
    for name in ("flux", "flux.job"):
        patch.setitem(sys.modules, name, types.ModuleType(name))
    patch.setitem(sys.modules, "flux.job.frobnicator", base)
    path = ETC / "frobnicator/dws.py"
    spec = importlib.util.spec_from_file_location("dws_frobnicator", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def run(system: Any) -> Any:
        jobspec = types.SimpleNamespace(attributes={"system": system})
        jobspec.setattr = lambda key, value: system.update({key.split(".")[1]: value})
        module.Frobnicator().frob(jobspec, 0, 0, 16)
        return system

    yield run
    patch.undo()


STORAGE_DEPENDENCY = {"scheme": "rabbit-storage", "value": "dws-jobtap.so"}


@pytest.mark.parametrize("dw", [XFS, [XFS], {}, 3, [""]])
def test_a_job_with_directives_needs_the_plugin(
    frobnicate: Callable[[Any], Any], dw: Any
) -> None:
    assert frobnicate({"dw": dw})["dependencies"] == [STORAGE_DEPENDENCY]


@pytest.mark.parametrize("system", [{}, {"dw": ""}, {"dw": " \n"}, {"dw": []}, "x"])
def test_a_job_without_directives_does_not_need_the_plugin(
    frobnicate: Callable[[Any], Any], system: Any
) -> None:
    assert frobnicate(copy.deepcopy(system)) == system
