# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The workflow token, with which a job's tasks work with DWS themselves.

It is a secret, and eventlogs are archived. So the job's shells read it from the job's
KVS directory, which ``job-info`` shows to the job's user and to the instance owner, and
it is unlinked when the job has no use for it any more.
"""

from __future__ import annotations

import base64
import binascii
from typing import Optional

from flux_k8s.config.context import Context
from flux_k8s.control.coroutines import call
from flux_k8s.control.kubecalls import KubeCalls
from flux_k8s.jobs.workflowinfo import WorkflowInfo
from flux_k8s.ports import SECRET, Json
from flux_k8s.reasons import Note, Reason

TOKEN_KEY = "dws_token"
"""The key of the token in the job's KVS directory. The shell plugin has the same."""


class Tokens:
    """Gives jobs their workflow tokens, and takes them back."""

    def __init__(self, context: Context) -> None:
        self._flux = context.flux
        self._calls = KubeCalls(context.kube)

    async def give(self, info: WorkflowInfo) -> None:
        """Write a job's token, if it has one; without one in its Secret the job
        fails (``info.failure``)."""
        if info.view is None or info.view.token is None:
            return
        namespace, name = info.view.token
        secret = await self._calls.get(SECRET, namespace, name, key=info.name)
        token = read_token(secret)
        if token is None:
            text = (
                f"Secret {namespace}/{name} has no token for the job; please tell an "
                "administrator"
            )
            info.failure = Note(text, Reason.TOKEN_MISSING)
        else:
            await call(self._flux.kvs_commit, info.jobid, TOKEN_KEY, token)

    def unlink(self, info: WorkflowInfo) -> None:
        """Take a job's token back. Of a job that the module before knew better there
        may be one, or none."""
        unknown = info.token is None and (info.existed or info.request is None)
        if info.token or unknown:
            self._flux.kvs_put(info.jobid, TOKEN_KEY, None)


def read_token(secret: Json) -> Optional[str]:
    """The workflow token in a Secret, or None."""
    data = secret.get("data")
    encoded = data.get("token") if isinstance(data, dict) else None
    if not isinstance(encoded, str):
        return None
    try:
        return base64.b64decode(encoded, validate=True).decode("utf-8")
    except (binascii.Error, UnicodeDecodeError):
        return None
