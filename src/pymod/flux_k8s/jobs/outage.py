# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Whether Kubernetes is within reach, by its answers and watch events."""

from __future__ import annotations

import syslog
from collections import deque
from typing import Callable, Optional

from flux_k8s.config.context import Context
from flux_k8s.control.kubecalls import Watched
from flux_k8s.objects.systemstatus import NAME
from flux_k8s.ports import SERVERS, STORAGE, SYSTEMSTATUS, WORKFLOW, Kind, Timer
from flux_k8s.reasons import Reason

PATIENCE = 10.0
"""Seconds without an answer until that is reported."""

SILENCE = "no answer yet"

MOST_REASONS = 4
"""The reasons of an outage that are reported to jobs, at most. Errors may alternate,
and have texts of any kind: each is a memo of each job."""

LISTED_FIRST = frozenset({WORKFLOW, STORAGE, SERVERS})
"""The objects that have to be known before anything is done for a job."""


QUIET = 10.0
"""Seconds from the start of a service in which no time limit is over, but that of a job
that waits for storage in its prolog: clocks may have been set meanwhile, and the nodes
and DWS may have been away with the service."""

CLOCKS_DIFFER = 1.0
"""Seconds by which the clocks of two machines may differ, unless one is wrong."""

REMEMBERED = 1000
"""The outages that are remembered. Limits are shorter than so many of them."""


class Outages:
    """The outages of Kubernetes that this service has seen: no time limit runs in one.

    Attributes:
        quiet_until: the UNIX time before which no time limit is over.
        since: when the present outage has begun (UNIX time), or None.
    """

    def __init__(self, quiet_until: float = 0.0) -> None:
        self.quiet_until = quiet_until
        self.since: Optional[float] = None
        self._over: deque[tuple[float, float]] = deque(maxlen=REMEMBERED)

    def begin(self, now: float) -> None:
        """An outage begins, unless there is one already."""
        if self.since is None:
            self.since = now

    def end(self, now: float) -> None:
        """The outage, if there is one, is over."""
        if self.since is not None:
            self._over.append((self.since, now))
            self.since = None

    def deadline(self, begin: float, limit: float, now: float) -> float:
        """When (UNIX time) a limit of ``limit`` seconds is over that runs since
        ``begin`` (UNIX time), as far as is known ``now``."""
        out = sum(max(0.0, end - max(begin, start)) for start, end in self._over)
        if self.since is not None:
            out += max(0.0, now - max(begin, self.since))
        return max(begin + limit + out, self.quiet_until)


class Outage:
    """An outage of Kubernetes, which concerns all jobs.

    An outage begins when the watch of Workflows is lost, or another one of
    ``LISTED_FIRST`` before it has listed all, or when Kubernetes sends nothing at all
    for ``PATIENCE``. It ends when these are back and Kubernetes answers.

    Args:
        changed: is called when an outage has begun, is another, or has ended, and when
            a watch has listed all objects.

    Attributes:
        reason: the reason of the outage that was reported last; None if there is none.
            In one outage each is reported once, of the first few.
        heard: when Kubernetes has sent something last (UNIX time); None if it has sent
            nothing yet.
        outages: those until now. Kubernetes is out of reach as well before the first
            objects are ``listed``.
    """

    def __init__(self, context: Context, changed: Callable[[], None]) -> None:
        self.reason: Optional[str] = None
        self._reasons: list[str] = []
        self.outages = Outages()
        self._flux = context.flux
        self._settings = context.settings
        self._kube = context.kube
        self._kube.watch_changed = self.note_watch
        self._kube.asked = self._note_request
        self._kube.answered = self.note_answer
        self._changed = changed
        self.heard: Optional[float] = None
        self._asked = 0.0  # when what is awaited was asked for (UNIX time)
        self._watches: dict[Kind, Watched] = {}
        self._silent = False
        self._check: Optional[Timer] = None

    def start(self) -> None:
        """The watches are about to be opened."""
        now = self._flux.now()
        self.outages.quiet_until = now + QUIET
        self.outages.begin(now)
        self._note_request()

    def stop(self) -> None:
        """Look at nothing any more."""
        if self._check is not None:
            self._check.cancel()

    @property
    def listed(self) -> bool:
        """All objects of ``LISTED_FIRST`` were seen once."""
        return all(map(self.has_listed, LISTED_FIRST))

    def has_listed(self, kind: Kind) -> bool:
        """Whether all objects of a kind were seen once. No job waits for Servers that
        cannot be seen."""
        watch = self._watches.get(kind)
        return watch is not None and (watch.listed or kind == SERVERS)

    @property
    def _lost(self) -> Optional[str]:
        """Why a watch is lost that keeps jobs waiting: that of the Workflows, or one
        whose objects are not known yet."""
        for kind, watch in self._watches.items():
            if watch.error and (kind == WORKFLOW or not self.has_listed(kind)):
                return str(watch.error)
        return None

    def note_watch(self, watch: Watched) -> None:
        """A watch was lost, or has listed all objects."""
        if watch.kind not in LISTED_FIRST:
            return
        is_new = watch.kind not in self._watches
        self._watches[watch.kind] = watch
        if watch.error is None:
            self.heard, self._silent = self._flux.now(), False
        self._update(changed=is_new or watch.error is None)

    def note_answer(self) -> None:
        """Kubernetes has sent something."""
        self.heard = self._flux.now()
        if self._silent:
            self._silent = False
            self._update()

    def _note_request(self) -> None:
        """Something is awaited from Kubernetes, and nothing else was."""
        self._asked = self._flux.now()
        if self._check is None:
            self._check = self._flux.call_later(PATIENCE, self._check_silence)

    def _check_silence(self) -> None:
        """Note whether Kubernetes has sent nothing for ``PATIENCE``. Check again as
        long as something is awaited: the objects, or an answer. Not every request that
        had none is repeated: so while there is silence, something is asked for."""
        self._check = None
        if self.listed and not self._kube.in_flight:
            if self._silent:
                namespace = self._settings.namespace
                call = self._kube.get(SYSTEMSTATUS, namespace, NAME, apart=True)
                call.start(lambda answer: None)
            return
        now = self._flux.now()
        due = max(self._asked, self.heard or 0.0) + PATIENCE
        if due <= now:
            due = now + PATIENCE
            self._silent = True
            self._update()
        self._check = self._flux.call_later(due - now, self._check_silence)

    def _update(self, changed: bool = False) -> None:
        """Find the present reason, and report it if it is another."""
        before, lost = self.reason, self._lost
        reason = SILENCE if lost is None and self._silent else lost
        if reason is None:
            self._reasons.clear()
        elif reason not in self._reasons and len(self._reasons) < MOST_REASONS:
            self._reasons.append(reason)
        else:
            reason = before
        self.reason = reason
        if reason != before:
            changed = True
            if before is None:
                text = f"Kubernetes: {reason}; jobs wait"
                self._flux.log(syslog.LOG_ERR, text, Reason.KUBERNETES_AWAY)
            elif reason is None:
                text = "Kubernetes answers again"
                self._flux.log(syslog.LOG_NOTICE, text, Reason.KUBERNETES_BACK)
        if not changed:
            return
        if reason is None and self.listed:
            self.outages.end(self._flux.now())
        else:
            self.outages.begin(self._flux.now())
        self._changed()
