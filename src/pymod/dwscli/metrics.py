# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""``flux dws metrics``: the metrics of the dws module for Prometheus."""

from __future__ import annotations

import argparse
import contextlib
import errno
import math
import os
import tempfile
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Callable, Iterable, Iterator, Mapping, Optional

from dwscli.ended import NONE
from dwscli.fit import why_out
from dwscli.instance import Instance, Refused, all_rabbits, ask
from dwscli.page import lacks_jobs
from dwscli.reading import count_hosts, number, number_of, objects, part, text
from dwscli.terminal import complain, write
from flux_k8s.command import CommandError
from flux_k8s.objects.workflowstate import STATES
from flux_k8s.ports import Json
from flux_k8s.text import SHOWN, printable, quoted

DESCRIPTION = """
Print the metrics of the dws module in the text format of Prometheus. They are for the
instance owner. If the module does not answer, flux_dws_up is 0, there are no others,
and the exit status is 1.
"""

PREFIX = "flux_dws_"
SUFFIX = ".prom"
"""The end of the names of files that node exporter reads."""

MODE = 0o644
"""The permissions of the file: node exporter runs as another user."""

UNKNOWN = "unknown"
"""The state of a Rabbit that Kubernetes has not shown yet."""

Samples = Iterable[tuple[str, Mapping[str, str], Optional[float]]]
"""What comes after the metric's name, labels, and the value; None where it is not
known."""


def add_arguments(args: argparse.ArgumentParser) -> None:
    """Add what ``flux dws metrics`` takes."""
    args.description = DESCRIPTION
    args.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="Write a file, at once as a whole, for the textfile collector of node"
        " exporter; its name ends in .prom",
    )
    args.set_defaults(function=print_metrics)


def print_metrics(args: argparse.Namespace, instance: Instance) -> int:
    """Print the metrics of an instance; the exit status.

    Raises:
        CommandError: the user is not the instance owner, or node exporter would not
            read the file.
        OSError: the file cannot be written.
    """
    check_name(args.output)
    status = 0
    try:
        answer = ask(instance, "dws.metrics", {})
        rabbits = objects(all_rabbits(instance), "rabbits")
        lines = metric_lines(answer, rabbits)
    except Refused as error:
        if error.errno == errno.EPERM:
            raise CommandError("only the instance owner may see metrics") from None
        complain(str(error))
        lines = [*UP.lines(0)]
        status = 1
    if args.output is None:
        write(lines)
    else:
        replace_file(args.output, "".join(f"{line}\n" for line in lines))
    return status


def metric_lines(answer: Json, rabbits: list[Json]) -> list[str]:
    """The metrics of a module that answers, in the text format.

    Args:
        answer: to ``dws.metrics``.
        rabbits: the rows of ``dws.rabbit-list``.
    """
    found = [*UP.lines(1)]
    for table, source in ((MODULE, answer), (RABBITS, rabbits)):
        for metric in table:
            found += metric.lines(source)
    return found


def check_name(path: Optional[str]) -> None:
    """Refuse a file that node exporter would not read. That is one that should not be
    replaced either, such as /dev/stdout.

    Raises:
        CommandError: its name does not end in .prom.
    """
    if path is not None and not path.endswith(SUFFIX):
        raise CommandError(
            f"--output: {quoted(path)} does not end in {SUFFIX}: node exporter would"
            " not read it (without --output, the metrics go to standard output)"
        )


