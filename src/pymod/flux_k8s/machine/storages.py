# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The Rabbits: their health and their labels.

The Storage objects of the cluster tell how each Rabbit is and which of its compute
nodes are connected to it. Nothing else keeps it, so nothing is lost when the module is
loaded again.
"""

from __future__ import annotations

import syslog
from dataclasses import dataclass, field, replace
from typing import AbstractSet, Callable, Iterator, Mapping, Optional

from flux_k8s.config.context import Context
from flux_k8s.errors import BadObject
from flux_k8s.formats.hostlist import is_name
from flux_k8s.machine.disabled import ANNOTATION, Disabled, read_note
from flux_k8s.objects.storage import DISABLED, SERVING, Storage
from flux_k8s.ports import (
    STORAGE,
    Encoded,
    KubeError,
    Seen,
    Watch,
)
from flux_k8s.rules.agreement import Sizes

ABSENT = "not there"
"""The state of a Rabbit that the mapping has and Kubernetes does not."""

NEW = "without a status"
"""The state of a Rabbit whose Storage is new: DWS has not said yet how it is."""

UNREADABLE = "unreadable"
"""The state of a Rabbit whose Storage is malformed."""

KEEPING = SERVING.union(["Disabled", "Drained", UNREADABLE, ABSENT, NEW])
"""The states in which a Rabbit keeps the storage of the jobs on it. One that is not
there may be missing in a list by mistake."""


@dataclass(frozen=True)
class RabbitState:
    """How a Rabbit is.

    Attributes:
        status: in a word, as DWS has it.
        serving: it takes allocations.
        lost: the compute nodes that cannot reach it, with the state of their
            connection.
        labels: of its Storage.
        reported: the status as DWS has it, where ``status`` is another.
        disabled: who took it out of service for jobs, if anybody did.
        sizes: what its Storage says about its size.
    """

    status: str
    serving: bool
    lost: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    reported: str = ""
    disabled: Optional[Disabled] = None
    sizes: Sizes = Sizes()

    @property
    def as_reported(self) -> str:
        """The status as DWS has it."""
        return self.reported or self.status

    @property
    def well(self) -> bool:
        return self.serving and not self.lost


UNKNOWN = RabbitState("unknown", False)
"""The state of a Rabbit before Kubernetes has shown it."""


def parse_storage(storage: Encoded, name: str) -> RabbitState:
    """Read the Storage of this name.

    Raises:
        BadObject: the object does not have the form that its kind prescribes.
    """
    found = Storage.read(storage)
    status = DISABLED if found.disabled else found.state or NEW
    lost = {
        link.host: link.status
        for link in found.links
        if link.status is not None
        and link.status not in SERVING
        # Else it is no node of Flux.
        and is_name(link.host)
    }
    labels = found.metadata.labels or {}
    disabled = read_note(found.metadata.annotation(ANNOTATION))
    return RabbitState(
        status if disabled is None else str(disabled),
        status in SERVING and disabled is None,
        lost,
        {key: value or "" for key, value in labels.items()},
        status,
        disabled,
        _sizes(found),
    )


def _sizes(storage: Storage) -> Sizes:
    """The sizes, if they are well-formed: the Rabbit serves without them."""
    try:
        free, drives = storage.free, storage.drives
    except BadObject:
        return Sizes()
    return Sizes(free, sum(drives) if drives and all(drives) else None)


class Storages:
    """Follows the Rabbits (a ``WatchHandler``).

    Args:
        watched: is called with an error when the watch was lost, with None when all
            have been seen.
        changed: is called when a Rabbit's state changed.

    Attributes:
        complete: all Storages have been seen once.
        resizes: how often :attr:`sizes` has changed in a way that counts.
    """

    def __init__(
        self,
        context: Context,
        watched: Callable[[Optional[KubeError]], None],
        changed: Callable[[], None],
    ) -> None:
        self._kube = context.kube
        self._mapping = mapping = context.settings.mapping
        self._namespace = context.settings.namespace
        self._log = context.log
        self._watched = watched
        self._changed = changed
        self._states: dict[str, RabbitState] = {}
        self._labels: dict[str, Mapping[str, str]] = {}
        self._unwell: dict[str, RabbitState] = {}
        self._unseen = dict.fromkeys(mapping.rabbits, RabbitState(ABSENT, False))
        self._watch: Optional[Watch] = None
        self.complete = False
        self.resizes = 0

    def start(self) -> None:
        self._watch = self._kube.watch(STORAGE, self._namespace, self)

    def stop(self) -> None:
        if self._watch is not None:
            self._watch.stop()

    @property
    def labels(self) -> Mapping[str, Mapping[str, str]]:
        """The labels of each Rabbit of the mapping that is fit for use."""
        return self._labels

    @property
    def all_labels(self) -> Mapping[str, Mapping[str, str]]:
        """The labels of each Rabbit that Kubernetes has."""
        return {name: state.labels for name, state in self._states.items()}

    @property
    def broken(self) -> Mapping[str, str]:
        """The Rabbits of the mapping that take no allocations, with their status."""
        return {
            name: state.status
            for name, state in self.unwell
            if not state.serving and self._mapping.has(name)
        }

    @property
    def absent(self) -> AbstractSet[str]:
        """Those of :attr:`broken` that Kubernetes does not have, or has without a
        status yet: the mapping is wrong, or a list of Storages was."""
        return {name for name, how in self.broken.items() if how in (ABSENT, NEW)}

    @property
    def unwell(self) -> Iterator[tuple[str, RabbitState]]:
        """The Rabbits that are not fit for use, or not for all of their nodes.
        Nothing is known of a Rabbit until all have been seen."""
        yield from self._unwell.items()
        if self.complete:
            yield from self._unseen.items()

    def state(self, rabbit: str) -> Optional[RabbitState]:
        """How a Rabbit is; None as long as that is not known."""
        unseen = self._unseen.get(rabbit) if self.complete else None
        return self._states.get(rabbit, unseen)

    @property
    def sizes(self) -> Mapping[str, Sizes]:
        """What the Storages say about the size of each Rabbit."""
        return {name: state.sizes for name, state in self._states.items()}

    # What Kubernetes shows: the WatchHandler

    def event(self, type: str, object: Seen) -> None:
        """A Storage changed."""
        name = object.name
        state = None if type == "DELETED" else self._read(name, object.encoded)
        before = self._states.get(name)
        if state == before:
            return
        self._labels.pop(name, None)
        self._unwell.pop(name, None)
        self._unseen.pop(name, None)
        if state is None:
            del self._states[name]
            if self._mapping.has(name):
                self._unseen[name] = RabbitState(ABSENT, False)
        else:
            self._states[name] = state
            if state.serving and self._mapping.has(name):
                self._labels[name] = state.labels
            if not state.well:
                self._unwell[name] = state
        resized = self._resizes(name, before) != self._resizes(name, state)
        if resized:
            self.resizes += 1
        if (
            before is None
            or not before.well
            or state is None
            or not state.well
            or resized
        ):
            self._changed()

    def _resizes(self, name: str, state: Optional[RabbitState]) -> Optional[Sizes]:
        """The sizes that count: fewer bytes are free than the mapping has on each
        Rabbit with storage, and other ones at each job."""
        if state is None:
            return None
        free = max(state.sizes.free, self._mapping.size(name))
        return replace(state.sizes, free=free)

    def synced(self) -> None:
        self.complete = True
        self._watched(None)
        self._changed()

    def trouble(self, error: KubeError) -> None:
        self._watched(error)

    def _read(self, name: str, storage: Encoded) -> RabbitState:
        try:
            return parse_storage(storage, name)
        except BadObject as error:
            self._log(syslog.LOG_ERR, str(error), error.reason)
            return RabbitState(UNREADABLE, False)
