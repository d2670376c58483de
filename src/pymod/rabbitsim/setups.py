# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The broker module in virtual time: it passes on requests, some ``dws.setup`` as if
their jobs were large, and queries within the bounds for guests."""

from __future__ import annotations

import json
from collections import Counter
from typing import Callable, Optional

from flux_k8s.broker.querybounds import QueryBounds
from flux_k8s.jobs import setupreader
from flux_k8s.jobs.service import Service
from flux_k8s.ports import Clock, Json, Respond, Sender


class Receiver:
    """The broker module, as far as it treats requests before it passes them on.

    Args:
        is_large: tells whether the R of a job is taken for a large one.
    """

    def __init__(
        self,
        clock: Clock,
        service: Service,
        is_large: Callable[[int], bool] = lambda jobid: False,
    ) -> None:
        self._service = service
        self._is_large = is_large
        self.start = service.start
        self.stop = service.stop
        self._clock = clock
        self._bounds = QueryBounds()
        self._in_work: Counter[int] = Counter()

    def request(self, method: str, payload: Json, respond: Respond) -> None:
        jobid = payload.get("jobid")
        if method == "setup" and isinstance(jobid, int) and self._is_large(jobid):
            text = json.dumps(payload, separators=(",", ":")).encode()
            self._service.request(
                method, setupreader.parse(method, text, large=0), respond
            )
        else:
            self._service.request(method, payload, respond)

    def query(
        self, method: str, payload: Json, respond: Respond, sender: Sender
    ) -> None:
        """Pass on a query, within the bounds for guests."""
        userid = sender.userid

        def answered(errnum: int, text: str, answer: Optional[Json]) -> None:
            self._in_work[userid] -= 1
            respond(errnum, text, answer)

        if not sender.owner:
            size, in_work = len(json.dumps(payload)), self._in_work[userid]
            refusal = self._bounds.refuse(userid, size, in_work, self._clock.now())
            if refusal is not None:
                respond(*refusal, None)
                return
        self._in_work[userid] += 1
        self._service.query(method, payload, answered, sender)


def every_other(jobid: int) -> bool:
    """Half of all jobs, whichever these are."""
    return (jobid >> 24) % 2 == 0
