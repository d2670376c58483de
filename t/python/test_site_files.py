# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What is in etc/: scripts, the plugin of the commands, examples.

With Flux itself they are tested in t/t2004-site-files.t.
"""

from __future__ import annotations

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
from types import MappingProxyType
from typing import Any, Callable, Iterator, Mapping, NamedTuple, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_k8s.config.table import Config
from flux_k8s.formats.directives import GIB
from flux_k8s.rules.directivebreakdown.resources import (
    apply_breakdowns,
    requested_nodes,
)
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
    """A compute node. ``wait`` is what ``flux job wait-event`` does, ``files`` are in
    the job's KVS directory (or its ``show``), ``config`` is that of Flux."""

    def __init__(
        self,
        folder: Path,
        eventlog: Sequence[str],
        wait: str = "exit 0",
        files: Mapping[str, str] = MappingProxyType({}),
        config: Mapping[str, str] = MappingProxyType({}),
    ):
        self.log = folder / "log"
        self.folder = folder
        (folder / "bin").mkdir(exist_ok=True)
        # systemd starts a unit only so often, but for reset-failed.
        self.program(
            "systemctl",
            f"""case "$1" in
            reset-failed) touch "{folder}/reset-$2"; exit ;;
            start) rm "{folder}/reset-$2" || exit ;;
            esac
            echo "$@" >>{self.log}""",
        )
        self.write("eventlog", *eventlog)
        for name, text in files.items():
            self.write(name, text)
        for key, text in config.items():
            self.write(f"config-rabbit.{key}", text)
        self.program(
            "flux",
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
            "job wait-event") echo "$@" >>{self.log}; cd {folder}; {wait} ;;
            "config get") cat {folder}/config-"$4" 2>/dev/null || echo "${{3#*=}}" ;;
            esac""",
        )
        self.environment = {
            "PATH": f"{folder}/bin:{os.environ['PATH']}",
            "FLUX_JOB_ID": "f1234",
            "RUNTIME_DIRECTORY": str(folder),
        }

    def write(self, name: str, *lines: str) -> None:
        (self.folder / name).write_text("".join(f"{line}\n" for line in lines))

    def program(self, name: str, text: str) -> None:
        self.write(f"bin/{name}", "#!/bin/sh", text)
        (self.folder / "bin" / name).chmod(0o755)

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


def event(name: str, context: str = "{}") -> str:
    return f'{{"timestamp":1700000000.25,"name":"{name}","context":{context}}}'


def units(*names: str) -> dict[str, str]:
    """As the service writes them to the job's KVS directory."""
    quoted = ",".join(f'"{name}"' for name in names)
    return {"rabbit_units": f"[{quoted}]"}


SUBMIT = event("submit")
DW_JOB = [SUBMIT, event("dependency-add", '{"description":"dws-create"}')]
MOUNTED = [*DW_JOB, event("dws_environment", '{"variables":{}}')]
FORGED = '{"name":"dependency-add","context":{"description":"dws-create"}}'
START, STOP = "start nnf-clientmount", "stop nnf-clientmount"
WAIT = "job wait-event --quiet {}--match-context=description={} f1234 {}-finish"
FOR_MOUNT = WAIT.format("--timeout=30m ", "dws-setup", "prolog")
FOR_5M = FOR_MOUNT.replace("30m", "5m")
FOR_END = FOR_MOUNT.replace("30m", "10s")
FOR_EPILOG = WAIT.format("", "dws-epilog", "epilog")
PROLOG, EPILOG = [START, FOR_MOUNT, STOP], [START, FOR_EPILOG, STOP]
LATE = "storage is not mounted after 5m (rabbit.prolog_timeout)"
RAISE = f"job raise --severity=0 --type=dws f1234 {LATE}"
DAEMONS = {"daemons": r'{"a":{"unit":"a.service"},"b":{"unit":"b@x\\x2dy.service"}}'}
A_B = units("a.service", r"b@x\\x2dy.service")
B = r"b@x\x2dy.service"


def kept_for(nodes: str) -> dict[str, str]:
    return {"rabbit_kept_for": json.dumps({"nodes": nodes, "at": 1.5, "until": "x"})}


