# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The interfaces between the service and the world.

The service sees Flux through :class:`Flux` and Kubernetes through :class:`Kube`.
:mod:`flux_k8s.broker.adapter` and :mod:`flux_k8s.kube.client` implement them for
production, ``rabbitsim`` for machines that have neither.

Every call returns at once. Its answer is passed to ``done`` later, on the service's
thread, and never before the call has returned.
"""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import Any, Callable, Mapping, Optional, Protocol, Sequence, Union

from flux_k8s.reasons import Reason
from flux_k8s.text import NOTE, printable

Json = dict[str, Any]
"""A JSON object."""

Encoded = Union[Json, bytes]
"""A JSON object as text, or as dictionaries and lists."""

Patch = Union[dict[str, Any], list[dict[str, Any]]]
"""A JSON merge patch (an object, RFC 7386), or a JSON patch (operations, RFC 6902)."""

DWS_GROUP = "dataworkflowservices.github.io"
NNF_GROUP = "nnf.cray.hpe.com"


@dataclass(frozen=True)
class Kind:
    """A kind of Kubernetes object. The API version of its group comes from discovery.

    Attributes:
        group: the API group.
        name: the kind, as in ``kind`` of an object.
        plural: the name in paths of the API.
    """

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
"""Secrets and Pods belong to the core API, which is the group ""."""


KindOfRequest = tuple[str, str]
"""The verb and the kind's plural of a request."""


BAD_RESPONSE = "BadResponse"
"""The ``reason`` of an answer that is malformed."""


class KubeError(Exception):
    """A request to Kubernetes that failed.

    Attributes:
        status: the HTTP status, or 0 when there was no answer (connection
            refused or lost, time-out, TLS failure), or none that can be read.
        reason: the ``reason`` of Kubernetes' Status ("NotFound", "Conflict",
            "AlreadyExists", "Invalid", "Expired"...), or a word for the failure of
            the connection ("Timeout", "ConnectionLost"...).
        message: a sentence for a person, always printable.
        retry_after: seconds to wait before the next attempt, by the server's wish, a
            minute at most; None without one.
        request: the verb and the kind's plural of such a request. Where another one
            succeeds, the server is well again, and the wish has ended.
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
        self.request: Optional[KindOfRequest] = None

    @property
    def answered(self) -> bool:
        """Whether there was an answer, be it one that is malformed."""
        return self.status != 0 or self.reason == BAD_RESPONSE


def gone(error: KubeError) -> bool:
    """Whether the error says that an object does not exist. An API server that does not
    serve the kind answers 404 with another reason, which says nothing about the
    object."""
    return error.status == 404 and error.reason == "NotFound"


class RpcError(Exception):
    """A Flux RPC that failed: ``errnum`` as in errno, ``message`` a sentence."""

    def __init__(self, errnum: int, message: str) -> None:
        super().__init__(printable(message, NOTE))
        self.errnum = errnum
        self.message = str(self)


KubeDone = Callable[[Any], None]
"""Gets the object, the list or the text that is the answer, or the KubeError."""

RpcDone = Callable[[Union[Json, RpcError]], None]
"""Receives the payload of the response, or the error."""

Payload = Union[bytes, memoryview]
"""JSON as it came."""

ReadOutput = Callable[[str], Any]
"""Reads what a program has printed. Raises ValueError."""

ProgramDone = Callable[[Any], None]
"""Receives what a program has printed, as it was read, or why it failed."""

CommitDone = Callable[[Optional[RpcError]], None]
"""Receives None after success, else the error."""


Deliver = Callable[[Callable[[], None]], None]
"""Has the service's thread call a function. Any thread may call it."""


class Timer(Protocol):
    """A timer that was started. To cancel it again, or after it has fired, has no
    effect."""

    def cancel(self) -> None:
        """Stop the timer."""


class Watch(Protocol):
    """A watch that is running. No event is delivered after ``stop``."""

    def stop(self) -> None:
        """End the watch."""


@dataclass(frozen=True)
class Seen:
    """An object as a watch shows it.

    Attributes:
        namespace: empty where the object has none.
        encoded: the whole object. :mod:`flux_k8s.objects` decodes it.
    """

    namespace: str
    name: str
    uid: str
    resource_version: str
    encoded: Encoded


class WatchHandler(Protocol):
    """The receiver of a watch's events. Its methods are called on the service's thread,
    in the order of the events."""

    def event(self, type: str, object: Seen) -> None:
        """An object was ADDED, MODIFIED or DELETED.

        A deletion that was missed while the watch was away arrives as DELETED
        with an object that has its metadata (namespace, name, uid) only, and no
        resourceVersion. An
        object that was deleted and made again meanwhile arrives as DELETED,
        then ADDED, and so does one that a list shows as it was before: the cluster was
        set back, or its server lags. Events that change nothing (same resourceVersion)
        are not delivered.
        """

    def synced(self) -> None:
        """All objects that existed when the watch was opened, or opened again, have
        been passed to ``event``."""

    def trouble(self, error: KubeError) -> None:
        """The watch was lost, or cannot be opened. It tries again by itself, and calls
        ``synced`` when it has listed all objects. It is not told that it was lost
        by the same error again until a watch has worked for a while: lists may succeed
        where watches do not."""


