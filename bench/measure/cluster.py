# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The program with the API server and the DWS controllers."""

from __future__ import annotations

import json
import pathlib
import random
import time
from collections.abc import Sequence
from functools import partial
from typing import Any, Optional

from flux_k8s.formats.jobid import f58, workflow_name
from flux_k8s.ports import SERVERS, STORAGE, WORKFLOW, Json, KubeError
from rabbitsim.dws import NoFiles, Options, constant, install, recorded, table
from rabbitsim.dws.options import Latency
from rabbitsim.kube.direct import DirectKube
from rabbitsim.kube.server import KubeServer
from rabbitsim.kube.store import Event, Store
from rabbitsim.system import LocalKube

from .child import memory, serve
from .hardware import topology
from .workload import FIRST_JOB

STATES = ("Proposal", "Setup", "DataIn", "PreRun", "PostRun", "DataOut", "Teardown")


class Recorder:
    """Notes when each Workflow was asked for a state, and when it reached it. Counts
    the events of Workflows and Servers."""

    def __init__(self, server: KubeServer) -> None:
        self.marks: dict[str, list[tuple[float, str, str]]] = {}
        self.events = 0
        self._asked: dict[str, str] = {}
        self._reached: dict[str, str] = {}
        store = server.store

        def watch() -> None:
            version = str(store.version)
            store.watch(WORKFLOW, None, self._event, resource_version=version)
            store.watch(SERVERS, None, self._count, resource_version=version)

        server.call(watch)

    def _count(self, event: Event) -> None:
        self.events += 1

    def _event(self, event: Event) -> None:
        self._count(event)
        now, obj = time.time(), event.object
        name = obj["metadata"]["name"]
        marks = self.marks.setdefault(name, [])
        if event.type == "DELETED":
            marks.append((now, "gone", ""))
            return
        desired = obj["spec"]["desiredState"]
        if self._asked.get(name) != desired:
            self._asked[name] = desired
            marks.append((now, "asked", desired))
        status = obj.get("status") or {}
        if status.get("ready") and status.get("state") == desired:
            if self._reached.get(name) != desired:
                self._reached[name] = desired
                marks.append((now, "reached", desired))


