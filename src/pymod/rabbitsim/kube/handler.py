# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""HTTP requests to verbs of the store, and back."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Callable, Optional

from aiohttp import web

from flux_k8s.ports import Json
from rabbitsim.kube import discovery
from rabbitsim.kube.errors import (
    ApiError,
    bad_request,
    method_not_allowed,
    no_such_resource,
    unsupported_media,
)
from rabbitsim.kube.podlogs import read_log
from rabbitsim.kube.routes import Authorizer, Target, authorize, is_set, parse_target
from rabbitsim.kube.store import Store
from rabbitsim.kube.streams import Stream
from rabbitsim.kube.table import table
from rabbitsim.kube.watch import Stored, encode

_log = logging.getLogger(__name__)

_MERGE = "application/merge-patch+json"
_JSON_PATCH = "application/json-patch+json"
_STRATEGIC = "application/strategic-merge-patch+json"
_INITIAL_END = {"k8s.io/initial-events-end": "true"}


@dataclass(frozen=True)
class HttpFault:
    """The faults of one HTTP request, in this order.

    Attributes:
        hang: seconds of silence before anything else happens.
        status: refuse with this HTTP status, not carrying out the request;
            ``retry_after`` seconds go into the header of that name.
        close: close the connection without an answer; with ``carried_out``
            only after the request was carried out.
        truncate: send half of the answer, then close the connection.
        malformed: send an answer that is no JSON.
    """

    hang: float = 0.0
    status: int = 0
    retry_after: Optional[int] = None
    close: bool = False
    carried_out: bool = False
    truncate: bool = False
    malformed: bool = False


HttpFaults = Callable[[str, str, Mapping[str, str]], Optional[HttpFault]]
"""``(method, path, query)`` → what goes wrong with the request, or None."""


