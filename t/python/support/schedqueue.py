# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The queue of sched-rabbit without a broker: a program that ``flux python`` runs.

Standard input has lists of jobs in JSON. The jobs of each list run on a machine of
their own (:mod:`support.schedpool`). A job has ``id``, ``time`` (when it is submitted),
``priority``, ``user``, ``jobspec`` and ``lasts`` (for how long it has its nodes).

Standard output has for each list ``started``, the time and the ranks of each job that
was started, and ``promised``: the time, the first of the jobs that wait, and when it
starts at the latest by the limits of those that run, if that can be known.
"""

from __future__ import annotations

import heapq
import json
import math
import sys
from typing import Any

import flux
from flux_k8s.broker import rabbitscheduler
from flux_k8s.broker.rabbitpool import RabbitPool
from flux_k8s.broker.rabbitscheduler import RabbitScheduler
from flux_k8s.ports import Json
from flux_k8s.scheduler.pool import reserve
from flux_k8s.scheduler.request import parse
from support import schedpool


class Queue(RabbitScheduler):
    """A scheduler with a clock that is set, and resources that are given."""

    time = 0.0

    def __init__(self, handle: Any) -> None:
        super().__init__(handle)
        R, mapping = schedpool.resources().to_json(), schedpool.topology()
        self.given = RabbitPool(R, mapping=mapping, chunks=schedpool.CHUNKS)

    @property
    def resources(self) -> RabbitPool:
        return self.given

    def _now(self) -> float:
        return self.time


class Alloc:
    """The request of the job manager for the resources of a job."""

    def __init__(self, job: Json) -> None:
        self.job = job
        self.turn = -job["priority"], job["id"]
        self.is_granted = False

    def success(self, R: Any, annotations: Any) -> None:
        self.is_granted = True

    def deny(self, note: str) -> None:
        raise AssertionError(note)


def run(handle: Any, jobs: list[Json]) -> Json:
    """Run jobs until all that can end have ended."""
    queue, waiting = Queue(handle), dict[int, Alloc]()
    ends = dict[int, float]()
    started, promised = dict[int, Any](), []
    lasts = {job["id"]: job["lasts"] for job in jobs}
    events = [(job["time"], "submit", job["id"], job) for job in jobs]
    heapq.heapify(events)
    while events:
        queue.time, what, jobid, job = heapq.heappop(events)
        if what == "end":
            queue.free(jobid, None, final=True)
        else:
            alloc = waiting[jobid] = Alloc(job)
            priority, user = job["priority"], job["user"]
            queue.alloc(alloc, jobid, priority, user, jobid, job["jobspec"])
        for _ in queue.schedule():
            pass
        for jobid in [jobid for jobid, each in waiting.items() if each.is_granted]:
            request = parse(waiting.pop(jobid).job["jobspec"])
            if request.duration:
                ends[jobid] = queue.time + request.duration
            started[jobid] = queue.time, sorted(queue.pool.grants[jobid].nodes)
            heapq.heappush(events, (queue.time + lasts[jobid], "end", jobid, {}))
        if waiting:
            first = min(waiting.values(), key=lambda alloc: alloc.turn).job
            request = queue.pool.bind(parse(first["jobspec"]))
            begin = reserve(queue.pool, request, ends).begin
            if math.isfinite(begin):
                promised.append((queue.time, first["id"], begin))
    return {"started": started, "promised": promised}


def main() -> None:
    # However long it takes to find out what is reserved, that is found out at once.
    setattr(rabbitscheduler, "monotonic", lambda: 0.0)  # noqa: B010
    handle = flux.Flux("loop://")
    handle.conf_get = lambda key=None, update=False: {}
    json.dump([run(handle, jobs) for jobs in json.load(sys.stdin)], sys.stdout)


if __name__ == "__main__":
    main()
