# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The numbers of a day. But for those in ``measured``, a seed gives one and the same
numbers each time."""

from __future__ import annotations

import platform
from collections import Counter
from typing import Callable, Mapping, Optional, Sequence

from flux_k8s.ports import Json
from rabbitsim.day.idle import BY_DWS, CAUSES, OURS, RUN
from rabbitsim.day.reactor import PARSE, RECEIVE
from rabbitsim.day.run import BIN, Day
from rabbitsim.day.samples import MINUTE, Sample
from rabbitsim.day.site import EVENTS, HOUR
from rabbitsim.day.system import PARSED
from rabbitsim.dws.topology import TIB
from rabbitsim.processor import model as processor_model

WORST = 10
NOTE = 100
"""Characters of the note of an exception."""


def to_json(day: Day) -> Json:
    """All numbers."""
    return {
        "flux-dws": day.version,
        "site": day.site.to_json(),
        "jobs": _jobs(day),
        "node_hours": _node_hours(day),
        "starts_after_s": day.starts.to_json(),
        "storage_tib": {
            "used": _over_time(day, lambda s: s.used / TIB),
            "kept": _over_time(day, lambda s: s.kept / TIB),
        },
        "workflows": _over_time(day, lambda s: sum(s.workflows.values())),
        "requests": _requests(day),
        "events": _events(day),
        "reactor": _reactor(day),
        "queues": {
            "jobs_for_nodes": _over_time(day, lambda s: s.queued),
            "jobs_for_proposal": _over_time(day, lambda s: s.depend),
            "reactor": _over_time(day, lambda s: s.waiting),
            "copies": _over_time(day, lambda s: s.copies),
        },
        "largest_objects": dict(sorted(day.largest.bytes.items())),
        "copies": {
            "bytes": round(day.system.files.moved),
            "bytes_per_second": _over_time(day, lambda s: s.flow),
        },
        "failures": dict(sorted(day.failures.counts.items())),
        "worst_failures": _worst(day),
        "stuck": day.stuck,
        "series": series(day),
        "measured": _measured(day),
    }


def _jobs(day: Day) -> Json:
    sizes = sorted(job.nodes for job in day.jobs)
    copying = sum(1 for job in day.jobs if job.copy_in or job.copy_out)
    return {
        "submitted": len(day.jobs),
        "with_copies": copying,
        "by_storage": dict(sorted(Counter(job.kind for job in day.jobs).items())),
        "nodes": {"mean": _mean(sizes), "median": sizes[len(sizes) // 2]}
        | {"largest": sizes[-1], "sum": sum(sizes)},
        "ends": dict(sorted(day.hours.ends.items())),
        "hours_until_all_had_ended": round(day.seconds / HOUR, 2),
    }


def _node_hours(day: Day) -> Json:
    hours = day.hours
    idle = {cause: hours.seconds[cause] / HOUR for cause in CAUSES}
    by_dws = sum(idle[state] for state in BY_DWS)
    first = _within(day)
    rows = [row for row in series(day) if row["hour"] < day.site.hours]
    return {
        "of_machine": day.site.nodes * day.site.hours,
        "run": round(hours.seconds[RUN] / HOUR, 1),
        "idle": {cause: round(value, 2) for cause, value in idle.items()},
        "needed_by_dws": round(by_dws, 2),
        "ours_per_cent_of_dws": round(100 * idle[OURS] / by_dws, 3) if by_dws else 0.0,
        "out_of_service": round(sum(s.out for s in first) * MINUTE / HOUR, 1),
        "without_job": round(sum(row["free"] for row in rows) * BIN / 60, 1),
        "our_delays_ms": _percentiles(hours.delays),
    }


def _worst(day: Day) -> list[Json]:
    """The failures that cost the most node hours."""
    found = sorted(day.hours.failed, key=lambda each: -each[0])
    return [
        {"node_hours": round(seconds / HOUR, 1), "nodes": nodes, "note": note[:NOTE]}
        for seconds, nodes, note in found[:WORST]
    ]


def _requests(day: Day) -> Json:
    writes = _over_time(day, lambda s: s.writes / MINUTE)
    return {
        "by_verb": dict(sorted(day.system.requests.items())),
        "objects_in_lists": dict(sorted(day.system.meter.listed.items())),
        **_per_second(day, day.system.by_second),
        "writes_of_all_per_second": writes,
    }


def _events(day: Day) -> Json:
    meter = day.system.meter
    by_kind = {kind: meter.calls[kind] for kind in EVENTS}
    return {"by_kind": by_kind, **_per_second(day, meter.by_second)}


def _reactor(day: Day) -> Json:
    meter = day.system.meter
    return {
        "busy_per_cent": round(100 * meter.busy / day.seconds, 3),
        "waits_ms": _percentiles(meter.waits),
        "things_of_a_job": round(sum(meter.waits.values()) / len(day.jobs), 1),
        "busy_ms_of_a_job": round(1e3 * meter.busy / len(day.jobs), 1),
        "longest_reading_of_R_s": round(max(r.longest for r in day.system.readers), 3),
    }


def _measured(day: Day) -> Json:
    meter = day.system.meter
    processor = dict(meter.processor)
    processor[PARSE] = processor.get(PARSE, 0.0) * PARSED
    sum_of_all = sum(processor.values())
    return {
        "simulation_processor_s": round(day.processor, 1),
        "module_processor_s": {n: round(v, 2) for n, v in sorted(processor.items())},
        "module_processor_ms_of_a_job": round(1e3 * sum_of_all / len(day.jobs), 2),
        "microseconds_each": {
            name: round(1e6 * meter.processor[name] / calls, 1)
            for name, calls in sorted(meter.calls.items())
        },
        "event_bytes": round(meter.bytes / (meter.calls[PARSE] or 1)),
        "received": meter.calls[RECEIVE],
        "processor": processor_model(),
        "python": platform.python_version(),
        "module_data_mib": round(day.sampler.memory, 1),
    }


def series(day: Day) -> list[Json]:
    """The means of each quarter of an hour; of ``waiting`` the most."""
    samples = day.sampler.samples
    parts = range(-(-len(samples) // BIN))
    return [_bin(day, part, samples[part * BIN : (part + 1) * BIN]) for part in parts]


def _bin(day: Day, part: int, samples: Sequence[Sample]) -> Json:
    names = "out depend queued copies".split()
    rates = {"requests": 2, "events": 1, "writes": 1}
    seconds = day.hours.bins.get(part, {})
    nodes = {cause: round(n / (BIN * MINUTE), 2) for cause, n in seconds.items()}
    out = _mean([sample.out for sample in samples])
    free = day.site.nodes - sum(nodes.values()) - out
    return {
        "hour": round(part * BIN / 60, 2),
        "running": nodes.pop(RUN, 0.0),
        "idle": nodes,
        "free": round(free, 1),
        **{name: _mean([getattr(s, name) for s in samples]) for name in names},
        **{
            name: _mean([getattr(s, name) / MINUTE for s in samples], digits)
            for name, digits in rates.items()
        },
        "waiting": max(sample.waiting for sample in samples),
        "flow_gb": _mean([sample.flow / 1e9 for sample in samples]),
        "workflows": _means([sample.workflows for sample in samples]),
    }


def _means(counts: Sequence[Mapping[str, int]]) -> dict[str, float]:
    names = sorted({name for each in counts for name in each})
    return {name: _mean([each.get(name, 0) for each in counts]) for name in names}


def _mean(values: Sequence[float], digits: int = 1) -> float:
    return round(sum(values) / len(values), digits) if values else 0.0


def _within(day: Day) -> list[Sample]:
    """The samples of the time in which jobs were submitted."""
    return [s for s in day.sampler.samples if s.hour <= day.site.hours]


def _over_time(day: Day, value: Callable[[Sample], float]) -> Json:
    found = [value(sample) for sample in _within(day)]
    return {"mean": _mean(found, 2), "peak": round(max(found, default=0), 1)}


def _per_second(day: Day, by_second: Mapping[int, int]) -> Json:
    end = day.begin + day.site.hours * HOUR
    found = [n for second, n in by_second.items() if day.begin <= second < end]
    mean = sum(found) / (day.site.hours * HOUR)
    return {"per_second": {"mean": round(mean, 2), "peak": max(found, default=0)}}


def _percentiles(counts: Mapping[int, int]) -> dict[str, Optional[int]]:
    """The median and more of values that occurred so often."""
    return {
        "median": _percentile(counts, 0.5),
        "p99": _percentile(counts, 0.99),
        "p99.9": _percentile(counts, 0.999),
        "most": max(counts, default=None),
    }


def _percentile(counts: Mapping[int, int], part: float) -> Optional[int]:
    left = part * sum(counts.values())
    for value in sorted(counts):
        left -= counts[value]
        if left <= 0:
            return value
    return None
