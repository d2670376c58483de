# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The program that a real Flux has in place of the module, to see what Flux, the plugin
and DWS cost anybody: the ideal client, which answers the plugin, too.

It posts the memos and writes the records that users are promised.
Jobs that end at a time share a commit, and nothing waits for that.

    flux python -m measure.idealmodule URL MAPPING
"""

from __future__ import annotations

import asyncio
import base64
import errno
import json
import pathlib
import sys
from collections.abc import Mapping
from typing import Any

import aiohttp
from flux.constants import FLUX_MSGTYPE_REQUEST, FLUX_O_NONBLOCK, FLUX_RPC_NORESPONSE

import flux
from flux_k8s.formats.jobid import kvs_directory, workflow_name
from flux_k8s.ports import Json

from .client import IdealClient

READY = "ready"
"""What is printed when jobs may come."""

COMMIT = 0.05
"""Seconds between commits of records."""


class IdealModule(IdealClient):
    """Takes the Workflows of Flux's jobs through their states.

    Args:
        rabbits: the Rabbit of each host.
    """

    def __init__(
        self, session: aiohttp.ClientSession, rabbits: Mapping[str, str]
    ) -> None:
        super().__init__(session, [])
        self._rabbits = rabbits
        self._flux = flux.Flux()
        self._jobs: dict[str, Json] = {}
        self._times: dict[str, Json] = {}
        self._puts: list[Json] = []

    async def serve(self) -> None:
        """Be the service ``dws``, for ever."""
        await self._find_version()
        watch = asyncio.ensure_future(self._watch())
        await asyncio.sleep(0.1)
        self._flux.service_register("dws").get()
        self._flux.rpc("job-manager.dws.hello", {}).get()
        fd = self._flux.pollfd()
        asyncio.get_running_loop().add_reader(fd, self._receive)
        print(READY, flush=True)
        self._receive()
        await watch

    def completed(self, workflow: Json, name: str, state: str) -> None:
        job = self._jobs[name]
        elapsed = workflow["status"].get("elapsedTimeLastState")
        self._times[name][f"rabbit_{state.lower()}_timing"] = elapsed
        if state == "Proposal":
            self._send("resource-update", job, resources=job["resources"], exclude=None)
            return
        if state == "PreRun":
            self._send("prolog-remove", job, variables={})
            return
        if state == "Teardown":
            self._put(job, {**self._times[name], "rabbit_workflow": workflow})
            self._send("epilog-remove", job)
        super().completed(workflow, name, state)

    def _send(self, method: str, job: Json, **payload: Any) -> None:
        self._rpc(f"job-manager.dws.{method}", {"id": job["jobid"], **payload})

    def _post_memo(self, job: Json, memo: Json) -> None:
        self._rpc("job-manager.memo", {"id": job["jobid"], "memo": memo})

    def _put(self, job: Json, records: Json) -> None:
        directory = kvs_directory(job["jobid"])
        if not self._puts:
            asyncio.get_running_loop().call_later(COMMIT, self._commit)
        for key, value in records.items():
            data = base64.b64encode(json.dumps(value).encode()).decode()
            dirent = {"ver": 1, "type": "val", "data": data}
            put = {"key": f"{directory}.{key}", "flags": 0, "dirent": dirent}
            self._puts.append(put)

    def _commit(self) -> None:
        request = {"namespace": "primary", "flags": 0, "ops": self._puts}
        self._rpc("kvs.commit", request)
        self._puts = []

    def _rpc(self, topic: str, payload: Json) -> None:
        self._flux.rpc(topic, payload, flags=FLUX_RPC_NORESPONSE)

    def _receive(self) -> None:
        self._flux.pollevents()  # else its descriptor stays readable
        while True:
            try:
                message = self._flux.recv(FLUX_MSGTYPE_REQUEST, flags=FLUX_O_NONBLOCK)
            except OSError as error:
                if error.errno not in (errno.EAGAIN, errno.EWOULDBLOCK):
                    raise
                return
            if message is None:
                return
            self._request(message.topic.rpartition(".")[2], message.payload)
            self._flux.respond(message, {"success": True})

    def _request(self, method: str, payload: Json) -> None:
        if method == "hello":
            return
        name = workflow_name(payload["jobid"])
        if method == "create":
            self._jobs[name] = payload
            self._places[name] = []
            self._times[name] = {}
            self._begin(self._create(payload["jobid"]))
            self._post_memo(payload, {"rabbit_workflow": name})
        elif method == "setup":
            (host,) = payload["R"]["execution"]["nodelist"]
            self._places[name] = [host, self._rabbits[host]]
            self._begin(self._advance(name, "Setup"))
            self._post_memo(payload, {"rabbits": self._rabbits[host]})
        elif method == "post_run":
            self._begin(self._advance(name, "PostRun"))


async def _run(url: str, rabbits: Mapping[str, str]) -> None:
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(url, connector=connector) as session:
        await IdealModule(session, rabbits).serve()


def main(url: str, mapping: str) -> None:
    rabbits = json.loads(pathlib.Path(mapping).read_text(encoding="utf-8"))
    asyncio.run(_run(url, rabbits["computes"]))


if __name__ == "__main__":
    main(*sys.argv[1:])
