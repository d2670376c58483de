# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The compiled job shell plugin."""

from __future__ import annotations

import errno
from typing import Any, Iterator, Mapping, Optional

import pytest

from rabbitsim.shellplugin import ShellPluginError, run_shell, run_shell_init

START = {"timestamp": 2.0, "name": "start"}


def environment(variables: Any, **more: Any) -> Mapping[str, Any]:
    context = {"variables": variables, **more}
    return {"timestamp": 1.0, "name": "dws_environment", "context": context}


class Shell:
    def __init__(self, system: dict[str, Any], *events: Any) -> None:
        self.jobspec = {"attributes": {"system": system}}
        self.info: dict[str, Any] = {
            "jobid": 7,
            "rank": 0,
            "ntasks": 1,
            "options": {},
            "jobspec": self.jobspec,
        }
        self.events = events
        self.read = 0
        self.kvs: dict[str, str] = {}
        self.kvs_of_leader: dict[str, str] = {}
        self.later: Optional[list[Any]] = []
        self.messages: list[str] = []
        self.environment: dict[str, str] = {}

    def eventlog(self, jobid: int) -> Iterator[Mapping[str, Any]]:
        assert jobid == 7
        for event in self.events:
            self.read += 1
            if isinstance(event, Exception):
                raise event
            yield event

    def kvs_lookup(self, jobid: int, key: str, leader: bool = False) -> str:
        assert jobid == 7
        kvs = self.kvs_of_leader if leader else self.kvs
        if key not in kvs:
            raise OSError(errno.ENOENT, "key not found")
        return kvs[key]

    def posted(self, jobid: int) -> list[Any]:
        assert jobid == 7
        if self.later is None:
            raise OSError(errno.EPERM, "guests can only access their own jobs")
        return [*filter(None, self.events), *self.later]

    def setenv(self, name: str, value: str) -> None:
        self.environment[name] = value

    def log(self, level: int, message: str) -> None:
        self.messages.append(message)


def test_the_variables_are_set_as_they_are() -> None:
    variables = {"DW_JOB_a": "/mnt/%s %n", "EMPTY": "", "UTF8": "é"}
    shell = Shell({"dw": "#DW"}, {"name": "submit"}, environment(variables), START)
    run_shell_init(shell)
    assert shell.environment == variables
    assert shell.read == 2


@pytest.mark.parametrize("system", [{}, {"dw": ""}, {"dw": " \n"}, {"dw": []}])
def test_a_job_without_directives_reads_no_eventlog(system: dict[str, Any]) -> None:
    shell = Shell(system, environment({"A": "b"}))
    run_shell_init(shell)
    assert shell.environment == {} and shell.read == 0


@pytest.mark.parametrize("dw", ["#DW", ["#DW"], "preset", [""], 7])
@pytest.mark.parametrize("events", [[START, environment({"A": "b"})], []])
def test_a_job_that_has_no_storage_does_not_run(dw: Any, events: list[Any]) -> None:
    shell = Shell({"dw": dw}, *events)
    with pytest.raises(ShellPluginError, match="dws-jobtap.so is not loaded"):
        run_shell_init(shell)
    assert shell.environment == {}


def test_the_workflow_token_is_read_from_the_kvs() -> None:
    shell = Shell({"dw": "#DW"}, environment({"A": "b"}), START)
    shell.kvs["dws_token"] = "a %s secret"
    run_shell_init(shell)
    assert shell.environment == {"A": "b", "DW_WORKFLOW_TOKEN": "a %s secret"}
    assert not any("secret" in message for message in shell.messages)


def test_the_job_manager_is_asked_when_the_event_does_not_come() -> None:
    """flux-core's kvs module misses a commit now and then."""
    shell = Shell({"dw": "#DW"}, {"name": "submit"}, None)
    shell.later = [environment({"DW_JOB_a": "/mnt"}), START]
    run_shell_init(shell)
    assert shell.environment == {"DW_JOB_a": "/mnt"}


def test_the_token_is_not_missed_where_the_event_was() -> None:
    shell = Shell({"dw": "#DW"}, {"name": "submit"}, None)
    shell.later = [environment({}), START]
    shell.kvs_of_leader["dws_token"] = "secret"
    run_shell_init(shell)
    assert shell.environment == {"DW_WORKFLOW_TOKEN": "secret"}