def replace_file(path: str, content: str) -> None:
    """Write a file. Whoever reads it meanwhile has the old one or the new one, and node
    exporter does not read the one that is being written: it does not end in .prom.

    Raises:
        OSError: the file cannot be written. The old one is as before.
    """
    directory, name = os.path.split(path)
    try:
        descriptor, new = tempfile.mkstemp(".new", f".{name}.", directory or ".")
        try:
            with open(descriptor, "w", encoding="utf-8") as file:
                file.write(content)
                os.fchmod(file.fileno(), MODE)
            os.replace(new, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(new)
            raise
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from None


# The text format of Prometheus for metrics, version 0.0.4:
# https://prometheus.io/docs/instrumenting/exposition_formats/

GAUGE, COUNTER, HISTOGRAM = "gauge", "counter", "histogram"


@dataclass(frozen=True)
class Metric:
    """A metric.

    Attributes:
        name: without the prefix; that of a counter ends in ``_total``.
        help: a sentence.
        samples: those in an answer to ``dws.metrics``, or in the rows of Rabbits.
    """

    name: str
    help: str
    samples: Callable[[Any], Samples]
    type: str = GAUGE

    def lines(self, source: Any) -> Iterator[str]:
        """The metric in the text format. Values that are not known are left out."""
        yield f"# HELP {PREFIX}{self.name} {self.help}"
        yield f"# TYPE {PREFIX}{self.name} {self.type}"
        for suffix, labels, value in self.samples(source):
            if value is not None:
                yield f"{PREFIX}{self.name}{suffix}{_labels(labels)} {_number(value)}"


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    words = (f'{name}="{_value(value)}"' for name, value in labels.items())
    return f"{{{','.join(words)}}}"


def _value(text: str) -> str:
    text = printable(text, SHOWN)
    return text.replace("\\", r"\\").replace('"', r"\"")


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(value)


# The tables of metrics


def _one(value: Callable[[Json], Optional[float]]) -> Callable[[Json], Samples]:
    """One sample without labels."""
    return lambda answer: [("", {}, value(answer))]


def _versions(answer: Json) -> Samples:
    labels = {
        "version": text(answer, "version"),
        "plugin": text(answer, "plugin_version"),
        "protocol": str(number(answer, "protocol") or 0),
    }
    yield "", labels, 1


def _is_up(answer: Json) -> float:
    return float(text(answer, "kubernetes") == "ok" or lacks_jobs(answer))


def _states(answer: Json) -> Samples:
    counts = part(answer, "states")
    for state in (NONE, *STATES):
        yield "", {"state": state}, number(counts, state) or 0


def _queue(answer: Json) -> Samples:
    for state in ("ready", "busy", "retrying"):
        yield "", {"state": state}, number(answer, state)


def _queries(answer: Json) -> Samples:
    for state in ("in_work", "held"):
        yield "", {"state": state}, number(part(answer, "queries"), state)


def _requests(answer: Json) -> Samples:
    requests = part(answer, "requests")
    for verb in sorted(requests):
        results = part(requests, verb)
        for result in sorted(results):
            labels = {"verb": verb, "result": result}
            yield "", labels, number(results, result)


def _watches(answer: Json) -> Samples:
    lost = part(answer, "watches_lost")
    for kind in sorted(lost):
        yield "", {"kind": kind}, number(lost, kind)


def _durations(answer: Json) -> Samples:
    """A histogram for each state: how many took up to so long."""
    seconds = part(answer, "seconds")
    for state in STATES:
        entry, labels = part(seconds, state), {"state": state}
        bounds, counts = _numbers(entry, "bounds"), _numbers(entry, "counts")
        if len(counts) != len(bounds) + 1:
            continue
        sums = [*accumulate(counts)]
        for bound, count in zip([*bounds, math.inf], sums):
            yield "_bucket", {**labels, "le": _number(float(bound))}, count
        yield "_sum", labels, number(entry, "sum") or 0.0
        yield "_count", labels, sums[-1]


def _numbers(entry: Json, key: str) -> list[float]:
    values = entry.get(key)
    listed = values if isinstance(values, list) else []
    return [value for value in listed if isinstance(value, (int, float))]


UP = Metric("up", "Whether the dws module answers.", lambda value: [("", {}, value)])

MODULE = (
    Metric(
        "build_info",
        "The versions of the dws module, its plugin, and their protocol.",
        _versions,
    ),
    Metric(
        "start_time_seconds",
        "When the dws service was started, as UNIX time. Counters begin at 0 then.",
        _one(number_of("started")),
    ),
    Metric("kubernetes_up", "Whether Kubernetes can be reached.", _one(_is_up)),
    Metric(
        "jobs_known",
        "0 while Kubernetes can be reached, but dws-jobtap.so has not told its jobs.",
        _one(lambda answer: float(not lacks_jobs(answer))),
    ),
    Metric(
        "kubernetes_age_seconds",
        "Seconds since Kubernetes was last heard of, while it cannot be reached.",
        _one(number_of("age")),
    ),
    Metric(
        "oldest_state_age_seconds",
        "For how long the state, or the Workflow, that is awaited longest is awaited.",
        _one(number_of("oldest")),
    ),
    Metric(
        "jobs_ended_total",
        "Jobs whose storage is gone, or whose Workflow was left to others.",
        _one(number_of("ended")),
        COUNTER,
    ),
    Metric(
        "jobs_failed_total",
        "Jobs to which the dws service raised a fatal exception.",
        _one(number_of("failed")),
        COUNTER,
    ),
    Metric(
        "kubernetes_requests_in_flight",
        "Requests to Kubernetes without an answer yet.",
        _one(number_of("requests_in_flight")),
    ),
    Metric(
        "events_waiting",
        "Answers and events of Kubernetes that the dws service has not handled yet.",
        _one(number_of("events")),
    ),
    Metric(
        "jobs",
        "Active jobs with storage, by the state that their Workflow was asked for.",
        _states,
    ),
    Metric(
        "queued_jobs",
        "Jobs for which something is to be done (ready), is being done (busy), or has"
        " failed and is tried again (retrying).",
        _queue,
    ),
    Metric("queries", "Queries of users that have no answer yet.", _queries),
    Metric(
        "kubernetes_requests_total",
        "Answers of Kubernetes, by the verb of the request and the result: ok, an HTTP"
        " status, or no answer.",
        _requests,
        COUNTER,
    ),
    Metric(
        "watches_lost_total",
        "How often a watch of Kubernetes has failed and was started again, by kind.",
        _watches,
        COUNTER,
    ),
    Metric(
        "state_duration_seconds",
        "How long DWS took for the states of Workflows.",
        _durations,
        HISTOGRAM,
    ),
)
"""Those of an answer to ``dws.metrics``."""


def _each(value: Callable[[Json], Optional[float]]) -> Callable[[list[Json]], Samples]:
    """A sample for each Rabbit."""
    return lambda rabbits: [
        ("", {"rabbit": text(rabbit, "name")}, value(rabbit)) for rabbit in rabbits
    ]


def _serves(rabbit: Json) -> Optional[float]:
    return None if text(rabbit, "state") == UNKNOWN else float(why_out(rabbit) is None)


RABBITS = (
    Metric("rabbit_up", "Whether a Rabbit serves jobs that come.", _each(_serves)),
    Metric(
        "rabbit_disabled",
        "Whether the instance owner has disabled a Rabbit (flux dws disable).",
        _each(lambda rabbit: float(bool(part(rabbit, "disabled")))),
    ),
    Metric(
        "rabbit_disagreement",
        "Whether rabbit.mapping, the scheduler's graph and Kubernetes disagree about a"
        " Rabbit (flux dws rabbits has the reason).",
        _each(lambda rabbit: float(bool(text(rabbit, "disagreement")))),
    ),
    Metric(
        "rabbit_capacity_bytes",
        "The bytes of a Rabbit that are for jobs.",
        _each(number_of("capacity")),
    ),
    Metric(
        "rabbit_free_bytes",
        "The bytes of a Rabbit that are left.",
        _each(number_of("free")),
    ),
    Metric(
        "rabbit_withheld_bytes",
        "The bytes of a Rabbit that the scheduler gives to no job.",
        _each(number_of("withheld")),
    ),
    Metric(
        "rabbit_jobs",
        "Active jobs with storage on a Rabbit.",
        _each(number_of("njobs")),
    ),
    Metric(
        "rabbit_broken_links",
        "Compute nodes that cannot reach their Rabbit.",
        _each(lambda rabbit: count_hosts(rabbit, "broken")),
    ),
)
"""Those of the Rabbits of ``dws.rabbit-list``."""
