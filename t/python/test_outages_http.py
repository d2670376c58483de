# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Kubernetes is in trouble, as it shows over HTTP, and whole jobs live through it.

What an outage costs is measured in virtual time (test_outages.py); here are the
real client and a real server.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Callable, Optional

import pytest

import flux_k8s.kube.watch
from flux_k8s.formats.jobid import workflow_name
from flux_k8s.jobs.reports import MEMO
from flux_k8s.kube.client import KubeClient
from flux_k8s.ports import DWS_GROUP, WORKFLOW
from rabbitsim.dws import NoFiles, Options, Topology
from rabbitsim.kube.handler import HttpFault
from rabbitsim.kube.kinds import Kinds
from rabbitsim.system import LocalFlux, LocalKube
from support.service import LIFE, jobspec

PATIENCE = 60.0
TOPOLOGY = Topology.regular(4, 2)


class Site:
    """Kubernetes, DWS and Flux on this machine.

    Attributes:
        tokens: what the API server lets in; may be changed.
        log: what was logged.
    """

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.tokens = {"first": "flux"}
        self.log: list[str] = []
        self.kubeconfig = folder / "kubeconfig"
        client = functools.partial(KubeClient, read_timeout=0.5)
        patch.setattr("rabbitsim.system.KubeClient", client)
        self.kube = LocalKube(
            TOPOLOGY,
            options=Options(),
            files=NoFiles(),
            seed=1,
            kubeconfig=self.kubeconfig,
            log=self.log.append,
            tokens=self.tokens,
        )
        self.server = self.kube.server
        self._served = self.server.store.kinds
        self.flux = LocalFlux(
            TOPOLOGY,
            self.kubeconfig,
            folder,
            output=lambda rank, stream, data: None,
            seed=1,
            log=lambda level, line: self.log.append(line),
        )

    def close(self) -> None:
        self.flux.stop()
        self.kube.stop()

    def clear(self) -> None:
        """Clear the fault of all requests, and serve all kinds again."""
        self.server.faults = None
        self.server.resume()
        self._serve(self._served)

    def inject(self, fault: HttpFault) -> None:
        """Inject a fault into every request and every watch."""
        self.server.faults = lambda method, path, query: fault
        self.server.drop_watches()

    def forget(self, plural: str) -> None:
        """Serve a kind of DWS no more."""
        kept = {
            key: resource
            for key, resource in self._served.resources.items()
            if key != (DWS_GROUP, plural)
        }
        self._serve(Kinds(kept, self._served.metadata))
        self.server.drop_watches()

    def _serve(self, kinds: Kinds) -> None:
        store = self.server.store
        self.server.call(lambda: setattr(store, "kinds", kinds))

    def submit(self) -> int:
        spec = jobspec()
        spec["tasks"][0]["command"] = ["true"]
        return self.flux.instance.submit(spec)

    def wait(self, jobid: int, until: Callable[[], bool]) -> None:
        events = self.flux.instance.job(jobid).events
        assert self.flux.loop.run(until, PATIENCE), (events, self.log[-20:])

    def memo(self, jobid: int) -> Any:
        """What the job says that it waits for."""
        events = self.flux.instance.eventlog(jobid)
        memos = [event.context or {} for event in events if event.name == "memo"]
        return next((m[MEMO] for m in reversed(memos) if MEMO in m), None)

    def finish(self, jobid: int) -> None:
        """Wait until a job and its storage are gone, and check its life."""
        job = self.flux.instance.job(jobid)
        self.wait(jobid, lambda: job.was_posted("clean"))
        find = functools.partial(
            self.server.store.find, WORKFLOW, "default", workflow_name(jobid)
        )
        self.wait(jobid, lambda: self.server.call(find) is None)
        names = [event.name for event in job.events]
        skipped = ("memo", "annotations")
        assert [name for name in names if name not in skipped] == LIFE
        assert self.memo(jobid) is None


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with pytest.MonkeyPatch.context() as patch:
        # Each test has an outage of its own, and waits as after a first failure.
        patch.setattr(flux_k8s.kube.watch, "STEADY", 0.0)
        patch.setattr(flux_k8s.kube.watch, "LONGEST_PAUSE", 0.4)
        site = Site(tmp_path_factory.mktemp("site"), patch)
        assert site.flux.wait_until_ready(PATIENCE)
        yield site
        site.close()


