# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The text format of Prometheus for metrics, version 0.0.4.

https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Iterable, Iterator, Mapping, Sequence

from flux_k8s.text import SHOWN, printable

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
