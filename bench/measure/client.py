# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The program with the ideal client: it watches and patches, nothing else.

It knows beforehand where each job's storage goes, checks nothing, and survives
nothing. What it takes for a job is what DWS and its API cost anybody.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from typing import Any

import aiohttp

from flux_k8s.formats.jobid import f58, workflow_name
from flux_k8s.ports import COMPUTES, DWS_GROUP, SERVERS, WORKFLOW, Json, Kind

from .child import serve
from .workload import DIRECTIVE, FIRST_JOB

ORDER = ("Proposal", "Setup", "DataIn", "PreRun", "PostRun", "DataOut", "Teardown")
CAPACITY = 11051991040
"""The bytes that DWS makes of the directive's 10 GiB."""

MERGE = {"Content-Type": "application/merge-patch+json"}


class IdealClient:
    """Takes Workflows through their states."""

    def __init__(self, session: aiohttp.ClientSession, hosts: list[list[str]]) -> None:
        self._session = session
        self._hosts = hosts
        self._places: dict[str, list[str]] = {}
        self._version = ""
        self._asked: dict[str, str] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._done = asyncio.Event()
        self._ended: set[str] = set()
        self._count = 0

    async def read(self) -> None:
        """Watch Workflows, of which none is ours."""
        await self._find_version()
        await self._watch()

    async def run(self, first: int, count: int) -> None:
        """Take ``count`` jobs from their submission to their end."""
        self._count = count
        await self._find_version()
        watch = asyncio.ensure_future(self._watch())
        await asyncio.sleep(0.1)
        for jobid in range(first, first + count):
            self._places[workflow_name(jobid)] = self._hosts[jobid % len(self._hosts)]
            self._begin(self._create(jobid))
        waits = [watch, asyncio.ensure_future(self._done.wait())]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for task in waits:
            task.cancel()
        if not self._done.is_set():
            await watch
        while self._tasks:
            await asyncio.gather(*self._tasks)

    async def _find_version(self) -> None:
        async with self._session.get(f"/apis/{DWS_GROUP}") as answer:
            group = await answer.json()
        self._version = group["preferredVersion"]["groupVersion"]

    async def _watch(self) -> None:
        url = self._url(WORKFLOW, "?watch=true")
        timeout = aiohttp.ClientTimeout(total=None)
        async with self._session.get(url, timeout=timeout) as answer:
            async for line in answer.content:
                event = json.loads(line)
                self._see(event["type"], event["object"])

    def _see(self, type: str, workflow: Json) -> None:
        name, status = workflow["metadata"]["name"], workflow.get("status") or {}
        desired = workflow["spec"]["desiredState"]
        if type == "DELETED" or name not in self._places:
            return
        if not status.get("ready") or status.get("state") != desired:
            return
        if self._asked.get(name) == desired:
            return
        self._asked[name] = desired
        self.completed(workflow, name, desired)

    def completed(self, workflow: Json, name: str, state: str) -> None:
        """A Workflow has completed a state."""
        if state == ORDER[-1]:
            self._begin(self._delete(name))
            self._ended.add(name)
            if len(self._ended) == self._count:
                self._done.set()
        else:
            following = ORDER[ORDER.index(state) + 1]
            self._begin(self._advance(name, following))

    async def _create(self, jobid: int) -> None:
        body = {
            "apiVersion": self._version,
            "kind": WORKFLOW.name,
            "metadata": {"name": workflow_name(jobid)},
            "spec": {
                "desiredState": ORDER[0],
                "dwDirectives": [DIRECTIVE],
                "groupID": os.getgid(),
                "jobID": f58(jobid),
                "userID": os.getuid(),
                "wlmID": "flux",
            },
        }
        async with self._session.post(self._url(WORKFLOW), json=body) as answer:
            await _check(answer)

    async def _advance(self, name: str, state: str) -> None:
        if state == "Setup":
            host, rabbit = self._places[name]
            storage = [{"name": rabbit, "allocationCount": 1}]
            sets = [
                {"label": "xfs", "allocationSize": CAPACITY, "storage": storage},
            ]
            await asyncio.gather(
                self._patch(SERVERS, f"{name}-0", {"spec": {"allocationSets": sets}}),
                self._patch(COMPUTES, name, {"data": [{"name": host}]}),
            )
        await self._patch(WORKFLOW, name, {"spec": {"desiredState": state}})

    async def _patch(self, kind: Kind, name: str, body: Json) -> None:
        url = self._url(kind, f"/{name}")
        async with self._session.patch(
            url, data=json.dumps(body), headers=MERGE
        ) as answer:
            await _check(answer)

    async def _delete(self, name: str) -> None:
        async with self._session.delete(self._url(WORKFLOW, f"/{name}")) as answer:
            await _check(answer)

    def _url(self, kind: Kind, rest: str = "") -> str:
        return f"/apis/{self._version}/namespaces/default/{kind.plural}{rest}"

    def _begin(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _check(answer: aiohttp.ClientResponse) -> None:
    if answer.status >= 300:
        raise OSError(f"{answer.url}: {answer.status} {await answer.text()}")
    await answer.read()


class Program:
    """The commands."""

    def __init__(self) -> None:
        self._url = ""
        self._hosts: list[list[str]] = []
        self._next = FIRST_JOB

    def start(self, url: str, rabbits: Json) -> None:
        """``rabbits`` is the rabbitmapping."""
        self._url = url
        self._hosts = [list(entry) for entry in rabbits["computes"].items()]

    def jobs(self, count: int) -> dict[str, float]:
        """Run jobs at once: ``cpu``, the seconds of processor time."""
        first, self._next = self._next, self._next + count
        before = time.process_time()
        asyncio.run(self._run(first, count))
        return {"cpu": time.process_time() - before}

    def watch(self, seconds: float) -> dict[str, float]:
        """Read the events of Workflows for a while: ``cpu`` as above."""
        before = time.process_time()
        asyncio.run(self._watch(seconds))
        return {"cpu": time.process_time() - before}

    async def _watch(self, seconds: float) -> None:
        async with aiohttp.ClientSession(self._url) as session:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(IdealClient(session, []).read(), seconds)

    async def _run(self, first: int, count: int) -> None:
        connector = aiohttp.TCPConnector(limit=count + 1)
        async with aiohttp.ClientSession(self._url, connector=connector) as session:
            await IdealClient(session, self._hosts).run(first, count)


def main() -> None:
    program = Program()
    names = ("start", "jobs", "watch")
    serve({name: getattr(program, name) for name in names})


if __name__ == "__main__":
    main()
