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
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Callable, Iterable, Iterator, Mapping, Optional, Sequence

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

Samples = Iterable[tuple[Mapping[str, str], Optional[float]]]
"""Labels, and the value; None where it is not known."""


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
    up = Metric(f"{PREFIX}up", GAUGE, "Whether the dws module answers.")
    found = [up]
    status = 0
    try:
        answer = ask(instance, "dws.metrics", {})
        rabbits = objects(all_rabbits(instance), "rabbits")
        up.add(1)
        found += [*module_metrics(answer), *rabbit_metrics(rabbits)]
    except Refused as error:
        if error.errno == errno.EPERM:
            raise CommandError("only the instance owner may see metrics") from None
        complain(str(error))
        up.add(0)
        status = 1
    output = exposition(found)
    if args.output is None:
        write(output.splitlines())
    else:
        replace_file(args.output, output)
    return status


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

Labels = tuple[tuple[str, str], ...]
"""The names and the values of labels."""


@dataclass
class Metric:
    """A metric with its samples.

    Attributes:
        name: that of a counter ends in ``_total``.
        type: ``gauge``, ``counter`` or ``histogram``.
        help: a sentence.
    """

    name: str
    type: str
    help: str
    _samples: list[tuple[str, Labels, float]] = field(default_factory=list)

    def add(self, value: float, labels: Mapping[str, str] | None = None) -> None:
        """Add a sample."""
        self._samples.append(("", tuple((labels or {}).items()), value))

    def add_histogram(
        self,
        bounds: Sequence[float],
        counts: Sequence[float],
        total: float,
        labels: Mapping[str, str],
    ) -> None:
        """Add the samples of a histogram.

        Args:
            bounds: the upper bounds of the buckets, without the infinite one.
            counts: the number of observations in each bucket, those beyond all bounds
                last.
            total: the sum of the observations.
        """
        given = tuple(labels.items())
        sums = list(accumulate(counts))
        for bound, count in zip([*bounds, math.inf], sums):
            label = ("le", _number(float(bound)))
            self._samples.append(("_bucket", (*given, label), count))
        self._samples.append(("_sum", given, total))
        self._samples.append(("_count", given, sums[-1]))

    def lines(self) -> Iterator[str]:
        """The metric in the text format."""
        text = self.help.replace("\\", r"\\").replace("\n", r"\n")
        yield f"# HELP {self.name} {text}"
        yield f"# TYPE {self.name} {self.type}"
        for suffix, labels, value in self._samples:
            yield f"{self.name}{suffix}{_labels(labels)} {_number(value)}"


def exposition(metrics: Iterable[Metric]) -> str:
    """Metrics in the text format."""
    return "".join(f"{line}\n" for metric in metrics for line in metric.lines())


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_value(value)}"' for name, value in labels) + "}"


def _value(text: str) -> str:
    text = printable(text, SHOWN)
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(value)


# The tables of metrics


@dataclass(frozen=True)
class Row:
    """A metric.

    Attributes:
        samples: those in an answer to ``dws.metrics``, or in the rows of Rabbits.
    """

    name: str
    help: str
    samples: Callable[[Any], Samples]
    type: str = GAUGE

    def metric(self, source: Any) -> Metric:
        """The metric. Values that are not known are left out."""
        found = Metric(PREFIX + self.name, self.type, self.help)
        for labels, value in self.samples(source):
            if value is not None:
                found.add(value, labels)
        return found


def module_metrics(answer: Json) -> Iterator[Metric]:
    """The metrics of an answer to ``dws.metrics``."""
    for row in MODULE:
        yield row.metric(answer)
    yield state_durations(part(answer, "seconds"))


def rabbit_metrics(rabbits: list[Json]) -> Iterator[Metric]:
    """The metrics of the Rabbits in an answer to ``dws.rabbit-list``."""
    for row in RABBITS:
        yield row.metric(rabbits)


def _one(value: Callable[[Json], Optional[float]]) -> Callable[[Json], Samples]:
    """One sample without labels."""
    return lambda answer: [({}, value(answer))]


def _versions(answer: Json) -> Samples:
    labels = {
        "version": text(answer, "version"),
        "plugin": text(answer, "plugin_version"),
        "protocol": str(number(answer, "protocol") or 0),
    }
    yield labels, 1


def _is_up(answer: Json) -> float:
    return float(text(answer, "kubernetes") == "ok" or lacks_jobs(answer))


def _states(answer: Json) -> Samples:
    counts = part(answer, "states")
    for state in (NONE, *STATES):
        yield {"state": state}, number(counts, state) or 0


def _queue(answer: Json) -> Samples:
    for state in ("ready", "busy", "retrying"):
        yield {"state": state}, number(answer, state)


def _queries(answer: Json) -> Samples:
    for state in ("in_work", "held"):
        yield {"state": state}, number(part(answer, "queries"), state)


def _requests(answer: Json) -> Samples:
    requests = part(answer, "requests")
    for verb in sorted(requests):
        results = part(requests, verb)
        for result in sorted(results):
            labels = {"verb": verb, "result": result}
            yield labels, number(results, result)


