# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The paths of the Kubernetes API, with versions from discovery."""

from __future__ import annotations

import json
import syslog
from collections.abc import Mapping
from typing import Any, Awaitable, Callable, Optional
from urllib.parse import quote

from flux_k8s.kube.session import HttpRequest, Session
from flux_k8s.kube.status import parse_object
from flux_k8s.kube.transfer import Receive, Transfer
from flux_k8s.ports import BAD_RESPONSE, Json, Kind, KubeError, Log, Request
from flux_k8s.reasons import Reason

METHODS = {
    "get": ("GET", ""),
    "list": ("GET", ""),
    "create": ("POST", "application/json"),
    "patch": ("PATCH", "application/merge-patch+json"),
    "patch_status": ("PATCH", "application/merge-patch+json"),
    "delete": ("DELETE", "application/json"),
}
"""The method of HTTP for a verb, and the type of its body. The body of a patch may be
operations, a JSON patch."""

FORCED = "see rabbit.dws_api_version and rabbit.nnf_api_version"


class Api:
    """Requests to an API server about kinds of objects.

    Args:
        versions: the API versions, by group, that are used without discovery.
        log: logs a line.
    """

    def __init__(
        self,
        session: Session,
        versions: Mapping[str, str],
        log: Log,
    ) -> None:
        self._session = session
        self._forced = {"": "v1", **versions}
        self._unchecked = set(versions)
        self._found: dict[str, str] = {}
        self._log = log

    async def carry_out(self, request: Request, body: bytes) -> Any:
        """Carry out a request, whose body as JSON is ``body``, and return the answer.

        Raises:
            KubeError: it failed.
        """
        if request.verb == "log":
            return await self._log_of(request)
        return parse_object(await self.fetch(request, body))

    async def fetch(self, request: Request, body: bytes = b"") -> bytes:
        """Carry out a request that is not for a log. Return the answer as JSON text.

        Raises:
            KubeError: it failed.
        """
        verb, kind, name = request.verb, request.kind, request.name or ""
        method, content_type = METHODS[verb]
        if verb == "patch_status":
            # To the API it is one more object, "status", of a kind whose path is that
            # of its parent.
            parent = f"{kind.plural}/{quote(name, safe='')}"
            kind, name = Kind(kind.group, kind.name, parent), "status"
        if isinstance(request.body, list):
            content_type = "application/json-patch+json"
        given = {
            "labelSelector": request.label_selector,
            "limit": str(request.limit or ""),
            "continue": request.token,
        }
        query = {key: value for key, value in given.items() if value}
        if verb == "delete":
            conditions = {"uid": request.uid} if request.uid else {}
            body = json.dumps({"preconditions": conditions}).encode()

        async def send(api_version: str) -> bytes:
            path = _path(api_version, kind, request.namespace, name)
            text = body
            if verb == "create":
                names = {"apiVersion": api_version, "kind": kind.name}
                text = json.dumps({**json.loads(body), **names}).encode()
            return await self._session.send(
                HttpRequest(method, path, query, text or None, content_type)
            )

        answer = await self._versioned(kind, send)
        await self._check_others(kind.group)
        return answer

    async def _log_of(self, request: Request) -> str:
        """The end of a container's log. The API returns the last lines of it. Each line
        has one character or more, and a character has up to four bytes."""
        characters = request.characters
        query = {"container": request.container, "tailLines": str(characters)}
        space = quote(request.namespace or "", safe="")
        pod = quote(request.name or "", safe="")
        path = f"/api/v1/namespaces/{space}/pods/{pod}/log"
        tail = b""

        def receive(transfer: Transfer, data: bytes) -> None:
            nonlocal tail
            tail = (tail + data)[-4 * characters :]

        await self._session.send(HttpRequest("GET", path, query, receive=receive))
        return tail.decode(errors="replace")[-characters:]

    async def _check_others(self, group: str) -> None:
        """Log the versions that are set and that the server does not have. Those of
        other groups than ``group``, of which it has just answered, may be used only
        when a job needs them."""
        self._unchecked.discard(group)
        while self._unchecked:
            other = self._unchecked.pop()
            try:
                served = _served(await self._get(f"/apis/{other}"))
            except KubeError as error:
                if error.status == 404:
                    served = []
                elif error.status:
                    continue  # discovery is forbidden, say
                else:
                    self._unchecked.add(other)
                    return
            version = self._forced[other]
            if version not in served:
                self._log(
                    syslog.LOG_ERR,
                    f"the API server has no {other}/{version}, but"
                    f" {', '.join(served) or 'no version'}: {FORCED}",
                    Reason.CONFIG_WRONG,
                )

    async def _get(self, path: str) -> Json:
        return parse_object(await self._session.send(HttpRequest("GET", path)))

    async def watch(
        self,
        objects: Request,
        receive: Receive,
        *,
        begun: Callable[[Transfer], None],
        query: Mapping[str, str],
        read_timeout: float,
    ) -> None:
        """Watch until the server ends the watch.

        Args:
            objects: the list of those that are watched.
            receive: gets the watch's lines, each with an event as a JSON object. A
                part that arrives may end within a line.
            begun: gets the exchange before it begins.
            read_timeout: seconds within which the server must send something.

        Raises:
            KubeError: the watch cannot be opened, or was cut.
        """
        query = {"watch": "true", **query}

        async def send(api_version: str) -> bytes:
            path = _path(api_version, objects.kind, objects.namespace, "")
            request = HttpRequest(
                "GET",
                path,
                query,
                receive=receive,
                begun=begun,
                silence=read_timeout,
            )
            return await self._session.send(request)

        await self._versioned(objects.kind, send)

    async def _versioned(
        self, kind: Kind, send: Callable[[str], Awaitable[bytes]]
    ) -> bytes:
        """The result of ``send``, called with the kind's apiVersion. If the server does
        not serve this version any more, it is discovered again."""
        api_version = await self._api_version(kind.group)
        try:
            return await send(api_version)
        except KubeError as error:
            if error.reason != "PathNotFound":
                raise
        self._found.pop(kind.group, None)
        newer = await self._api_version(kind.group)
        if newer == api_version:
            hint = "is the CRD installed?"
            if kind.group in self._forced:
                hint = FORCED
            raise KubeError(
                404,
                "KindNotFound",
                f"the API server has no {kind.plural} in {api_version}: {hint}",
            )
        return await send(newer)

    async def _api_version(self, group: str) -> str:
        version = self._forced.get(group) or self._found.get(group)
        if version is None:
            version = await self._discover(group)
            self._found[group] = version
            text = f"the API server prefers {group}/{version}"
            self._log(syslog.LOG_DEBUG, text, Reason.KUBERNETES_SETTINGS)
        return f"{group}/{version}" if group else version

    async def _discover(self, group: str) -> str:
        try:
            answer = await self._get(f"/apis/{group}")
        except KubeError as error:
            if error.status != 404:
                raise
            raise KubeError(
                404,
                "GroupNotFound",
                f"the API server has no API group {group}: are its CRDs installed?",
            ) from None
        preferred = answer.get("preferredVersion")
        version = preferred.get("version") if isinstance(preferred, dict) else None
        if not isinstance(version, str) or not version:
            raise KubeError(
                0, BAD_RESPONSE, f"/apis/{group} does not name a preferredVersion"
            )
        return version


def _served(group: Json) -> list[str]:
    """The versions that an APIGroup has."""
    entries = group.get("versions")
    found = (
        entry.get("version")
        for entry in (entries if isinstance(entries, list) else [])
        if isinstance(entry, dict)
    )
    return [version for version in found if isinstance(version, str)]


def _path(api_version: str, kind: Kind, namespace: Optional[str], name: str) -> str:
    parts = ["/apis" if "/" in api_version else "/api", api_version]
    if namespace:
        parts += ["namespaces", quote(namespace, safe="")]
    parts.append(kind.plural)
    if name:
        parts.append(quote(name, safe=""))
    return "/".join(parts)
