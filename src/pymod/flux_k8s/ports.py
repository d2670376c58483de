# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The interfaces between the service and the world.

The service sees Flux through :class:`Flux` and Kubernetes through
:class:`Kube`. The broker module and :mod:`flux_k8s.kube.client` implement them for
production, ``rabbitsim`` for machines that have neither.

Every call returns at once. An answer arrives later, through the ``done``
function that was given, on the thread that owns the service. ``done`` is never
called from within the call that it was given to.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Mapping, Optional, Protocol, Union

from flux_k8s.text import NOTE, printable

Json = dict[str, Any]
Patch = Union[dict[str, Any], list[dict[str, Any]]]

DWS_GROUP = "dataworkflowservices.github.io"
NNF_GROUP = "nnf.cray.hpe.com"


@dataclass(frozen=True)
class Kind:
    """A kind of custom resource. Its API version comes from discovery."""

    group: str
    name: str
    plural: str


WORKFLOW = Kind(DWS_GROUP, "Workflow", "workflows")
DIRECTIVEBREAKDOWN = Kind(DWS_GROUP, "DirectiveBreakdown", "directivebreakdowns")
SERVERS = Kind(DWS_GROUP, "Servers", "servers")
COMPUTES = Kind(DWS_GROUP, "Computes", "computes")
CLIENTMOUNT = Kind(DWS_GROUP, "ClientMount", "clientmounts")
STORAGE = Kind(DWS_GROUP, "Storage", "storages")
SYSTEMCONFIGURATION = Kind(DWS_GROUP, "SystemConfiguration", "systemconfigurations")
SYSTEMSTATUS = Kind(DWS_GROUP, "SystemStatus", "systemstatuses")
PERSISTENTSTORAGE = Kind(
    DWS_GROUP, "PersistentStorageInstance", "persistentstorageinstances"
)
DWDIRECTIVERULE = Kind(DWS_GROUP, "DWDirectiveRule", "dwdirectiverules")
NNFDATAMOVEMENT = Kind(NNF_GROUP, "NnfDataMovement", "nnfdatamovements")
SECRET = Kind("", "Secret", "secrets")
POD = Kind("", "Pod", "pods")
"""These two are no custom resources: group "" is the core API."""


class KubeError(Exception):
    """A request to Kubernetes that failed.

    Attributes:
        status: the HTTP status, or 0 when there was no answer (connection
            refused or lost, time-out, TLS failure).
        reason: the ``reason`` of Kubernetes' Status ("NotFound", "Conflict",
            "AlreadyExists", "Invalid", "Expired"...), or a word for what
            happened to the connection.
        message: a sentence for a person, printable whatever the server sent.
        retry_after: seconds that the server asked us to wait, or None.
    """

    def __init__(
        self,
        status: int,
        reason: str = "",
        message: str = "",
        retry_after: Optional[float] = None,
    ) -> None:
        text = message or reason or f"HTTP status {status}"
        super().__init__(printable(text, NOTE))
        self.status = status
        self.reason = reason
        self.message = str(self)
        self.retry_after = retry_after


def gone(error: KubeError) -> bool:
    """The object does not exist. (Where its whole kind is not served, the
    reason is another: that is trouble, and tells nothing about the object.)"""
    return error.status == 404 and error.reason == "NotFound"


class RpcError(Exception):
    """A Flux RPC that failed: ``errnum`` as in errno, ``message`` a sentence."""

    def __init__(self, errnum: int, message: str) -> None:
        super().__init__(printable(message, NOTE))
        self.errnum = errnum
        self.message = str(self)


KubeDone = Callable[[Union[Json, KubeError]], None]
"""Gets the object (a List object for ``list``), or the error."""

LogDone = Callable[[Union[str, KubeError]], None]
"""Gets what a container wrote, or the error."""

RpcDone = Callable[[Union[Json, RpcError]], None]
"""Gets the response's payload, or the error."""


CommitDone = Callable[[Optional[RpcError]], None]
"""Gets None when something was written, else the error."""


Deliver = Callable[[Callable[[], None]], None]
"""Has the service's thread call a function. Any thread may use it."""


class Timer(Protocol):
    """A timer that was started; cancelling it twice, or late, does nothing."""

    def cancel(self) -> None: ...


class Watch(Protocol):
    """A watch that is running. No event is delivered after ``stop``."""

    def stop(self) -> None: ...