class Handler:
    """Answers HTTP requests from a store, on the thread that owns it."""

    def __init__(
        self,
        store: Store,
        clock: Callable[[], float],
        tokens: Optional[Mapping[str, str]],
        authorizer: Optional[Authorizer],
        bookmark_every: float,
        watch_timeout: float,
    ) -> None:
        self.store = store
        self.faults: Optional[HttpFaults] = None
        self.streams: set[Stream] = set()
        self._clock = clock
        self._tokens = tokens
        self._authorizer = authorizer
        self._bookmark_every = bookmark_every
        self._watch_timeout = watch_timeout

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        fault: Optional[HttpFault] = None
        if self.faults is not None:
            fault = self.faults(request.method, request.path, request.query)
        if fault is None:
            return await self._respond(request)
        await asyncio.sleep(fault.hang)
        if fault.status:
            return _refuse(fault)
        if fault.close and not fault.carried_out:
            return _cut(request)
        response = await self._respond(request)
        if fault.close:
            return _cut(request)
        return await _corrupt(request, response, fault)

    async def _respond(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            user = self._authenticate(request)
            return await self._route(request, user)
        except ApiError as error:
            return _json(error.status(), error.code)
        except Exception as error:
            if isinstance(error, ConnectionError):
                raise
            _log.exception("%s %s", request.method, request.path)
            failure = ApiError(500, "InternalError", f"internal error: {error!r}")
            return _json(failure.status(), 500)

    def _authenticate(self, request: web.BaseRequest) -> str:
        if self._tokens is None:
            return "system:anonymous"
        user = self._tokens.get(_token(request.headers.get("Authorization", "")))
        if user is None:
            raise ApiError(401, "Unauthorized", "Unauthorized")
        return user

    async def _route(self, request: web.BaseRequest, user: str) -> web.StreamResponse:
        parts = [part for part in request.path.split("/") if part]
        root = parts[0] if parts else ""
        if root == "api" and len(parts) > 2:
            rest = parse_target(self.store.kinds, "", parts[1], parts[2:])
        elif root == "apis" and len(parts) > 3:
            rest = parse_target(self.store.kinds, parts[1], parts[2], parts[3:])
        else:
            return self._discover(request, parts)
        verb = rest.verb(request.method, request.query)
        if self._authorizer is not None:
            authorize(self._authorizer, user, verb, rest)
        if verb == "watch":
            return await self._watch(request, rest)
        body = await _body(request)
        return self._carry_out(request, verb, rest, body)

    def _discover(self, request: web.BaseRequest, parts: list[str]) -> web.Response:
        kinds = self.store.kinds
        path = "/".join(parts)
        if request.method != "GET":
            raise method_not_allowed()
        if path in ("healthz", "livez", "readyz"):
            return web.Response(text="ok")
        documents: dict[str, Callable[[], Json]] = {
            "version": lambda: discovery.VERSION,
            "api": lambda: discovery.api_versions(request.host),
            "apis": lambda: discovery.api_group_list(kinds),
            "openapi/v3": lambda: discovery.open_api_index(kinds),
        }
        for group, version in discovery.groups(kinds).items():
            if group and path == f"apis/{group}":
                return _json(discovery.api_group(group, version))
            prefix = discovery.prefix(group, version)
            resources = discovery.of_version(kinds, group, version)
            if path == prefix:
                name = f"{group}/{version}" if group else version
                return _json(discovery.api_resource_list(resources, name))
            if path == f"openapi/v3/{prefix}":
                return _json(discovery.open_api(resources))
        if path not in documents:
            raise no_such_resource()
        return _json(documents[path]())

    def _carry_out(
        self, request: web.BaseRequest, verb: str, target: Target, body: Any
    ) -> web.Response:
        if verb == "list":
            return self._list(request, target)
        kind, name = target.resource.kind, target.name
        namespace, query = target.namespace or "", request.query
        dry_run = query.get("dryRun") == "All"
        sub = target.subresource
        if sub == "log":
            return self._log(request, verb, target)
        if verb == "get":
            return self._object(request, target, self.store.get(kind, namespace, name))
        if verb == "create":
            created = self.store.create(kind, namespace, body, dry_run=dry_run)
            return self._object(request, target, created, 201)
        if verb == "update":
            obj = self.store.update(
                kind, namespace, name, body, subresource=sub, dry_run=dry_run
            )
            return self._object(request, target, obj)
        if verb == "patch":
            return self._object(
                request, target, self._patch(request, target, body, dry_run)
            )
        options = _delete_options(query, body)
        if verb == "delete":
            return _json(self.store.delete(kind, namespace, name, **options))
        return self._delete_all(request, target, options)

    def _patch(
        self, request: web.BaseRequest, target: Target, body: Any, dry_run: bool
    ) -> Stored:
        resource = target.resource
        accepted = [_JSON_PATCH, _MERGE]
        if not resource.custom:
            accepted.append(_STRATEGIC)
        if request.content_type not in accepted:
            raise unsupported_media(accepted)
        verb: Callable[..., Stored] = self.store.merge_patch
        if request.content_type == _JSON_PATCH:
            verb = self.store.json_patch
        return verb(
            resource.kind,
            target.namespace or "",
            target.name,
            body,
            subresource=target.subresource,
            dry_run=dry_run,
        )

    def _delete_all(
        self, request: web.BaseRequest, target: Target, options: Json
    ) -> web.Response:
        kind = target.resource.kind
        page = self.store.select(kind, target.namespace, **_selectors(request.query))
        for obj in page.items:
            metadata = obj["metadata"]
            self.store.delete(
                kind, metadata.get("namespace", ""), metadata["name"], **options
            )
        return _json(
            {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
        )

    def _log(self, request: web.BaseRequest, verb: str, target: Target) -> web.Response:
        if verb != "get":
            raise method_not_allowed()
        query = request.query
        lines = _number(query, "tailLines", 0) if "tailLines" in query else None
        container = query.get("container", "")
        namespace = target.namespace or ""
        text = read_log(self.store, namespace, target.name, container, lines)
        return web.Response(text=text)

    def _object(
        self,
        request: web.BaseRequest,
        target: Target,
        obj: Stored,
        status: int = 200,
    ) -> web.Response:
        if _wants_table(request):
            meta = {"resourceVersion": obj["metadata"]["resourceVersion"]}
            return _json(self._table(request, target, [obj], meta), status)
        return _raw(obj.encoded(), status)

    def _table(
        self, request: web.BaseRequest, target: Target, items: list[Stored], meta: Json
    ) -> Json:
        include = request.query.get("includeObject", "Metadata")
        return table(target.resource, items, self._clock(), include, meta)

    def _list(self, request: web.BaseRequest, target: Target) -> web.Response:
        query = request.query
        least = query.get("resourceVersion", "")
        if least.isdecimal() and int(least) > self.store.version:
            raise ApiError(
                504,
                "Timeout",
                f"Too large resource version: {least}, current: {self.store.version}",
            )
        page = self.store.select(
            target.resource.kind,
            target.namespace,
            limit=_number(query, "limit", 0),
            token=query.get("continue", ""),
            **_selectors(query),
        )
        meta = page.metadata
        if _wants_table(request):
            return _json(self._table(request, target, page.items, meta))
        head = encode(
            {
                "apiVersion": target.resource.api_version,
                "kind": f"{target.resource.kind.name}List",
                "metadata": meta,
            }
        )
        items = b",".join(obj.encoded() for obj in page.items)
        return _raw(b'%b,"items":[%b]}' % (head[:-1], items))

    async def _watch(
        self, request: web.BaseRequest, target: Target
    ) -> web.StreamResponse:
        query = request.query
        stream = self._stream(request, target)
        try:
            watch = self.store.watch(
                target.resource.kind,
                target.namespace,
                stream.add,
                resource_version=_start(query),
                **_selectors(query),
            )
        except ApiError as error:
            if error.code != 410:
                raise
            stream.fail(error)
            watch = None
        if is_set(query, "sendInitialEvents"):
            stream.bookmark(_INITIAL_END)
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        self.streams.add(stream)
        try:
            await response.prepare(request)
            await stream.send(response)
        finally:
            self.streams.discard(stream)
            if watch is not None:
                watch.stop()
        return response

    def _stream(self, request: web.BaseRequest, target: Target) -> Stream:
        query = request.query
        bookmarks = is_set(query, "allowWatchBookmarks")
        timeout = _number(query, "timeoutSeconds", 0)

        def render_table(obj: Stored) -> bytes:
            meta = {"resourceVersion": obj["metadata"]["resourceVersion"]}
            items = [obj] if "uid" in obj["metadata"] else []
            return encode(self._table(request, target, items, meta))

        return Stream(
            target.resource,
            render_table if _wants_table(request) else Stored.encoded,
            lambda: self.store.version,
            self._bookmark_every if bookmarks else 0.0,
            min(float(timeout) or self._watch_timeout, self._watch_timeout),
        )


def _raw(body: bytes, status: int = 200) -> web.Response:
    return web.Response(body=body, status=status, content_type="application/json")


def _json(document: Any, status: int = 200) -> web.Response:
    return _raw(encode(document), status)


async def _body(request: web.BaseRequest) -> Any:
    """The JSON of the body, or None when there is none."""
    data = await request.read()
    if not data:
        return None
    try:
        return json.loads(data)
    except ValueError as error:
        raise bad_request(f"the body of the request is no JSON: {error}") from None


def _token(authorization: str) -> str:
    """The bearer token, or the password of basic authentication: over plain
    HTTP kubectl sends nothing else."""
    scheme, _, credentials = authorization.partition(" ")
    if scheme == "Bearer":
        return credentials.strip()
    if scheme == "Basic":
        with contextlib.suppress(ValueError):
            return base64.b64decode(credentials).decode().partition(":")[2]
    return ""


def _wants_table(request: web.BaseRequest) -> bool:
    accept = request.headers.get("Accept", "")
    return "as=Table" in accept.split(",")[0]


def _number(query: Mapping[str, str], name: str, default: int) -> int:
    text = query.get(name, "")
    if not text:
        return default
    if not text.isdecimal():
        raise bad_request(f"{name} is {json.dumps(text)}: must be a number")
    return int(text)


def _selectors(query: Mapping[str, str]) -> Any:
    return {
        "label_selector": query.get("labelSelector", ""),
        "field_selector": query.get("fieldSelector", ""),
    }


def _start(query: Mapping[str, str]) -> str:
    """The version from which a watch starts. A streaming list starts with all
    objects."""
    if is_set(query, "sendInitialEvents"):
        return ""
    return query.get("resourceVersion", "")


def _delete_options(query: Mapping[str, str], body: Any) -> Json:
    options = body if isinstance(body, dict) else {}
    preconditions = options.get("preconditions") or {}
    propagation = options.get("propagationPolicy") or query.get("propagationPolicy")
    if options.get("orphanDependents") or is_set(query, "orphanDependents"):
        propagation = propagation or "Orphan"
    dry_run = options.get("dryRun") or query.get("dryRun")
    return {
        "propagation": propagation or "Background",
        "uid": preconditions.get("uid") or "",
        "resource_version": preconditions.get("resourceVersion") or "",
        "dry_run": dry_run in ("All", ["All"]),
    }


def _refuse(fault: HttpFault) -> web.Response:
    error = ApiError(fault.status, "InjectedFault", f"injected fault: {fault.status}")
    response = _json(error.status(), fault.status)
    if fault.retry_after is not None:
        response.headers["Retry-After"] = str(fault.retry_after)
    return response


def _cut(request: web.BaseRequest) -> web.Response:
    """Close the connection; the response that is returned goes nowhere."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


async def _corrupt(
    request: web.BaseRequest, response: web.StreamResponse, fault: HttpFault
) -> web.StreamResponse:
    """Truncate an answer, or make it malformed. A watch has sent its own already."""
    if not isinstance(response, web.Response) or not isinstance(response.body, bytes):
        return response
    if fault.malformed:
        response.body = b"{" + response.body
    elif fault.truncate:
        half = web.StreamResponse(status=response.status, headers=response.headers)
        half.content_length = len(response.body)
        await half.prepare(request)
        await half.write(response.body[: len(response.body) // 2])
        if request.transport is not None:
            request.transport.close()
        return half
    return response
