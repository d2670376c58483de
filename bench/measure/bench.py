# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The parts that all measurements share."""

from __future__ import annotations

import contextlib
import pathlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rabbitsim.system import mapping_of

from .child import Child
from .hardware import topology


@dataclass(frozen=True)
class Bench:
    """The options of a measurement.

    Attributes:
        quick: fewer jobs and repetitions; the numbers say less.
        scratch: a directory for what is needed.
    """

    quick: bool
    scratch: pathlib.Path

    def number(self, usual: int, quick: int) -> int:
        return quick if self.quick else usual

    def child(self, module: str, **options: Any) -> Child:
        """A program of this package."""
        return Child(module, log=self.scratch / f"{module}.log", **options)

    def logs(self) -> str:
        """The last lines that our programs have logged."""
        text = ""
        for path in sorted(self.scratch.glob("*.log")):
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
            text += "".join(f"\n{path.stem}: {line}" for line in lines[-10:])
        return text

    @contextlib.contextmanager
    def cluster(self, nodes: int, seconds: Any = 0.0, **more: Any) -> Iterator[System]:
        """Kubernetes and DWS, where DWS takes so many seconds for a state."""
        folder = pathlib.Path(tempfile.mkdtemp(dir=self.scratch))
        kubeconfig = str(folder / "kubeconfig")
        with self.child("cluster") as cluster:
            url = cluster.call(
                "start", kubeconfig=kubeconfig, nodes=nodes, seconds=seconds, **more
            )
            rabbits = mapping_of(topology(nodes)).to_json()
            yield System(cluster, folder, kubeconfig, url, rabbits)


@dataclass(frozen=True)
class System:
    """Kubernetes and DWS that run.

    Attributes:
        folder: a directory for what belongs to it.
        rabbits: the rabbitmapping.
    """

    cluster: Child
    folder: pathlib.Path
    kubeconfig: str
    url: str
    rabbits: dict[str, Any]
