# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What t/*.t ask Kubernetes, without the time it takes to start a client.

usage: kube.py KUBECONFIG SECONDS COMMAND: at most for so long

    get PLURAL [NAME]          objects in all namespaces, as JSON
    create PLURAL              the JSON object of standard input
    may-create PLURAL          whether it would be made, which it is not
    delete PLURAL NAME
    summary                    one line for each Workflow
    version                    changes with each object that is created or changed
    enable RABBIT              as an administrator does after an abort
    disable RABBIT
    label RABBIT KEY=VALUE     of its Storage
    link NODE STATUS           of its PCIe connection: Ready, Offline...
    node NODE                  its SystemStatus
    wait WORKFLOW STATE...     until one of these is its desiredState
    wait-each WORKFLOW=STATE...  until each of these is in its state
    wait-ready WORKFLOW STATE  until DWS has reached this state
    wait-gone WORKFLOW         until it is not there (any more)
    wait-none PLURAL [WORKFLOW...]  until there is none (that is, or is of, one of
                               these)
    wait-node NODE STATUS      until its SystemStatus has this
"""

from __future__ import annotations

import json
import re
import socket
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # nor the time that it takes to import this, http.client or argparse
    from typing import Any, BinaryIO, Callable, Iterator, Optional

    Ready = Callable[[list[Any]], bool]
    """Whether the objects of a kind are as they are to be."""

GROUP = "dataworkflowservices.github.io"
LABEL = f"{GROUP}/workflow.name"
INTERVAL = 0.05
"""Seconds between two watches."""

URL = re.compile(r"https?://(?:.*@)?(?P<host>[^/]*?)(?::(?P<port>\d+))?(?P<path>/.*)?")


class Refused(OSError):
    """What the API server said instead of an answer."""


class Cluster:
    """A cluster with DWS, by its kubeconfig: one with a token, or certificates. A
    request without an answer after ``timeout`` seconds is an error. The objects are
    those of one API group."""

    def __init__(self, kubeconfig: str, timeout: float, group: str = GROUP) -> None:
        self._timeout = timeout
        server, user, self._tls = read(kubeconfig)
        token = user.get("token")
        if "tokenFile" in user:
            with open(user["tokenFile"], encoding="utf-8") as file:
                token = file.read().strip()
        self._headers = f"Authorization: Bearer {token}\r\n" if token else ""
        url = URL.fullmatch(server)
        if url is None:
            raise Refused(f"{server}: is no URL")
        self._host = url["host"].strip("[]")
        self._port = int(url["port"] or (443 if self._tls else 80))
        path = (url["path"] or "").rstrip("/")
        found = self._request(f"{path}/apis/{group}")
        self._api = found["preferredVersion"]["groupVersion"]
        self._base = f"{path}/apis/{self._api}/"

    def _open(
        self,
        path: str,
        timeout: float,
        method: str = "GET",
        body: str = "",
        type: str = "application/json",
    ) -> BinaryIO:
        """The body of a response. In HTTP/1.0 it ends with the connection."""
        with socket.create_connection((self._host, self._port), timeout) as plain:
            connection = (
                self._tls.wrap_socket(plain, server_hostname=self._host)
                if self._tls
                else plain
            )
            data = body.encode()
            head = (
                f"{method} {path} HTTP/1.0\r\nHost: {self._host}:{self._port}\r\n"
                f"{self._headers}Content-Type: {type}\r\n"
                f"Content-Length: {len(data)}\r\n\r\n"
            )
            connection.sendall(head.encode() + data)
            response = connection.makefile("rb")  # keeps the connection open
        status = response.readline().decode().split(maxsplit=2)
        while response.readline().strip():
            pass
        if len(status) < 2 or int(status[1]) >= 400:
            raise refusal(response, " ".join(status[1:]).strip())
        return response

    def _request(self, path: str, **options: Any) -> Any:
        with self._open(path, self._timeout, **options) as response:
            return json.load(response)

    def list(self, plural: str) -> Any:
        """All objects of a kind."""
        return self._request(self._base + plural)

    def follow(self, plural: str, seconds: float) -> Iterator[list[Any]]:
        """All objects of a kind, now and after each change within a time."""
        found = self.list(plural)
        objects = {identity(item): item for item in found["items"]}
        yield list(objects.values())
        version = found["metadata"]["resourceVersion"]
        options = f"watch=1&resourceVersion={version}&timeoutSeconds={int(seconds) + 1}"
        try:
            with self._open(f"{self._base}{plural}?{options}", seconds) as response:
                for line in response:
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        return
                    objects[identity(event["object"])] = event["object"]
                    if event["type"] == "DELETED":
                        del objects[identity(event["object"])]
                    yield list(objects.values())
        except (OSError, ValueError):  # of half a line too
            pass  # who lists again is told what lasts

    def patch(self, path: str, body: Any) -> None:
        """Apply a JSON merge patch."""
        self._send("PATCH", path, body, "application/merge-patch+json")

    def create(self, path: str, body: Any) -> None:
        """Make an object. The path ends with its plural, and options."""
        self._send("POST", path, {"apiVersion": self._api, **body}, "application/json")

    def delete(self, path: str) -> None:
        """Delete an object."""
        self._request(self._base + path, method="DELETE")

    def _send(self, method: str, path: str, body: Any, type: str) -> None:
        self._request(
            self._base + path, method=method, body=json.dumps(body), type=type
        )

    def find(self, plural: str, name: str) -> Optional[Any]:
        """The object of this name, in any namespace."""
        return named(self.list(plural)["items"], name)


def read(path: str) -> tuple[str, dict[str, Any], Any]:
    """The server, the user and, for HTTPS, the TLS context of a kubeconfig.

    The stand-in has no TLS, and its kubeconfig one server and one user. To import
    ``flux_k8s`` for it would take longer than all else, some thousand times in one run
    of the tests.
    """
    with open(path, encoding="utf-8") as file:
        text = file.read()
    found = re.findall(r"^ *(server|token|tokenFile): (\S+)$", text, re.MULTILINE)
    fields = {key: value.strip("'\"") for key, value in found}
    if fields.get("server", "").startswith("http:"):
        return fields.pop("server"), fields, None
    import site

    site.main()  # python -S was faster
    from flux_k8s.errors import ConfigError
    from flux_k8s.kube import kubeconfig

    try:
        config = kubeconfig.read(path)
    except ConfigError as error:
        sys.exit(error.problem)
    assert config is not None
    https = config.server.startswith("https:")
    return config.server, config.user, tls_context(config) if https else None


def tls_context(config: Any) -> Any:
    """The TLS context of a ``flux_k8s.kube.kubeconfig.Kubeconfig``."""
    import ssl

    from flux_k8s.kube.tls import MemoryFile

    context = ssl.create_default_context(cadata=config.ca and config.ca.decode())
    # Python 3.13 refuses certificates that kubectl, and so the site, accepts.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if config.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if config.certificate is not None:
        client = MemoryFile(config.certificate + b"\n" + config.key)
        context.load_cert_chain(client.path)
    return context


def refusal(response: BinaryIO, status: str) -> Refused:
    """The error of a response, in the words of the API server if it sent any."""
    try:
        return Refused(str(json.load(response)["message"]))
    except (ValueError, KeyError):
        return Refused(status or "the connection was closed")


def identity(item: Any) -> tuple[Any, Any]:
    """The identity of an object among all others of its kind."""
    return item["metadata"].get("namespace"), item["metadata"]["name"]


def named(items: list[Any], name: str) -> Optional[Any]:
    """The object of this name."""
    return next((item for item in items if item["metadata"]["name"] == name), None)


def of(items: list[Any], workflows: list[str]) -> list[Any]:
    """The objects that are one of these Workflows, or were made for one."""
    return [
        item
        for item in items
        if item["metadata"]["name"] in workflows
        or item["metadata"].get("labels", {}).get(LABEL) in workflows
    ]


def wait(
    cluster: Cluster, plural: str, ready: Ready, timeout: float, what: str
) -> None:
    """Follow the objects of a kind until they are ``ready``; exit with an error after
    ``timeout`` seconds."""
    deadline = time.monotonic() + timeout
    while (left := deadline - time.monotonic()) > 0:
        if any(ready(items) for items in cluster.follow(plural, left)):
            return
        time.sleep(INTERVAL)
    sys.exit(f"not after {timeout:g} s: {what}")


def desired(items: list[Any], name: str) -> Optional[str]:
    """The desiredState of a Workflow, if it is there."""
    workflow = named(items, name)
    return workflow["spec"]["desiredState"] if workflow else None


def is_ready(items: list[Any], name: str, state: str) -> bool:
    """Whether DWS has brought a Workflow to a state."""
    status = (named(items, name) or {}).get("status", {})
    return status.get("state") == state and status.get("ready") is True


def node_status(items: list[Any], node: str) -> str:
    """The status of a node in the SystemStatus."""
    (status,) = items
    nodes = status.get("data", {}).get("nodes", {})
    return str(nodes.get(node, "Enabled"))


def awaited(command: str, words: list[str]) -> tuple[str, Ready, str]:
    """The condition of a wait: a kind, a test of its objects, and its description."""
    if command == "wait":
        name, *states = words
        what = f"{name} is to be in {' or '.join(states)}"
        return "workflows", lambda items: desired(items, name) in states, what
    if command == "wait-each":
        each = [word.split("=") for word in words]
        return (
            "workflows",
            lambda items: all(desired(items, name) == state for name, state in each),
            f"these are to be there: {' '.join(words)}",
        )
    if command == "wait-ready":
        name, state = words
        what = f"{name} is to be ready in {state}"
        return "workflows", lambda items: is_ready(items, name, state), what
    if command == "wait-gone":
        (name,) = words
        return (
            "workflows",
            lambda items: not named(items, name),
            f"{name} is to be gone",
        )
    if command == "wait-node":
        node, status = words
        what = f"{node} is to be {status}"
        return "systemstatuses", lambda items: node_status(items, node) == status, what
    if command == "wait-none":
        plural, *names = words
        what = f"no {plural}"
        return plural, lambda items: not (of(items, names) if names else items), what
    sys.exit(f"{command}: unknown command\n{__doc__}")


def summary(workflow: Any) -> str:
    """A Workflow in one line, for people."""
    metadata, status = workflow["metadata"], workflow.get("status", {})
    keys = ("state", "ready", "status", "message")
    return " ".join(
        [
            metadata["name"],
            f"desiredState={workflow['spec']['desiredState']}",
            *(f"{key}={status[key]}" for key in keys if key in status),
            f"finalizers={','.join(metadata.get('finalizers', []))}",
            f"deletionTimestamp={metadata.get('deletionTimestamp')}",
        ]
    )


def set_link(cluster: Cluster, node: str, state: str) -> None:
    """Have a Storage show another state of the connection to a node."""
    for storage in cluster.list("storages")["items"]:
        computes = storage["status"]["access"]["computes"]
        for compute in computes:
            if compute["name"] == node:
                compute["status"] = state
                body = {"status": {"access": {"computes": computes}}}
                name = storage["metadata"]["name"]
                cluster.patch(f"namespaces/default/storages/{name}/status", body)


def main() -> None:
    """Carry out one command."""
    config, seconds, command, *words = sys.argv[1:]
    timeout = float(seconds)
    cluster = Cluster(config, timeout)
    if command == "get":
        plural, *names = words
        found = cluster.find(plural, names[0]) if names else cluster.list(plural)
        print(json.dumps(found, indent=1))
    elif command == "create":
        (plural,) = words
        cluster.create(f"namespaces/default/{plural}", json.load(sys.stdin))
    elif command == "may-create":
        (plural,) = words
        path = f"namespaces/default/{plural}?dryRun=All"
        cluster.create(path, json.load(sys.stdin))
    elif command == "delete":
        plural, name = words
        cluster.delete(f"namespaces/default/{plural}/{name}")
    elif command == "summary":
        for workflow in cluster.list("workflows")["items"]:
            print(summary(workflow))
    elif command in ("enable", "disable"):
        (rabbit,) = words
        body = {"spec": {"state": f"{command}d".capitalize()}}
        cluster.patch(f"namespaces/default/storages/{rabbit}", body)
    elif command == "label":
        rabbit, label = words
        key, _, value = label.partition("=")
        body = {"metadata": {"labels": {key: value}}}
        cluster.patch(f"namespaces/default/storages/{rabbit}", body)
    elif command == "link":
        set_link(cluster, *words)
    elif command == "node":
        (node,) = words
        print(node_status(cluster.list("systemstatuses")["items"], node))
    elif command == "version":
        print(cluster.list("workflows")["metadata"]["resourceVersion"])
    else:
        plural, ready, what = awaited(command, words)
        wait(cluster, plural, ready, timeout, what)


if __name__ == "__main__":
    try:
        main()
    except OSError as error:
        sys.exit(str(error))