def test_a_job_of_which_the_job_manager_knows_no_storage_does_not_run() -> None:
    shell = Shell({"dw": "#DW"}, {"name": "submit"}, None)
    with pytest.raises(ShellPluginError, match="has #DW directives but no storage"):
        run_shell_init(shell)


def test_a_job_does_not_run_when_the_job_manager_does_not_answer() -> None:
    shell = Shell({"dw": "#DW"}, {"name": "submit"}, None)
    shell.later = None
    with pytest.raises(ShellPluginError, match="error reading the job's eventlog"):
        run_shell_init(shell)


COPIES = "$DW_JOB_a/%s to /lustre"
WAITS = f"copy_out copies {COPIES}: flux dws wait \u01928 waits for that"
AT_THE_END = [f"dws_environment: now, after the tasks, {WAITS}"]
AT_THE_BEGIN = [f"dws_environment: after the job, {WAITS}"]


def copying(rank: int = 0, **options: Any) -> Shell:
    shell = Shell({"dw": "#DW"}, environment({}, copy_out=COPIES), START)
    shell.info.update(rank=rank, options=options)
    return shell


def file(name: str = "out") -> dict[str, str]:
    return {"type": "file", "path": name}


@pytest.mark.parametrize(
    "options,messages",
    [
        ({}, AT_THE_END),
        ({"output": {"stdout": file(), "stderr": {"type": "kvs"}}}, AT_THE_END),
        ({"output": {"stdout": {"type": "kvs"}}, "pty": 1}, AT_THE_END),
        ({"pty": {"capture": 1}}, AT_THE_END),
        ({"pty": {"interactive": 1}}, AT_THE_BEGIN),
        ({"output": {"stdout": file()}}, []),
        ({"output": {"stdout": file(), "stderr": file("err")}}, []),
        ({"output": {"stderr": {"path": "err"}}, "pty": {"interactive": 1}}, []),
    ],
)
def test_the_shell_logs_copies_after_the_tasks_where_flux_job_attach_shows_them(
    options: dict[str, Any], messages: list[str]
) -> None:
    shell = copying(**options)
    run_shell(shell)
    assert shell.messages == messages


def test_one_shell_says_what_is_copied() -> None:
    shell = copying(rank=1)
    run_shell(shell)
    assert shell.messages == []


@pytest.mark.parametrize(
    "type,severity,messages",
    [
        ("dws", 0, []),
        ("dws", 1, AT_THE_END),
        ("cancel", 0, AT_THE_END),
        ("timeout", 0, AT_THE_END),
    ],
)
def test_only_the_data_of_a_job_whose_storage_has_failed_is_not_copied(
    type: str, severity: int, messages: list[str]
) -> None:
    shell = copying()
    context = {"type": type, "severity": severity, "note": ""}
    event = {"timestamp": 3.0, "name": "exception", "context": context}
    shell.later = [event]
    run_shell(shell)
    assert shell.messages == messages


def test_nothing_is_said_of_copies_if_the_eventlog_cannot_be_read() -> None:
    shell = copying()
    shell.later = None
    run_shell(shell)
    assert shell.messages == []


def test_a_token_that_cannot_be_read_ends_the_shell() -> None:
    class Denied(Shell):
        def kvs_lookup(self, jobid: int, key: str, leader: bool = False) -> str:
            raise OSError(errno.EPERM, "access is restricted")

    with pytest.raises(ShellPluginError, match="error reading the workflow token"):
        run_shell_init(Denied({"dw": "#DW"}, environment({"A": "b"}), START))


@pytest.mark.parametrize(
    "event,problem",
    [
        (OSError(errno.EPERM, ""), "error reading the job's eventlog"),
        (environment(["A"]), "event is malformed"),
        ({"name": "dws_environment"}, "event is malformed"),
        (environment({}, copy_out=1), "event is malformed"),
        (environment({"A": 1}), "variable A of the dws_environment event is not"),
        ({"event": 1}, "malformed entry"),
    ],
)
def test_a_malformed_event_ends_the_shell(event: Any, problem: str) -> None:
    with pytest.raises(ShellPluginError, match=problem):
        run_shell_init(Shell({"dw": "#DW"}, event))