@dataclass(frozen=True)
class Request:
    """A request to Kubernetes.

    Attributes:
        verb: ``create``, ``get``, ``patch``, ``patch_status``, ``delete``, ``list`` or
            ``log``.
        namespace: None for all namespaces (list).
        name: of the object, or of the pod (log); None for create and list.
        body: the object (create), which needs no ``apiVersion`` and ``kind``, or what
            is to be changed (patch; patch_status: a merge patch of an object that has
            its status as a subresource).
        uid: the object is deleted if it has it; "" for any.
        label_selector: of a list.
        limit: the most objects in the answer to a list; 0 for all.
            ``metadata.continue`` of one that leaves objects out is the ``token`` for
            the others.
        container, characters: of a log: the most that is got of its end.
    """

    verb: str
    kind: Kind
    namespace: Optional[str]
    name: Optional[str] = None
    body: Optional[Patch] = None
    uid: str = ""
    label_selector: str = ""
    limit: int = 0
    token: str = ""
    container: str = ""
    characters: int = 0


class Kube(abc.ABC):
    """Kubernetes. Objects are plain dictionaries, as in its JSON."""

    @abc.abstractmethod
    def send(self, request: Request, done: KubeDone, *, key: str) -> None:
        """Send a request. A request that fails is not sent again: the caller decides.

        Args:
            key: names a queue: requests with the same key are carried out one after
                the other, in the order of the calls; requests with different keys
                concurrently.
        """

    @abc.abstractmethod
    def watch(
        self,
        kind: Kind,
        namespace: Optional[str],
        handler: WatchHandler,
    ) -> Watch:
        """List objects as ``list`` does, then watch them, until ``Watch.stop``."""

    def waiting(self) -> int:
        """The number of answers, and of portions of events, that wait for their
        turn."""
        return 0


Log = Callable[[int, str, Reason], None]
"""Logs a line: see :meth:`Flux.log`."""


class Clock(Protocol):
    """Time, and timers."""

    def now(self) -> float:
        """The UNIX time, in seconds. It goes on evenly, whatever the system's clock is
        set to while the service runs."""

    def call_later(self, delay: float, function: Callable[[], None]) -> Timer:
        """Call ``function`` after ``delay`` seconds."""


class Flux(Clock, Protocol):
    """The enclosing Flux instance. Job IDs are integers."""

    def log(self, level: int, message: str, reason: Reason) -> None:
        """Log a line, which ends with the reason. ``level`` is one of
        :mod:`syslog`."""

    def rpc(self, topic: str, payload: Json, done: RpcDone) -> None:
        """Send a request to a service of Flux."""

    def raise_exception(
        self, jobid: int, type: str, severity: int, note: str, reason: Reason
    ) -> None:
        """Raise a job exception. It has no effect on a job that has ended. (Its event
        has no place for the reason.)"""

    def post_memo(
        self, jobid: int, memo: Mapping[str, Any], *, volatile: bool = False
    ) -> None:
        """Post a memo to the job's eventlog (RFC 21). A value of None removes a key.
        A ``volatile`` memo is not written to the eventlog, and is lost when the job
        manager is loaded again."""

    def kvs_put(
        self, jobid: int, key: str, value: Optional[str], *, last: bool = False
    ) -> None:
        """Write ``value`` to ``key`` in the job's KVS directory, or unlink the key if
        it is None. The write may wait a moment for others; ``last`` has it committed as
        soon as possible, with all that wait. A failure is only logged."""

    def kvs_commit(self, jobid: int, key: str, value: str, done: CommitDone) -> None:
        """Write ``value`` to ``key`` in the job's KVS directory, in a commit that other
        jobs may share. A reader that learns of an event which was posted after
        ``done`` finds the value, and what was put before."""

    def drain(
        self, hosts: str, reason: str, done: CommitDone, *, overwrite: bool = False
    ) -> None:
        """Drain those nodes of an RFC 29 hostlist that are not drained yet. With
        ``overwrite``, those that are get this reason too. When ``done`` receives None,
        the scheduler knows of the drain."""

    def undrain(self, hosts: str) -> None:
        """Undrain those nodes of an RFC 29 hostlist that are drained."""

    def watch_nodes(self, changed: Callable[[], None]) -> Watch:
        """Call ``changed`` whenever a node may have come online, gone offline, been
        drained or been undrained. ``resource.status`` has the new states."""

    def watch_module(self, name: str, loaded: Callable[[], None]) -> Watch:
        """Call ``loaded`` whenever a broker module of this name starts to run on this
        broker. A module that runs already causes no call."""

    def primary_group(self, userid: int, done: Callable[[Optional[int]], None]) -> None:
        """Pass the primary group of a user to ``done``, or None when the user is
        unknown. A user database that fails is asked again, until it answers."""

    def run_program(
        self,
        argv: Sequence[str],
        timeout: float,
        done: ProgramDone,
        *,
        read: ReadOutput,
        text: Payload = b"",
        thread: str = "programs",
    ) -> None:
        """Run a program, with an absolute path, as the owner of the instance. ``done``
        gets what ``read`` makes of what it prints, or the exception that ``read``
        raises, on another thread. It gets an OSError, whose ``strerror`` has the
        reason, if the program cannot be started, fails, prints what is not UTF-8, or
        more than 1 MiB and than ``text``, or takes longer than ``timeout`` seconds. In
        the latter cases, and at the end of the service, it is killed with the processes
        that it has started.

        Args:
            text: what it finds in its standard input.
            thread: programs with the same one run one after the other.
        """

    def job_ended(self, jobid: int, done: Callable[[Optional[bool]], None]) -> None:
        """Pass to ``done`` whether a job is INACTIVE or unknown (True) or active
        (False); None when Flux cannot answer."""


@dataclass(frozen=True)
class Sender:
    """The sender of a request, as Flux has authenticated it.

    Attributes:
        owner: whether it has the role of the instance owner.
        route: the way back to it, by which its requests are known.
    """

    userid: int
    owner: bool
    route: tuple[bytes, ...] = ()


Respond = Callable[[int, str, Optional[Json]], None]
"""Answers an RPC: errno (0 for success), the error's text, the payload."""