class Cluster:
    """The commands."""

    def __init__(self) -> None:
        self._kube: Optional[LocalKube] = None
        self._server: Optional[KubeServer] = None
        self._recorder: Optional[Recorder] = None

    def start(
        self,
        kubeconfig: str,
        nodes: int,
        seconds: Any,
        controllers: bool = True,
        full_events: bool = False,
    ) -> str:
        """Start; the URL. ``seconds``: what DWS takes for each state, or for those
        in a table, or "recorded". Without controllers nothing happens by itself. With
        ``full_events`` there are as many events as with the real DWS."""
        hardware = topology(nodes)
        options = Options(latency=latency(seconds), full_events=full_events)
        if controllers:
            self._kube = LocalKube(
                hardware,
                options=options,
                files=NoFiles(),
                seed=1,
                kubeconfig=pathlib.Path(kubeconfig),
                log=lambda line: None,
            )
            self._server = self._kube.server
        else:
            self._server = KubeServer(Store(time.time, random.Random(1)))
            self._server.start()
            self._server.write_kubeconfig(kubeconfig)
            self._install(hardware, options)
        self._recorder = Recorder(self._server)
        return self._server.url

    def _install(self, hardware: Any, options: Options) -> None:
        server = self.server
        done: list[Optional[KubeError]] = []
        kube = DirectKube(server.store, server.clock)
        server.call(lambda: install(kube, hardware, options.rules, done.append))
        while not done:
            time.sleep(0.05)

    @property
    def server(self) -> KubeServer:
        assert self._server is not None, "the server is not started"
        return self._server

    def marks(self) -> dict[str, list[tuple[float, str, str]]]:
        """Return the record, and begin a new one."""
        recorder = self._recorder
        assert recorder is not None

        def take() -> dict[str, list[tuple[float, str, str]]]:
            marks, recorder.marks = recorder.marks, {}
            return marks

        return self.server.call(take)

    def events(self) -> int:
        """The number of events since the last call."""
        recorder = self._recorder
        assert recorder is not None

        def take() -> int:
            events, recorder.events = recorder.events, 0
            return events

        return self.server.call(take)

    def touch(self, rate: float, seconds: float) -> int:
        """Change an annotation of one Workflow after the other, so often in a second;
        the number of changes."""
        store = self.server.store
        names = [
            item["metadata"]["name"]
            for item in self.server.call(lambda: store.select(WORKFLOW).items)
        ]
        begin, count = time.monotonic(), 0
        while time.monotonic() < begin + seconds:
            name, text = names[count % len(names)], str(count)
            body: Json = {"metadata": {"annotations": {"bench/touched": text}}}
            self.server.call(
                partial(store.merge_patch, WORKFLOW, "default", name, body)
            )
            count += 1
            time.sleep(max(0.0, begin + count / rate - time.monotonic()))
        return count

    def count(self) -> int:
        """The number of Workflows."""
        store = self.server.store
        return self.server.call(lambda: len(store.select(WORKFLOW).items))

    def get(self, name: str) -> Json:
        """A Workflow."""
        store = self.server.store
        return self.server.call(lambda: dict(store.get(WORKFLOW, "default", name)))

    def servers(self, name: str) -> list[Json]:
        """The Servers of a Workflow."""
        items = self.server.call(lambda: self.server.store.list(SERVERS, None)["items"])
        return [item for item in items if item["metadata"]["name"].startswith(name)]

    def populate(
        self, template: Json, count: int, servers: Sequence[Json] = ()
    ) -> None:
        """Make Workflows for ``count`` jobs, and their Servers, like those of a job
        that there was."""
        name, jobid = template["metadata"]["name"], template["spec"]["jobID"]
        templates = [(WORKFLOW, template), *((SERVERS, each) for each in servers)]
        texts = [(kind, json.dumps(_fresh(each))) for kind, each in templates]
        store = self.server.store

        def create() -> None:
            for number in range(FIRST_JOB, FIRST_JOB + count):
                for kind, text in texts:
                    body = text.replace(name, workflow_name(number))
                    body = body.replace(jobid, f58(number))
                    store.create(kind, "default", json.loads(body))

        self.server.call(create)

    def disable(self, rabbit: str, disabled: bool) -> None:
        """Take a Rabbit out of service, or back."""
        body: Json = {"spec": {"state": "Disabled" if disabled else "Enabled"}}
        store = self.server.store
        self.server.call(lambda: store.merge_patch(STORAGE, "default", rabbit, body))

    def reserve(self, name: str, rabbit: str, size: int) -> None:
        """Have bytes of a Rabbit belong to no job."""
        place = {"name": rabbit, "allocationCount": 1}
        sets = [{"label": "xfs", "allocationSize": size, "storage": [place]}]
        body: Json = {"metadata": {"name": name}, "spec": {"allocationSets": sets}}
        store = self.server.store
        self.server.call(lambda: store.create(SERVERS, "default", body))

    def release(self, name: str) -> None:
        """Give them back."""
        store = self.server.store
        self.server.call(lambda: store.delete(SERVERS, "default", name))

    def stop(self) -> None:
        if self._kube is not None:
            self._kube.stop()
        elif self._server is not None:
            self._server.stop()


def _fresh(template: Json) -> Json:
    """An object as one that is yet to be created."""
    left_out = ("uid", "resourceVersion", "creationTimestamp", "generation")
    metadata = template["metadata"]
    kept = {key: metadata[key] for key in metadata if key not in left_out}
    return {**template, "metadata": kept}


def latency(seconds: Any) -> Latency:
    if seconds == "recorded":
        return recorded()
    if isinstance(seconds, dict):
        return table(seconds)
    if isinstance(seconds, list):
        low, high = seconds
        middle = (low + high) / 2
        spread = (high - low) / (high + low)
        return table(dict.fromkeys(STATES, middle), spread)
    return constant(float(seconds))


def main() -> None:
    cluster = Cluster()
    serve(
        {
            "start": cluster.start,
            "marks": cluster.marks,
            "events": cluster.events,
            "touch": cluster.touch,
            "count": cluster.count,
            "get": cluster.get,
            "servers": cluster.servers,
            "populate": cluster.populate,
            "disable": cluster.disable,
            "reserve": cluster.reserve,
            "release": cluster.release,
            "cpu": time.process_time,
            "memory": memory,
        }
    )
    cluster.stop()


if __name__ == "__main__":
    main()
