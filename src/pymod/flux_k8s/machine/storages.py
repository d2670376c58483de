# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The Rabbits: their health and their labels, and which ones are out of service.

The Storage objects of the cluster tell how each Rabbit is and which of its compute
nodes are connected to it. Nothing else keeps it, so nothing is lost when the module is
loaded again.
"""

from __future__ import annotations

import json
import syslog
from dataclasses import dataclass, field, replace
from typing import AbstractSet, Any, Callable, Mapping, Optional, Sequence

from flux_k8s.config.context import Context
from flux_k8s.control.kubecalls import KubeCalls, Watched
from flux_k8s.errors import BadObject
from flux_k8s.formats import hostlist
from flux_k8s.json_reader import is_number
from flux_k8s.objects.storage import DISABLED, SERVING, Storage
from flux_k8s.ports import STORAGE, Encoded, KubeError, Seen
from flux_k8s.rules.agreement import Sizes
from flux_k8s.text import SHOWN, printable

ABSENT = "not there"
"""The state of a Rabbit that the mapping has and Kubernetes does not."""

NEW = "without a status"
"""The state of a Rabbit whose Storage is new: DWS has not said yet how it is."""

UNREADABLE = "unreadable"
"""The state of a Rabbit whose Storage is malformed."""

NOT_SHOWN = "unknown"
"""The state of a Rabbit before Kubernetes has shown it."""

KEEPING = SERVING.union(["Disabled", "Drained", UNREADABLE, ABSENT, NEW, NOT_SHOWN])
"""The states in which a Rabbit keeps the storage of the jobs on it. One that is not
there may be missing in a list by mistake."""

ANNOTATION = "flux-framework.readthedocs.io/out-of-service"
"""A JSON object with ``by``, ``at`` (UNIX time) and ``reason``."""


@dataclass(frozen=True)
class Disabled:
    """The instance owner has taken a Rabbit out of service for jobs.

    An annotation of its Storage says so. It outlives the module and the instance, and
    DWS does not read it: DWS still serves the jobs that have storage there.
    (``spec.state: Disabled`` of a Storage is for DWS.)

    Attributes:
        by: who did it.
        at: when (UNIX time).
    """

    by: str
    at: float
    reason: str

    def __str__(self) -> str:
        return f"disabled by {self.by}" + (f": {self.reason}" if self.reason else "")


@dataclass(frozen=True)
class RabbitState:
    """How a Rabbit is.

    Attributes:
        reported: the status, as DWS has it.
        lost: the compute nodes that cannot reach it, with the state of their
            connection.
        labels: of its Storage.
        disabled: who took it out of service for jobs, if anybody did.
        sizes: what its Storage says about its size.
    """

    reported: str
    lost: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    disabled: Optional[Disabled] = None
    sizes: Sizes = Sizes()

    @property
    def status(self) -> str:
        """The status, or who took it out of service for jobs."""
        return self.reported if self.disabled is None else str(self.disabled)

    @property
    def serving(self) -> bool:
        """Whether it takes allocations."""
        return self.reported in SERVING and self.disabled is None

    @property
    def keeps_data(self) -> bool:
        """Whether it keeps the storage of the jobs on it, as far as is known. One that
        was only taken out of service does."""
        return self.reported in KEEPING

    @property
    def well(self) -> bool:
        return self.serving and not self.lost


MISSING = RabbitState(ABSENT)
UNKNOWN = RabbitState(NOT_SHOWN)


def parse_storage(storage: Encoded) -> RabbitState:
    """Read a Storage.

    Raises:
        BadObject: the object does not have the form that its kind prescribes.
    """
    found = Storage.read(storage)
    lost = {
        link.host: link.status
        for link in found.links
        if link.status is not None
        and link.status not in SERVING
        # Else it is no node of Flux.
        and hostlist.is_name(link.host)
    }
    labels = found.metadata.labels or {}
    return RabbitState(
        DISABLED if found.disabled else found.state or NEW,
        lost,
        {key: value or "" for key, value in labels.items()},
        read_note(found.metadata.annotation(ANNOTATION)),
        _sizes(found),
    )


def _sizes(storage: Storage) -> Sizes:
    """The sizes, if they are well-formed: the Rabbit serves without them."""
    try:
        free, drives = storage.free, storage.drives
    except BadObject:
        return Sizes()
    return Sizes(free, sum(drives) if drives and all(drives) else None)


def read_note(text: Any) -> Optional[Disabled]:
    """Read the annotation; None without one. One that is malformed counts: somebody
    meant to take the Rabbit out of service."""
    if not isinstance(text, str) or not text:
        return None
    try:
        note = json.loads(text)
    except (ValueError, RecursionError):
        note = None
    if not isinstance(note, dict):
        note = {"reason": text}
    at: Any = note.get("at")
    return Disabled(
        printable(str(note.get("by", "unknown")), SHOWN),
        float(at) if is_number(at) else 0.0,
        printable(str(note.get("reason", "")), SHOWN),
    )


class Storages(Watched):
    """Follows the Rabbits.

    Args:
        changed: is called when all Rabbits have been seen, and when one's state has
            changed since.
    """

    kind = STORAGE

    def __init__(self, context: Context, changed: Callable[[], None]) -> None:
        super().__init__(context.kube)
        self._mapping = context.settings.mapping
        self._log = context.log
        self._changed = changed
        self._states: dict[str, RabbitState] = {}

    @property
    def labels(self) -> Mapping[str, Mapping[str, str]]:
        """The labels of each Rabbit of the mapping that takes allocations."""
        states = ((name, self.state(name)) for name in self._mapping.rabbits)
        return {name: state.labels for name, state in states if state.serving}

    @property
    def broken(self) -> Mapping[str, str]:
        """The Rabbits of the mapping that take no allocations, as far as is known, with
        their status."""
        states = ((name, self.state(name)) for name in self._mapping.rabbits)
        return {
            name: state.status
            for name, state in states
            if not (state.serving or state is UNKNOWN)
        }

    @property
    def all_labels(self) -> Mapping[str, Mapping[str, str]]:
        """The labels of each Rabbit that Kubernetes has."""
        return {name: state.labels for name, state in self._states.items()}

    @property
    def sizes(self) -> Mapping[str, Sizes]:
        """What the Storages say about the size of each Rabbit."""
        return {name: state.sizes for name, state in self._states.items()}

    @property
    def absent(self) -> AbstractSet[str]:
        """Those of :attr:`broken` that Kubernetes does not have, or has without a
        status yet: the mapping is wrong, or a list of Storages was."""
        return {name for name, how in self.broken.items() if how in (ABSENT, NEW)}

    @property
    def unwell(self) -> dict[str, RabbitState]:
        """The Rabbits that are not fit for use, or not for all of their nodes."""
        names = dict.fromkeys((*self._states, *self._mapping.rabbits))
        states = ((name, self.state(name)) for name in names)
        return {n: state for n, state in states if not (state.well or state is UNKNOWN)}

    def state(self, rabbit: str) -> RabbitState:
        """How a Rabbit is. Nothing is known of one that Kubernetes lacks until all have
        been seen."""
        known = self.listed and self._mapping.has(rabbit)
        return self._states.get(rabbit, MISSING if known else UNKNOWN)

    # What Kubernetes shows

    def event(self, type: str, object: Seen) -> None:
        """A Storage changed."""
        name = object.name
        state = None if type == "DELETED" else self._read(name, object.encoded)
        if state == self._states.get(name):
            return
        if state is None:
            del self._states[name]
        else:
            self._states[name] = state
        if self.listed:
            self._changed()

    def synced(self) -> None:
        super().synced()
        self._changed()

    def _read(self, name: str, storage: Encoded) -> RabbitState:
        """The state of a Rabbit. Fewer bytes are free than the mapping has on each
        with storage, and other ones at each job: these do not count."""
        try:
            state = parse_storage(storage)
        except BadObject as error:
            self._log(syslog.LOG_ERR, str(error), error.reason)
            return RabbitState(UNREADABLE)
        free = max(state.sizes.free, self._mapping.size(name))
        return replace(state, sizes=replace(state.sizes, free=free))


async def annotate(
    kube: KubeCalls, namespace: str, names: Sequence[str], note: Optional[Disabled]
) -> None:
    """Write the annotation to the Storages of Rabbits, or (None) remove it, one after
    the other: jobs do not wait behind many. Where Kubernetes does not answer, the rest
    is not tried.

    Raises:
        KubeError: at least one of them could not be changed. It names these.
    """
    text = None
    if note is not None:
        text = json.dumps({"by": note.by, "at": note.at, "reason": note.reason})
    patch = {"metadata": {"annotations": {ANNOTATION: text}}}
    failed: list[str] = []
    first: Optional[KubeError] = None
    for number, name in enumerate(names):
        try:
            await kube.patch(STORAGE, namespace, name, patch)
        except KubeError as error:
            failed.append(name)
            first = first or error
            if not error.status:  # a request without an answer may be carried out yet
                left = hostlist.encode([*failed, *names[number + 1 :]])
                text = f"{first}; not known to be done for {left}"
                raise KubeError(first.status, first.reason, text) from None
    if first is not None:
        text = f"{first}; not done for {hostlist.encode(failed)}"
        raise KubeError(first.status, first.reason, text)