class WatchHandler(Protocol):
    """Who is told what a watch saw. Called on the service's thread, in order."""

    def event(self, type: str, object: Json) -> None:
        """An object was ADDED, MODIFIED or DELETED.

        A deletion that was missed while the watch was away arrives as DELETED
        with an object that has its metadata (namespace, name, uid) only. An
        object that was deleted and made again meanwhile arrives as DELETED,
        then ADDED. Events that change nothing (same resourceVersion) are not
        delivered.
        """

    def synced(self) -> None:
        """All objects that existed when the watch was (re)opened were given."""

    def trouble(self, error: KubeError) -> None:
        """The watch was lost or cannot be opened. It goes on trying by itself;
        ``synced`` tells when it is back."""


class Kube(Protocol):
    """Kubernetes. Objects are plain dictionaries, as in its JSON.

    ``key`` names a queue: requests with the same key are carried out one after
    the other, in the order of the calls; those of different keys concurrently.
    Nothing is retried here: who asks knows best.
    """

    def create(
        self, kind: Kind, namespace: str, body: Json, done: KubeDone, *, key: str
    ) -> None:
        """Create an object. ``apiVersion`` and ``kind`` are filled in."""

    def get(
        self, kind: Kind, namespace: str, name: str, done: KubeDone, *, key: str
    ) -> None: ...

    def patch(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        body: Patch,
        done: KubeDone,
        *,
        key: str,
    ) -> None:
        """Apply a JSON merge patch (a dictionary, RFC 7386) or a JSON patch (a
        list of operations, RFC 6902)."""

    def delete(
        self, kind: Kind, namespace: str, name: str, done: KubeDone, *, key: str
    ) -> None: ...

    def list(
        self,
        kind: Kind,
        namespace: Optional[str],
        done: KubeDone,
        *,
        key: str,
        label_selector: str = "",
    ) -> None:
        """List objects of one namespace, or of all (None)."""

    def pod_log(
        self,
        namespace: str,
        name: str,
        container: str,
        done: LogDone,
        *,
        key: str,
        characters: int,
    ) -> None:
        """Get the last ``characters`` of what a container of a pod wrote."""

    def watch(
        self,
        kind: Kind,
        namespace: Optional[str],
        handler: WatchHandler,
        *,
        label_selector: str = "",
    ) -> Watch:
        """List, then watch, for ever (until ``stop``)."""


class Clock(Protocol):
    """Time. ``now`` is UNIX time in seconds."""

    def now(self) -> float: ...

    def call_later(self, delay: float, function: Callable[[], None]) -> Timer: ...


class Flux(Clock, Protocol):
    """The enclosing Flux instance. Job IDs are integers."""

    def log(self, level: int, message: str) -> None:
        """Log a line. ``level`` as in :mod:`syslog`."""

    def rpc(self, topic: str, payload: Json, done: RpcDone) -> None: ...

    def raise_exception(self, jobid: int, type: str, severity: int, note: str) -> None:
        """Raise a job exception. One on a job that has ended is ignored."""

    def post_memo(self, jobid: int, memo: Mapping[str, Any]) -> None:
        """Post a memo to the job's eventlog (RFC 21); null removes a key."""

    def kvs_put(
        self, jobid: int, key: str, value: Optional[str], *, last: bool = False
    ) -> None:
        """Write ``value`` to ``key`` in the job's KVS directory, or (None) unlink
        the key: at once when it is the ``last`` thing to be written before something
        goes, else soon. A failure is logged, nothing more."""

    def kvs_commit(self, jobid: int, key: str, value: str, done: CommitDone) -> None:
        """Write ``value`` to ``key`` in the job's KVS directory at once. Who is told
        of an event that is posted after ``done`` can read it."""

    def drain(self, hosts: str, reason: str, done: CommitDone) -> None:
        """Drain the nodes of an RFC 29 hostlist that are not drained yet. Once
        ``done`` gets None the scheduler knows of it."""

    def undrain(self, hosts: str) -> None:
        """Let jobs use the nodes of an RFC 29 hostlist again. Those that are not
        drained are left alone."""

    def watch_nodes(self, changed: Callable[[], None]) -> Watch:
        """Have ``changed`` called when a node may have come, gone, been drained
        or been undrained. ``resource.status`` then tells how things are."""

    def watch_module(self, name: str, loaded: Callable[[], None]) -> Watch:
        """Have ``loaded`` called whenever a broker module of this name has begun
        to run on this broker. Not for one that does so already."""

    def primary_group(self, userid: int, done: Callable[[Optional[int]], None]) -> None:
        """Tell the primary group of a user, or None when the user is unknown. A user
        database that cannot tell is asked again, until it can."""

    def job_ended(self, jobid: int, done: Callable[[Optional[bool]], None]) -> None:
        """Tell whether a job is INACTIVE or unknown (True), active (False), or
        that Flux could not say (None)."""
