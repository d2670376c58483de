# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Requests to Kubernetes that can be awaited, what is watched, and their counts: how
many requests there were by verb and result, how many have no answer yet, and how often
each watch was lost."""

from __future__ import annotations

import abc
from collections import Counter
from functools import partial
from itertools import count
from typing import Any, AsyncIterator, Callable, Optional, Union

from flux_k8s.control.coroutines import Answer, Call
from flux_k8s.json_reader import read_string
from flux_k8s.ports import (
    BAD_RESPONSE,
    POD,
    WORKFLOW,
    Json,
    Kind,
    KindOfRequest,
    Kube,
    KubeError,
    Patch,
    Request,
    Seen,
    Watch,
    gone,
)

OK = "ok"
NO_ANSWER = "no answer"

Page = tuple[list[Json], bool]
"""Objects, and whether there is another page."""

MOST_PAGES = 1000
"""The pages that a list has, at most: a server that always has another one would keep
the job waiting for which it is read."""


def absent_or_forbidden(error: KubeError) -> bool:
    """The object does not exist, not even its kind, or Kubernetes forbids the request.
    A watch that fails by another error tries again by itself."""
    return error.status in (403, 404)


def refused(error: KubeError) -> bool:
    """Kubernetes or DWS will never accept this request as it is. (A plain 403
    is another matter: an administrator can grant the permission.)"""
    if error.status == 403:
        return "admission webhook" in error.message
    return error.status in (400, 422)


def in_question(error: KubeError) -> bool:
    """A patch has failed, maybe since the object is gone, is another one of its name,
    or has changed: a GET tells."""
    return error.status in (400, 404, 409, 422)


def refusal(error: KubeError) -> str:
    """The message of DWS about a request that it refused, for the job's owner."""
    _, found, message = error.message.partition("denied the request: ")
    return f"DWS refuses: {message if found else error.message}"


def check_list(kind: Kind, found: object) -> None:
    """Refuse what is no list of a kind.

    Args:
        found: the kind of the answer.

    Raises:
        KubeError: it is not.
    """
    if found != f"{kind.name}List":
        raise _malformed(f"{kind.name}List")


def _check_items(kind: Kind, some: bool, answer: Json) -> None:
    """Refuse what is no list of objects of a kind. One of none, which a server may
    write as null, has no items then."""
    check_list(kind, answer.get("kind"))
    if answer.get("items") is None:
        answer["items"] = []
    items = answer["items"]
    if not isinstance(items, list) or not all(map(_is_object, items)):
        raise _malformed(f"{kind.name}List")
    if some and not items:
        raise _malformed(f"list of the {kind.plural} that there are")


def _is_object(item: object) -> bool:
    return isinstance(item, dict) and isinstance(item.get("metadata"), dict)


def _check_object(kind: Kind, name: str, expected: Optional[str], answer: Json) -> None:
    """Refuse what is not the object that was asked for. The spec of each Workflow
    says whose it is.

    Args:
        expected: its uid, if that is known.
    """
    metadata = answer.get("metadata")
    found = metadata if isinstance(metadata, dict) else {}
    uid = found.get("uid")
    identified = found.get("name") == name and isinstance(uid, str) and bool(uid)
    identified = identified and expected in (None, uid)
    empty = kind is WORKFLOW and not _is_specified(answer.get("spec"))
    if answer.get("kind") != kind.name or not identified or empty:
        raise _malformed(f"{kind.name} {name}")


def _is_specified(spec: object) -> bool:
    return isinstance(spec, dict) and "wlmID" in spec and "jobID" in spec


def _check_deleted(
    kind: Kind, name: str, expected: Optional[str], answer: Json
) -> None:
    """The same for an object that was deleted: it may be gone."""
    if answer.get("kind") != "Status":
        _check_object(kind, name, expected, answer)


def _of_uid(body: Patch, uid: Optional[str]) -> Patch:
    """A patch that changes no other object than that with the uid (None: any)."""
    if uid is None:
        return body
    if isinstance(body, list):
        return [{"op": "test", "path": "/metadata/uid", "value": uid}, *body]
    return {**body, "metadata": {**body.get("metadata", {}), "uid": uid}}


def _malformed(expected: str) -> KubeError:
    return KubeError(0, BAD_RESPONSE, f"the answer is malformed: it is no {expected}")