@pytest.fixture
def site(started: Site) -> Iterator[Site]:
    started.log.clear()
    yield started
    started.clear()


TROUBLES: dict[str, tuple[Callable[[Site], None], str]] = {
    "it refuses connections": (lambda site: site.server.pause(), "connection refused"),
    "it hangs": (lambda site: site.inject(HttpFault(hang=2.0)), "no answer in time"),
    "it cuts connections after the work": (
        lambda site: site.inject(HttpFault(close=True, carried_out=True)),
        "the connection was lost",
    ),
    "answers are cut off": (
        lambda site: site.inject(HttpFault(truncate=True)),
        "the connection was cut before the answer ended",
    ),
    "429": (
        lambda site: site.inject(HttpFault(status=429, retry_after=1)),
        "injected fault: 429",
    ),
    "503": (
        lambda site: site.inject(HttpFault(status=503)),
        "injected fault: 503",
    ),
    "a CRD is gone": (
        lambda site: site.forget(WORKFLOW.plural),
        "has no workflows in dataworkflowservices.github.io/v1alpha7: is the CRD",
    ),
}
"""What is told of each other fault: test_client_failures.py."""


@pytest.mark.parametrize("trouble", TROUBLES)
def test_a_job_says_why_it_waits_and_goes_on_when_that_is_over(
    site: Site, trouble: str
) -> None:
    begin, reason = TROUBLES[trouble]
    begin(site)
    jobid = site.submit()
    site.wait(jobid, lambda: reason in str(site.memo(jobid)))
    site.clear()
    site.finish(jobid)
    begun = sum("; jobs wait" in line for line in site.log)
    ended = sum("Kubernetes answers again" in line for line in site.log)
    told = sum(reason in line and "; trying again" in line for line in site.log)
    # Not every trouble is one of a watch that is open; then the job's is told, once for
    # each request that was carried out in between. (On a slow machine a request may
    # have no answer in time afterwards, which is another trouble.)
    assert begun == ended <= 1 and told <= 2 and begun + told >= 1, site.log


@pytest.mark.parametrize("statuses", [(403,), (403, 500, 410)], ids=str)
def test_jobs_go_on_by_lists_where_watches_are_refused_and_are_told_once(
    site: Site, statuses: tuple[int, ...]
) -> None:
    """Once by each error."""
    refused: list[str] = []

    def fault(method: str, path: str, query: Mapping[str, str]) -> Optional[HttpFault]:
        if "watch" not in query:
            return None
        if path.endswith("/workflows"):
            refused.append(path)
        return HttpFault(status=statuses[len(refused) % len(statuses)])

    site.server.faults = fault
    site.server.drop_watches()
    jobid = site.submit()
    site.wait(jobid, lambda: len(refused) > len(statuses))
    site.clear()
    site.finish(jobid)
    told = "cannot watch workflows, and lists them: injected fault: "
    assert sum(told in line for line in site.log) == 1
    begun = sum("; jobs wait" in line for line in site.log)
    ended = sum("Kubernetes answers again" in line for line in site.log)
    assert 1 <= begun == ended <= 1 + len(statuses)


def test_credentials_that_were_replaced_are_read_again(site: Site) -> None:
    site.tokens.clear()
    site.tokens["second"] = "flux"
    site.server.drop_watches()
    jobid = site.submit()
    site.wait(jobid, lambda: "Unauthorized" in str(site.memo(jobid)))
    site.server.write_kubeconfig(str(site.kubeconfig))
    site.finish(jobid)
    (line,) = (line for line in site.log if "read again after: " in line)
    assert line.endswith(": Unauthorized [kubernetes-settings]")
    assert not any(token in line for token in ("first", "second") for line in site.log)
