# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The jobspecs of jobs that Flux was told about, and of which the plugin sends no
request any more."""

from __future__ import annotations

import json

from flux_k8s.config.context import Context
from flux_k8s.config.settings import Settings
from flux_k8s.control.coroutines import call
from flux_k8s.dws.storagerequest import StorageRequest
from flux_k8s.jobs.requests import read_create
from flux_k8s.jobs.workflowinfo import WorkflowInfo
from flux_k8s.json_reader import Reader
from flux_k8s.ports import Json

CURRENT = 2
"""``FLUX_JOB_LOOKUP_CURRENT``: with all updates of the jobspec."""


class Jobspecs:
    """Reads the requests of jobs for storage from their jobspecs."""

    def __init__(self, context: Context) -> None:
        self._flux = context.flux
        self._settings = context.settings

    async def request(self, info: WorkflowInfo) -> StorageRequest:
        """What a job asks Flux for now, with the storage that it was planned with.
        The request of the job is this one, if it was not known.

        Raises:
            RpcError: Flux does not answer.
            DWSError: the directives are refused by now.
        """
        payload = {"id": info.jobid, "keys": ["jobspec"], "flags": CURRENT}
        answer = await call(self._flux.rpc, "job-info.lookup", payload)
        text = Reader("job-info.lookup", answer).string("jobspec")
        found = _read(info, json.loads(text), self._settings)
        info.request = info.request or found
        return found


def _read(info: WorkflowInfo, jobspec: Json, settings: Settings) -> StorageRequest:
    """The request in a jobspec, which is read as the plugin sends it."""
    system = jobspec.get("attributes", {}).get("system", {})
    dw = system.get("dw")
    payload = {
        "jobid": info.jobid,
        "userid": info.userid,
        "dw_directives": [dw] if isinstance(dw, str) else dw,
        "resources": jobspec.get("resources"),
        "failure_tolerance": info.failure_tolerance,
        "release": system.get("dw_release"),
        "stage": system.get("dw_stage"),
        "constraints": system.get("constraints"),
    }
    _, request, _ = read_create(payload, settings.config)
    return request