class KubeCalls:
    """:class:`flux_k8s.ports.Kube`, for coroutines: a method for each verb.
    :class:`~flux_k8s.ports.KubeError` is raised, also for an answer that is not about
    the object that was asked for: a proxy may answer anything. A ``uid`` is that of the
    object that is meant: another one of its name is not changed, and no answer.
    Requests about one object are carried out one after the other.

    Attributes:
        recovered: is called when a request has succeeded of which the server had wanted
            another one, of the same kind, later.
        watch_changed: is called when a watch was lost, or has listed all objects.
        asked: is called when the first of the requests without an answer is sent.
        answered: is called when the server has answered, be it with an error.
        in_flight: the number of requests without an answer yet.
    """

    def __init__(self, kube: Kube) -> None:
        self._kube = kube
        self._results: dict[str, dict[str, int]] = {}
        self._lost: Counter[str] = Counter()
        self._apart = count()
        self.in_flight = 0
        self._wanted_later: set[KindOfRequest] = set()
        self.recovered: Callable[[KindOfRequest], None] = lambda request: None
        self.watch_changed: Callable[[Watched], None] = lambda watched: None
        self.asked: Callable[[], None] = lambda: None
        self.answered: Callable[[], None] = lambda: None

    def metrics(self) -> Json:
        """``requests``: for each verb the number of answers by result, which is ``ok``,
        ``no answer`` or the HTTP status; ``requests_in_flight``: the number of those
        without an answer yet; ``watches_lost``: how often the watch of each kind has
        failed; ``events``: the answers and events that wait for the service."""
        return {
            "requests_in_flight": self.in_flight,
            "requests": {verb: dict(found) for verb, found in self._results.items()},
            "watches_lost": dict(self._lost),
            "events": self._kube.waiting(),
        }

    def watch(self, watched: Watched, namespace: Optional[str]) -> Watch:
        """As :meth:`flux_k8s.ports.Kube.watch`."""
        return self._kube.watch(watched.kind, namespace, watched)

    def note_watch(self, watched: Watched) -> None:
        """A watch was lost, or has listed all objects."""
        if watched.error is not None:
            self._lost[watched.kind.plural] += 1
        self.watch_changed(watched)

    def create(self, kind: Kind, namespace: str, body: Json) -> Call[Json]:
        name = str(body.get("metadata", {}).get("name"))
        request = Request("create", kind, namespace, body=body)
        return self._send(request, partial(_check_object, kind, name, None), name)

    def get(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        *,
        uid: Optional[str] = None,
        apart: bool = False,
    ) -> Call[Json]:
        """
        Args:
            apart: it does not wait for the other requests about the object.
        """
        request = Request("get", kind, namespace, name)
        check = partial(_check_object, kind, name, uid)
        return self._send(request, check, "" if apart else name)

    def find(self, kind: Kind, namespace: str, name: str) -> Call[Json]:
        """Get an object; an empty one if it does not exist."""

        def start(answer: Answer) -> None:
            def got(result: Union[Json, KubeError]) -> None:
                lacks = isinstance(result, KubeError) and gone(result)
                answer({} if lacks else result)

            self.get(kind, namespace, name).start(got)

        return Call(start)

    def list(
        self,
        kind: Kind,
        namespace: Optional[str],
        *,
        label_selector: str = "",
        limit: int = 0,
        token: str = "",
        some: bool = False,
        certain: bool = False,
    ) -> Call[Json]:
        """
        Args:
            some: by what else is known there are some: a list of none is no answer.
            certain: that there are none counts if another list says so, too: one answer
                may be wrong.
        """

        request = Request(
            "list",
            kind,
            namespace,
            label_selector=label_selector,
            limit=limit,
            token=token,
        )
        check = partial(_check_items, kind, some)
        listed = self._send(request, check)

        def ask_twice(answer: Answer) -> None:
            def got(result: Any) -> None:
                if isinstance(result, Exception) or result["items"]:
                    answer(result)
                else:
                    listed.start(answer)

            listed.start(got)

        return Call(ask_twice) if certain else listed

    async def pages(
        self,
        kind: Kind,
        *,
        limit: int,
        label_selector: str = "",
        certain: bool = False,
    ) -> AsyncIterator[Page]:
        """The objects of a kind in all namespaces, page by page.

        Args:
            limit: the objects in one answer, at most. The module does nothing else
                while it reads one.
            certain: as for :meth:`list`.

        Raises:
            KubeError: an answer, or the list has no end.
        """
        token = ""
        for _ in range(MOST_PAGES):
            page = await self.list(
                kind,
                None,
                label_selector=label_selector,
                limit=limit,
                token=token,
                certain=certain and not token,
            )
            metadata = page.get("metadata")
            known = metadata if isinstance(metadata, dict) else {}
            token = read_string(known, "continue")
            yield page["items"], bool(token)
            if not token:
                return
        text = f"a list of {kind.plural} goes on after {MOST_PAGES} pages"
        raise KubeError(500, "InternalError", text)

    def patch(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        body: Patch,
        *,
        uid: Optional[str] = None,
    ) -> Call[Json]:
        request = Request("patch", kind, namespace, name, _of_uid(body, uid))
        return self._send(request, partial(_check_object, kind, name, uid), name)

    def patch_status(
        self, kind: Kind, namespace: str, name: str, body: Json
    ) -> Call[Json]:
        request = Request("patch_status", kind, namespace, name, body)
        return self._send(request, partial(_check_object, kind, name, None), name)

    def delete(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        *,
        uid: Optional[str] = None,
    ) -> Call[Json]:
        request = Request("delete", kind, namespace, name, uid=uid or "")
        return self._send(request, partial(_check_deleted, kind, name, uid), name)

    def pod_log(
        self, namespace: str, name: str, container: str, *, characters: int
    ) -> Call[str]:
        request = Request(
            "log", POD, namespace, name, container=container, characters=characters
        )
        return self._send(request, lambda text: None)

    def _send(
        self, request: Request, check: Callable[[Any], None], name: str = ""
    ) -> Call[Any]:
        """A request whose answer is the error of a check, where that raises one: it is
        that of the caller, whose request it was.

        Args:
            name: of the object that it is about; "" for a request that waits for no
                other one.
        """
        about = name or next(self._apart)
        key = f"{request.kind.plural}/{request.namespace}/{about}"
        verb = "patch" if request.verb == "patch_status" else request.verb
        kind = verb, request.kind.plural

        def start(answer: Answer) -> None:
            def got(result: Any) -> None:
                self.in_flight -= 1
                self._count(kind, result)
                if not isinstance(result, KubeError) or result.answered:
                    self.answered()
                is_good = not isinstance(result, Exception)
                try:
                    if is_good:
                        check(result)
                except Exception as error:
                    result = error
                answer(result)
                if is_good and kind in self._wanted_later:
                    self._wanted_later.remove(kind)
                    self.recovered(kind)

            self.in_flight += 1
            if self.in_flight == 1:
                self.asked()
            self._kube.send(request, got, key=key)

        return Call(start)

    def _count(self, kind: KindOfRequest, answer: Any) -> None:
        """Count an answer, and note that the server wants such requests later."""
        result = OK
        if isinstance(answer, KubeError):
            result = str(answer.status) if answer.status else NO_ANSWER
            if answer.retry_after is not None:
                answer.request = kind
                self._wanted_later.add(kind)
        results = self._results.setdefault(kind[0], {})
        results[result] = results.get(result, 0) + 1


class Watched(abc.ABC):
    """The objects of a kind as a watch shows them (a ``WatchHandler``).

    Attributes:
        kind: that of the objects.
        listed: all objects were seen once since the watch was opened.
        error: that by which the watch was lost; None when it has listed all objects
            since.
    """

    kind: Kind

    def __init__(self, kube: KubeCalls) -> None:
        self.listed = False
        self.error: Optional[KubeError] = None
        self._kube = kube
        self._watch: Optional[Watch] = None

    def open(self, namespace: Optional[str] = None) -> None:
        """Begin to watch, unless that is done already.

        Args:
            namespace: None for all namespaces.
        """
        if self._watch is None:
            self._watch = self._kube.watch(self, namespace)

    def close(self) -> None:
        """Watch no more."""
        self.listed = False
        if self._watch is not None:
            self._watch.stop()
            self._watch = None

    @abc.abstractmethod
    def event(self, type: str, object: Seen) -> None:
        """An object has changed."""

    def synced(self) -> None:
        self.listed, self.error = True, None
        self._kube.note_watch(self)

    def trouble(self, error: KubeError) -> None:
        self.error = error
        self._kube.note_watch(self)