def _watches(answer: Json) -> Samples:
    lost = part(answer, "watches_lost")
    for kind in sorted(lost):
        yield {"kind": kind}, number(lost, kind)


MODULE = (
    Row(
        "build_info",
        "The versions of the dws module, its plugin, and their protocol.",
        _versions,
    ),
    Row(
        "start_time_seconds",
        "When the dws service was started, as UNIX time. Counters begin at 0 then.",
        _one(number_of("started")),
    ),
    Row("kubernetes_up", "Whether Kubernetes can be reached.", _one(_is_up)),
    Row(
        "jobs_known",
        "0 while Kubernetes can be reached, but dws-jobtap.so has not told its jobs.",
        _one(lambda answer: float(not lacks_jobs(answer))),
    ),
    Row(
        "kubernetes_age_seconds",
        "Seconds since Kubernetes was last heard of, while it cannot be reached.",
        _one(number_of("age")),
    ),
    Row(
        "oldest_state_age_seconds",
        "For how long the state, or the Workflow, that is awaited longest is awaited.",
        _one(number_of("oldest")),
    ),
    Row(
        "jobs_ended_total",
        "Jobs whose storage is gone, or whose Workflow was left to others.",
        _one(number_of("ended")),
        COUNTER,
    ),
    Row(
        "jobs_failed_total",
        "Jobs to which the dws service raised a fatal exception.",
        _one(number_of("failed")),
        COUNTER,
    ),
    Row(
        "kubernetes_requests_in_flight",
        "Requests to Kubernetes without an answer yet.",
        _one(number_of("requests_in_flight")),
    ),
    Row(
        "events_waiting",
        "Answers and events of Kubernetes that the dws service has not handled yet.",
        _one(number_of("events")),
    ),
    Row(
        "jobs",
        "Active jobs with storage, by the state that their Workflow was asked for.",
        _states,
    ),
    Row(
        "queued_jobs",
        "Jobs for which something is to be done (ready), is being done (busy), or has"
        " failed and is tried again (retrying).",
        _queue,
    ),
    Row("queries", "Queries of users that have no answer yet.", _queries),
    Row(
        "kubernetes_requests_total",
        "Answers of Kubernetes, by the verb of the request and the result: ok, an HTTP"
        " status, or no answer.",
        _requests,
        COUNTER,
    ),
    Row(
        "watches_lost_total",
        "How often a watch of Kubernetes has failed and was started again, by kind.",
        _watches,
        COUNTER,
    ),
)


def state_durations(seconds: Json) -> Metric:
    """The histograms of how long the states took."""
    found = Metric(
        f"{PREFIX}state_duration_seconds",
        HISTOGRAM,
        "How long DWS took for the states of Workflows.",
    )
    for state in STATES:
        entry = part(seconds, state)
        bounds, counts = _numbers(entry, "bounds"), _numbers(entry, "counts")
        if len(counts) == len(bounds) + 1:
            total = number(entry, "sum") or 0.0
            found.add_histogram(bounds, counts, total, {"state": state})
    return found


def _numbers(entry: Json, key: str) -> list[float]:
    values = entry.get(key)
    listed = values if isinstance(values, list) else []
    return [value for value in listed if isinstance(value, (int, float))]


def _each(value: Callable[[Json], Optional[float]]) -> Callable[[list[Json]], Samples]:
    """A sample for each Rabbit."""
    return lambda rabbits: [({"rabbit": text(r, "name")}, value(r)) for r in rabbits]


def _serves(rabbit: Json) -> Optional[float]:
    return None if text(rabbit, "state") == UNKNOWN else float(why_out(rabbit) is None)


RABBITS = (
    Row("rabbit_up", "Whether a Rabbit serves jobs that come.", _each(_serves)),
    Row(
        "rabbit_disabled",
        "Whether the instance owner has disabled a Rabbit (flux dws disable).",
        _each(lambda rabbit: float(bool(part(rabbit, "disabled")))),
    ),
    Row(
        "rabbit_disagreement",
        "Whether rabbit.mapping, the scheduler's graph and Kubernetes disagree about a"
        " Rabbit (flux dws rabbits has the reason).",
        _each(lambda rabbit: float(bool(text(rabbit, "disagreement")))),
    ),
    Row(
        "rabbit_capacity_bytes",
        "The bytes of a Rabbit that are for jobs.",
        _each(number_of("capacity")),
    ),
    Row(
        "rabbit_free_bytes",
        "The bytes of a Rabbit that are left.",
        _each(number_of("free")),
    ),
    Row(
        "rabbit_withheld_bytes",
        "The bytes of a Rabbit that the scheduler gives to no job.",
        _each(number_of("withheld")),
    ),
    Row(
        "rabbit_jobs",
        "Active jobs with storage on a Rabbit.",
        _each(number_of("njobs")),
    ),
    Row(
        "rabbit_broken_links",
        "Compute nodes that cannot reach their Rabbit.",
        _each(lambda rabbit: count_hosts(rabbit, "broken")),
    ),
)
