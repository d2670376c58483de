# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""One batch job on a real Flux: a test instance of one broker for each node,
on this machine, with the plugins and the module as they are installed."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import sysconfig
import threading
from dataclasses import dataclass
from functools import partial
from typing import Optional, Sequence

import flux_k8s
from flux_k8s.formats import hostlist
from flux_k8s.formats.jobid import f58
from flux_k8s.ports import WORKFLOW, Json
from rabbitsim.cli.outcome import Outcome
from rabbitsim.cli.report import JobProgress, Report, WorkflowProgress
from rabbitsim.cli.save import MOVEMENTS, read_kvs
from rabbitsim.cli.timeline import Timeline
from rabbitsim.clusters import SystemKube
from rabbitsim.flux.events import Event
from rabbitsim.flux.job import Job
from rabbitsim.flux.script import ScriptError, read_directives
from rabbitsim.flux.transitions import apply
from rabbitsim.loop import RealLoop
from rabbitsim.signals import signals_held
from rabbitsim.system import hosts_of, mapping_of
from sssjob.from_flux.convert import KEYS

MAX_NODES = 16
"""More brokers than this on one machine are no pleasure."""

PATIENCE = 30.0
GRACE = 10.0
"""Seconds from the request to end until brokers are killed."""

DRIVER = f"""\
exec 3>$1
save=$2
shift 2
flux module remove --force dws
flux module remove sched-simple
if flux module load sched-rabbit && flux module load dws; then
    status=2
    if id=$(flux batch "$@"); then
        echo "job $(flux job id --to=dec $id) $FLUX_URI" >&3
        flux job eventlog --follow --format=json $id >&3 &
        flux job attach $id 2>&1
        status=$?
        wait
        if test -n "$save"; then
            for key in {" ".join(KEYS)}; do
                flux job info --original $id $key >$save/$key 2>&- || rm $save/$key
            done
        fi
    fi
    flux module remove dws
    flux module remove sched-rabbit
fi
echo "status ${{status:-1}}" >&3
"""
"""What runs in the instance. Where flux-dws is installed into Flux, the instance has
loaded the module already, with other arguments. What happens is told through a FIFO:
which job it is, its eventlog, its exit status. What the job left behind is saved."""


@dataclass(frozen=True)
class Installation:
    """A real Flux, and our parts where it can load them."""

    flux: str
    version: str
    prefix: pathlib.Path

    @property
    def jobtap(self) -> pathlib.Path:
        return self.prefix / "lib/flux/job-manager/plugins/dws-jobtap.so"

    @property
    def modules(self) -> pathlib.Path:
        return self.prefix / "lib/flux/modules"

    @property
    def shell_plugins(self) -> pathlib.Path:
        return self.prefix / "lib/flux/shell/plugins"

    def missing(self) -> Optional[str]:
        """The reason why this Flux cannot be used, or None."""
        for path in (self.jobtap, self.modules / "dws.py", self.shell_plugins):
            if not path.exists():
                return f"{path} is missing (pip install . puts it there)"
        ours = f"{sys.version_info[0]}.{sys.version_info[1]}"
        code = "import sys; print('%d.%d' % sys.version_info[:2])"
        theirs = _ask(self.flux, "python", "-c", code)
        if theirs != ours:
            return f"its Python is {theirs or 'not there'}, this one is {ours}"
        return None


def find_flux() -> Optional[Installation]:
    """The Flux on PATH, or None."""
    flux = shutil.which("flux")
    if flux is None:
        return None
    words = _ask(flux, "version").split()
    version = words[words.index("commands:") + 1] if "commands:" in words else "?"
    return Installation(flux, version, pathlib.Path(sys.prefix))


def _ask(*command: str) -> str:
    result = subprocess.run(command, capture_output=True, text=True)
    return result.stdout.strip()