class Run(NamedTuple):
    script: str
    eventlog: Sequence[str]
    done: Sequence[str]
    wait: str = "exit 0"
    files: Mapping[str, str] = MappingProxyType({})
    config: Mapping[str, str] = MappingProxyType({})
    gone: str = ""
    """Flux ends meanwhile."""
    said: str = ""
    """Why it fails."""


def late(state: str, ranks: str, *done: str, said: str = "") -> Run:
    """Storage is not mounted in time. dws-setup ends if the job is failed."""
    shown = json.dumps({"state": state, "directives": ['#DW x "state": "PreRun"']})
    files = {"R": ranks, "show": shown}
    steps = [START, FOR_5M, STOP, *done]
    timeout = {"prolog_timeout": "5m"}
    return Run("prolog", DW_JOB, steps, "test -e failed", files, timeout, said=said)


RUNS = {
    "no directives, prolog": Run("prolog", [SUBMIT, event("memo", FORGED)], []),
    "no directives, epilog": Run("epilog", [SUBMIT, event("memo", FORGED)], []),
    "until storage is mounted": Run("prolog", MOUNTED, PROLOG),
    "until storage is gone": Run("epilog", MOUNTED, EPILOG),
    **{
        f"kept on {nodes}": Run("epilog", MOUNTED, EPILOG[:2], files=kept_for(nodes))
        for nodes in ("compute-03", "compute-[02-03]")
    },
    "kept elsewhere": Run("epilog", MOUNTED, EPILOG, files=kept_for("compute-01")),
    # not mounted in time
    **{
        f"{ranks}, PreRun": late("PreRun", ranks, FOR_END, said=LATE)
        for ranks in ("2", "2-5", "2,4", "1-5")
    },
    **{
        f"{ranks}, DataIn": late("DataIn", ranks, RAISE, FOR_END)
        for ranks in ("2", "2-5", "2,4")
    },
    "others leave that to the first": late("DataIn", "1-5", FOR_END, said=LATE),
    "mounted at the last moment": Run(
        "prolog",
        MOUNTED,
        [*PROLOG, FOR_END, "start a.service"],
        wait="test -e again || { touch again; exit 1; }",
        files={"R": "2", "show": '{"state": "PreRun"}', **units("a.service")},
        config=DAEMONS,
    ),
    "Flux ends": Run(
        "prolog",
        DW_JOB,
        PROLOG,
        wait="exit 1",
        gone="1",
        said="Flux ended before storage was mounted",
    ),
    # units
    "units are started": Run(
        "prolog",
        MOUNTED,
        [*PROLOG, "start a.service", f"start {B}"],
        files=A_B,
        config=DAEMONS,
    ),
    "units are stopped first": Run(
        "epilog",
        MOUNTED,
        ["stop a.service", f"stop {B}", *EPILOG],
        files=A_B,
        config=DAEMONS,
    ),
    **{
        f"not configured: {unit}": Run(
            "prolog", MOUNTED, PROLOG, files=units(unit), config=DAEMONS
        )
        for unit in ("evil.service", 'x\\",\\"a.service', "a.serviceX")
    },
    **{
        f"a memo names a unit, {script}": Run(
            script,
            [*MOUNTED, event("memo", '{"rabbit_units":["a.service"]}')],
            done,
            config=DAEMONS,
        )
        for script, done in (("prolog", PROLOG), ("epilog", EPILOG))
    },
    "a job that has failed": Run(
        "prolog", DW_JOB, PROLOG, files=units("a.service"), config=DAEMONS
    ),
}


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_a_script_runs_services_as_the_storage_of_its_job_needs(
    tmp_path: Path, run: Run
) -> None:
    node = Node(tmp_path, run.eventlog, run.wait, run.files, run.config)
    node.environment["FLUX_IS_GONE"] = run.gone
    expected = (1, f"dws: f1234: {run.said}\n") if run.said else (0, "")
    assert node.run(run.script) == expected
    assert node.done == run.done


def test_a_module_that_does_not_answer_does_not_hold_the_prolog_up(
    tmp_path: Path,
) -> None:
    """The other nodes wait for ten seconds."""
    run = late("", "2-5")
    node = Node(tmp_path, run.eventlog, run.wait, run.files, run.config)
    (tmp_path / "show").unlink()
    os.mkfifo(tmp_path / "show")
    assert node.run("prolog") == (0, "")
    assert RAISE in node.done


