# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The output of ``run`` and ``demo``: one line for each transition."""

from __future__ import annotations

import os
import sys
from itertools import takewhile
from typing import Any, Mapping, Optional

from flux_k8s.formats.jobid import jobid_of_workflow
from flux_k8s.objects.workflowstate import STATES, State
from flux_k8s.ports import Json
from flux_k8s.text import printable

_STYLES = {"dim": "2", "bold": "1", "green": "32", "red": "31", "cyan": "36"}


class Report:
    """Prints to stdout, in colours when that is a terminal."""

    def __init__(self, verbose: bool) -> None:
        self.verbose = verbose
        self._colours = sys.stdout.isatty() and "NO_COLOR" not in os.environ
        self._start: Optional[float] = None
        self._line_open = False

    def _style(self, style: str, text: str) -> str:
        """``text`` without control characters but those of the style."""
        text = printable(text)
        if not self._colours or not text:
            return text
        return f"\033[{_STYLES[style]}m{text}\033[0m"

    def line(self, text: str = "") -> None:
        self._line(printable(text))

    def _line(self, text: str) -> None:
        if self._line_open:
            text = "\n" + text
            self._line_open = False
        print(text, flush=True)

    def heading(self, text: str) -> None:
        self.line()
        self.title(text)

    def title(self, text: str) -> None:
        """A heading at the top."""
        self._line(self._style("bold", text))

    def fact(self, name: str, value: str) -> None:
        self.line(f"  {name:<12}{value}")

    def begin(self, now: float) -> None:
        """The job is submitted: time counts from ``now`` on."""
        self._start = now
        self.line()
        self._line(self._style("dim", f"{'time':>8} {'took':>8}  {'who':<9} what"))

    def transition(
        self, now: float, who: str, what: str, took: Optional[float], bad: bool = False
    ) -> None:
        """One transition. ``took``: seconds that it took, if that is known."""
        since = f"{now - (self._start or now):7.3f}s"
        lasted = "" if took is None else f"{took:7.3f}s"
        colour = "red" if bad else "green" if who == "job" else "cyan"
        name = self._style(colour, f"{who:<9}")
        lasted = self._style("bold", f"{lasted:>8}")
        self._line(f"{since:>8} {lasted}  {name} {printable(what)}")

    def detail(self, now: float, who: str, text: str) -> None:
        """Something for those who want to see it all."""
        if self.verbose:
            since = f"{now - (self._start or now):7.3f}s"
            self._line(self._style("dim", f"{since:>8} {'':>8}  {who:<9} {text}"))

    def output(self, data: bytes, stream: str) -> None:
        """Print output of the job unchanged."""
        target = sys.stderr if stream == "stderr" else sys.stdout
        target.flush()
        target.buffer.write(data)
        target.flush()
        if stream != "stderr":
            self._line_open = not data.endswith(b"\n")


class JobProgress:
    """Follows the job's eventlog and tells of each change of state."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._since: Optional[float] = None

    def event(self, event: Json, before: str, after: str) -> None:
        """An event was posted; ``before`` and ``after`` are the job's state."""
        now, name = float(event["timestamp"]), str(event["name"])
        context: Mapping[str, Any] = event.get("context") or {}
        if self._since is None:
            self._since = now
        if name == "exception":
            text = f"exception {context['type']}: {context['note']}".rstrip(": ")
            fatal = context["severity"] == 0
            self._report.transition(now, "job", text, None, bad=fatal)
        else:
            self._report.detail(now, "event", _describe(name, context))
        if before != after:
            took, self._since = now - self._since, now
            self._report.transition(now, "job", f"{before} → {after}", took)


def _describe(name: str, context: Mapping[str, Any]) -> str:
    text = " ".join(f"{key}={value}" for key, value in context.items())
    text = f"{name} {text}".rstrip()
    return text if len(text) <= 100 else text[:97] + "..."


def _passed(wanted: str, status: Json) -> list[str]:
    """The states before the desired one that a Workflow has completed: all, but that
    Teardown may be requested before the others are complete."""
    found = []
    for state in takewhile(lambda state: state != wanted, STATES):
        drivers = [
            driver.get("completed")
            for driver in status.get("drivers") or []
            if driver.get("watchState") == state
        ]
        if wanted != State.Teardown.name or (drivers and all(drivers)):
            found.append(state)
    return found


class WorkflowProgress:
    """Follows the Workflows of jobs. Of several changes that come at once only the last
    may be shown: a state that was passed meanwhile is told late."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._begun: dict[str, tuple[str, float]] = {}
        self._told: dict[str, tuple[str, str]] = {}
        self._completed: dict[str, set[str]] = {}
        self._names: dict[str, None] = {}

    @property
    def count(self) -> int:
        """The number of Workflows."""
        return len(self._names)

    def event(self, now: float, type: str, workflow: Json) -> None:
        name = workflow["metadata"]["name"]
        if jobid_of_workflow(name) is None:
            return  # a cluster may have others
        if type == "DELETED":
            self._names.pop(name, None)
            self._completed.pop(name, None)
            self._report.transition(now, "workflow", "deleted", None)
            return
        self._names[name] = None
        wanted = workflow["spec"]["desiredState"]
        status = workflow.get("status") or {}
        completed = self._completed.setdefault(name, set())
        before, begun = self._begun.get(name, ("", now))
        if before != wanted:
            for passed in _passed(wanted, status):
                if passed not in completed:
                    completed.add(passed)
                    took = now - begun if passed == before else None
                    text = f"{passed} completed"
                    self._report.transition(now, "workflow", text, took)
            self._begun[name] = (wanted, now)
        state, health = status.get("state", ""), status.get("status", "")
        if state != wanted or self._told.get(name) == (state, health):
            return
        took = now - self._begun[name][1]
        if status.get("ready"):
            completed.add(state)
            self._report.transition(now, "workflow", f"{state} completed", took)
        elif health in ("Error", "TransientCondition"):
            text = f"{state} {health}: {status.get('message', '')}"
            self._report.transition(now, "workflow", text, took, bad=True)
        else:
            return
        self._told[name] = (state, health)