class RealSession:
    """Runs a job on a real Flux."""

    def __init__(
        self,
        installation: Installation,
        kube: SystemKube,
        scratch: pathlib.Path,
        report: Report,
        save: bool,
    ) -> None:
        """
        Args:
            save: the job is to be saved, with its data movements.
        """
        self._installation = installation
        self._topology = kube.topology
        self._kube = kube
        self._scratch = scratch
        self._report = report
        self._saved = scratch / "saved" if save else None
        self._loop = RealLoop()
        self._progress = JobProgress(report)
        self._workflows = WorkflowProgress(report)
        self._timeline = Timeline(self._loop)
        self._job: Optional[Job] = None
        self._events = scratch / "events"
        self._readers: list[threading.Thread] = []
        self._uri = ""
        self._status = 1
        self._process: Optional[subprocess.Popen[bytes]] = None
        kube.watch(WORKFLOW, self._changed)

    @property
    def name(self) -> str:
        return f"real Flux {self._installation.version} ({self._installation.flux})"

    def run(self, script: pathlib.Path, args: Sequence[str]) -> Outcome:
        """Run a script until its job is inactive and its storage is gone."""
        if self._events.exists():
            self._events.unlink()
        os.mkfifo(self._events)
        if self._saved is not None:
            self._saved.mkdir(exist_ok=True)
        saved = str(self._saved or "")
        command = self._command([str(self._events), saved, *_output_options(script)])
        with signals_held():
            self._process = subprocess.Popen(
                [*command, str(script), *args],
                env=self._environment(),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        done: list[int] = []
        for target in (partial(self._read_output, done), self._read_events):
            thread = threading.Thread(target=target, daemon=True)
            thread.start()
            self._readers.append(thread)
        try:
            self._wait(done)
        finally:
            self._timeline.end()
        if self._job is None:
            return Outcome(self._status, [], None)
        self._loop.run(lambda: self._workflows.count == 0, PATIENCE)
        listed = [event.as_json() for event in self._job.events]
        kvs = {} if self._saved is None else read_kvs(self._saved)
        jobid = f58(self._job.id)
        return Outcome(self._status, listed, self._workflows.count, jobid, kvs)

    def close(self) -> None:
        """End the instance, if it is still there: all of its brokers."""
        process = self._process
        if process is not None and process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(GRACE)
            # A broker may outlive flux-start, waiting for a job that cannot end.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if self._readers:
            # Opening a FIFO waits for its other end, which may never have come.
            os.close(os.open(self._events, os.O_RDWR | os.O_NONBLOCK))
        for thread in self._readers:
            thread.join()
        self._loop.close()

    def _wait(self, done: list[int]) -> None:
        """Wait for the end of the instance; an interrupt cancels the job."""
        if not self._loop.run_interruptible(lambda: bool(done)):
            if self._job is None:
                raise KeyboardInterrupt
            self._report.line(f"cancelling {self._job}")
            subprocess.run(
                [self._installation.flux, "cancel", str(self._job.id)],
                env={**os.environ, "FLUX_URI": self._uri},
            )
            self._loop.run(lambda: bool(done))

    def _command(self, args: list[str]) -> list[str]:
        hosts = hosts_of(self._topology)
        flux = self._installation.flux
        shell = _ask(flux, "config", "builtin", "shell_pluginpath")
        return [
            flux,
            "start",
            f"--test-size={len(hosts)}",
            f"--test-hosts={hostlist.encode(hosts)}",
            f"--config-path={self._write_config(hosts)}",
            f"-Sconf.shell_pluginpath={shell}:{self._installation.shell_plugins}",
            "sh",
            str(self._write_driver()),
            *args,
        ]

    def _write_driver(self) -> pathlib.Path:
        path = self._scratch / "driver.sh"
        path.write_text(DRIVER, encoding="utf-8")
        return path

    def _write_config(self, hosts: list[str]) -> pathlib.Path:
        """The instance's configuration. TOML strings are like JSON's."""
        mapping = self._scratch / "mapping.json"
        mapping.write_text(json.dumps(mapping_of(self._topology).to_json()))
        folder = self._scratch / "conf"
        folder.mkdir(exist_ok=True)
        lines = ["[rabbit]"]
        if self._kube.kubeconfig is not None:
            lines.append(f"kubeconfig = {json.dumps(str(self._kube.kubeconfig))}")
        lines += [
            f"mapping = {json.dumps(str(mapping))}",
            f"save_datamovements = {MOVEMENTS if self._saved else 0}",
            "[job-manager]",
            f"plugins = [{{ load = {json.dumps(str(self._installation.jobtap))} }}]",
            # Until the driver has one loaded that knows Rabbits.
            "[modules]",
            'alternatives.sched = "sched-simple"',
            "[resource]",
            "noverify = true",
            "[[resource.config]]",
            f"hosts = {json.dumps(hostlist.encode(hosts))}",
            f'cores = "0-{(os.cpu_count() or 1) - 1}"',
        ]
        (folder / "rabbitsim.toml").write_text("\n".join(lines) + "\n")
        return folder

    def _environment(self) -> dict[str, str]:
        package = pathlib.Path(flux_k8s.__file__).parents[1]
        path = dict.fromkeys([str(package), sysconfig.get_path("purelib")])
        return {
            **os.environ,
            "FLUX_MODULE_PATH_PREPEND": str(self._installation.modules),
            "FLUX_PYTHONPATH_PREPEND": ":".join(path),
        }

    # Threads that read; the rest is on the loop's thread

    def _read_output(self, done: list[int]) -> None:
        process = self._process
        assert process is not None and process.stdout is not None
        for line in iter(process.stdout.readline, b""):
            self._loop.call_soon_threadsafe(partial(self._output, line))
        status = process.wait()
        self._loop.call_soon_threadsafe(partial(done.append, status))

    def _output(self, line: bytes) -> None:
        """A line of the job, or of what failed before there is one."""
        if self._timeline.begun:
            show = partial(self._report.output, line, "stdout")
            self._timeline.put(self._loop.now(), show)
        else:
            self._report.output(line, "stdout")

    def _read_events(self) -> None:
        with open(self._events, encoding="utf-8") as file:
            for line in file:
                self._loop.call_soon_threadsafe(partial(self._line, line))

    def _line(self, line: str) -> None:
        """A line from the driver: an event, or what begins with a word."""
        if line.startswith("{"):
            self._event(json.loads(line))
            return
        word, *values = line.split()
        if word == "job":
            self._job = Job(int(values[0]), 0, 16, 0, {}, {}, 0.0)
            self._uri = values[1]
        elif word == "status":
            self._status = int(values[0])

    def _event(self, entry: Json) -> None:
        assert self._job is not None
        event = Event(entry["timestamp"], entry["name"], entry.get("context"))
        if event.name == "submit":
            self._timeline.begin()
            begin = partial(self._report.begin, event.timestamp)
            self._timeline.put(event.timestamp, begin)
        before = self._job.state
        self._job.events.append(event)
        apply(self._job, event)
        change = (before.name, self._job.state.name)
        show = partial(self._progress.event, entry, *change)
        self._timeline.put(event.timestamp, show)

    def _changed(self, type: str, workflow: Json) -> None:
        """On Kubernetes' thread: a Workflow changed."""
        now = self._loop.now()
        show = partial(self._workflows.event, now, type, workflow)
        self._loop.call_soon_threadsafe(partial(self._timeline.put, now, show))


def _output_options(script: pathlib.Path) -> list[str]:
    """What makes ``flux job attach`` show the job's output, unless the script
    names a file for it. A bad script is for ``flux batch`` to refuse."""
    try:
        directives = read_directives(script.read_text(encoding="utf-8"), str(script))
    except (ScriptError, UnicodeDecodeError):
        return []
    args = [arg for directive in directives for arg in directive.args]
    if any(arg.partition("=")[0] == "--output" for arg in args):
        return []
    return ["-o", "output.stdout.type=kvs"]