def ends_in_a_memo(node: Node) -> None:
    node.write("eventlog", SUBMIT, event("memo", '{"x":"much')[:-1])
    flux = node.folder / "bin/flux"
    flux.write_text(flux.read_text().replace("/eventlog ;;", "/eventlog; exit 137 ;;"))


def without_flux(node: Node) -> None:
    bin = node.folder / "bin"
    (bin / "flux").unlink()
    for program in ("basename", "dirname"):
        (bin / program).symlink_to(str(shutil.which(program)))
    node.environment["PATH"] = str(bin)


NO_ID = "dws: FLUX_JOB_ID is not set: see allowed-environment of flux-imp"
NOT_READ = "dws: f1234: cannot read the eventlog of the job"


@pytest.mark.parametrize("name", ["prolog", "epilog"])
@pytest.mark.parametrize(
    ("breaks", "said"),
    [
        (
            lambda node: (node.folder / "eventlog").unlink(),
            f"{NOT_READ}, as root: see access.allow-root-owner",
        ),
        (
            lambda node: node.program("grep", "kill -KILL $$"),  # no memory left
            "dws: f1234: cannot search the eventlog of the job",
        ),
        (ends_in_a_memo, NOT_READ),
        (without_flux, "dws: f1234: no flux on PATH="),
        (lambda node: node.environment.pop("FLUX_JOB_ID"), NO_ID),
        (lambda node: node.environment.update(FLUX_JOB_ID=""), NO_ID),
    ],
)
def test_a_script_that_cannot_know_whether_there_is_storage_fails(
    tmp_path: Path, name: str, breaks: Callable[[Node], object], said: str
) -> None:
    node = Node(tmp_path, DW_JOB)
    breaks(node)
    status, error = node.run(name)
    assert status == 1 and error.splitlines()[-1].startswith(said)


@pytest.mark.parametrize("script", ["prolog", "epilog"])
def test_what_users_post_to_their_jobs_does_not_hang_a_script(
    tmp_path: Path, script: str
) -> None:
    """It took the square of the length: hours, for this one."""
    note = event("exception", '{"type":"x","severity":7,"note":"' + 500000 * "f" + '"}')
    assert Node(tmp_path, [*DW_JOB, note, note]).run(script) == (0, "")


def await_wait(process: subprocess.Popen[str]) -> None:
    """Return when the script waits for an event."""
    assert process.stdout is not None
    assert process.stdout.readline() == "waits\n"


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
    # (bash may add that a process of its own was terminated.)
    said = [line for line in error.splitlines() if line.startswith("dws: ")]
    assert len(said) == 1 and said[0].startswith("dws: f1234: ")
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
    assert second.done == PROLOG[:2]
    (tmp_path / "goes").write_text("\n")
    process.communicate(timeout=PATIENCE)
    assert first.done == PROLOG


def test_a_unit_is_not_stopped_under_another_job(tmp_path: Path) -> None:
    jobs = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        node = Node(tmp_path / name, MOUNTED, files=units("a.service"), config=DAEMONS)
        node.environment.update(RUNTIME_DIRECTORY=str(tmp_path), FLUX_JOB_ID=name)
        jobs.append(node)
    first, second = jobs
    assert first.run("prolog") == second.run("prolog") == (0, "")
    assert second.run("epilog") == (0, "")
    assert "stop a.service" not in second.done
    assert first.run("epilog") == (0, "")
    assert "stop a.service" in first.done


SHELL = [
    *SCRIPTS,
    ETC / "completions/flux-dws",
    *ETC.parent.glob("src/*.sh"),
    *ETC.parent.glob("t/*.sh"),
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


@given(count=st.integers(1, 100), chassis=st.integers(2, 100))
def test_nodes_that_chassis_cannot_share_evenly_are_refused(
    plugin: Any, count: int, chassis: int
) -> None:
    if count % chassis == 0:
        count += 1
    with pytest.raises(ValueError, match=f"-N must be a multiple of {chassis}$"):
        plugin.spread(nodes(count), chassis)


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
