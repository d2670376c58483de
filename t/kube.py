# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What t/*.t ask Kubernetes, without the time it takes to start a client.

usage: kube.py --kubeconfig FILE [--timeout SECONDS] COMMAND

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
    node NODE [STATUS]         its SystemStatus, which becomes STATUS
    wait WORKFLOW STATE...     until one of these is its desiredState
    wait-ready WORKFLOW STATE  until DWS has reached this state
    wait-gone WORKFLOW         until it is not there (any more)
    wait-none PLURAL [WORKFLOW...]  until there is none (that is, or is of, one of
                               these)
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, Callable, Optional

from flux_k8s.errors import ConfigError
from flux_k8s.kube import kubeconfig as _kubeconfig
from flux_k8s.kube import tls as _tls

GROUP = "dataworkflowservices.github.io"
LABEL = f"{GROUP}/workflow.name"
INTERVAL = 0.05


class Cluster:
    """A cluster with DWS, by its kubeconfig: one with a token, or certificates. A
    request without an answer after ``timeout`` seconds is an error."""

    def __init__(self, kubeconfig: str, timeout: float) -> None:
        self._timeout = timeout
        config = _kubeconfig.read(kubeconfig)
        assert config is not None
        url = urllib.parse.urlsplit(config.server)
        self._base = url._replace(netloc=url.netloc.rpartition("@")[2]).geturl()
        self._tls = _tls.context(config)
        token = config.user.get("token")
        if "tokenFile" in config.user:
            with open(config.user["tokenFile"], encoding="utf-8") as file:
                token = file.read().strip()
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        group = self._request(f"apis/{GROUP}")
        self._api = group["preferredVersion"]["groupVersion"]
        self._base += f"/apis/{self._api}"

    def _request(self, path: str, **options: Any) -> Any:
        request = urllib.request.Request(f"{self._base}/{path}", **options)
        for name, value in self._headers.items():
            request.add_header(name, value)
        with urllib.request.urlopen(
            request, context=self._tls, timeout=self._timeout
        ) as response:
            return json.load(response)

    def list(self, plural: str) -> Any:
        """All objects of a kind."""
        return self._request(plural)

    def patch(self, path: str, body: Any) -> None:
        """Apply a JSON merge patch."""
        self._send("PATCH", path, body, "application/merge-patch+json")

    def create(self, plural: str, body: Any, options: str = "") -> None:
        """Make an object."""
        path = f"namespaces/default/{plural}{options}"
        self._send("POST", path, {"apiVersion": self._api, **body}, "application/json")

    def delete(self, plural: str, name: str) -> None:
        """Delete an object."""
        self._request(f"namespaces/default/{plural}/{name}", method="DELETE")

    def _send(self, method: str, path: str, body: Any, type: str) -> None:
        data, headers = json.dumps(body).encode(), {"Content-Type": type}
        self._request(path, method=method, data=data, headers=headers)

    def find(self, plural: str, name: str) -> Optional[Any]:
        """The object of this name, in any namespace."""
        for item in self.list(plural)["items"]:
            if item["metadata"]["name"] == name:
                return item
        return None


def of(items: list[Any], workflows: list[str]) -> list[Any]:
    """The objects that are one of these Workflows, or were made for one."""
    return [
        item
        for item in items
        if item["metadata"]["name"] in workflows
        or item["metadata"].get("labels", {}).get(LABEL) in workflows
    ]


def wait(ready: Callable[[], bool], timeout: float, what: str) -> None:
    """Look until ``ready``; exit with an error after ``timeout`` seconds."""
    deadline = time.monotonic() + timeout
    while not ready():
        if time.monotonic() > deadline:
            sys.exit(f"not after {timeout:g} s: {what}")
        time.sleep(INTERVAL)


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
    parser = argparse.ArgumentParser()
    parser.add_argument("--kubeconfig", required=True)
    parser.add_argument("--timeout", type=float, default=30.0)
    parser.add_argument("command")
    parser.add_argument("words", nargs="*")
    args = parser.parse_args()
    cluster = Cluster(args.kubeconfig, args.timeout)
    if args.command == "get":
        plural, *names = args.words
        found = cluster.find(plural, names[0]) if names else cluster.list(plural)
        print(json.dumps(found, indent=1))
    elif args.command == "create":
        (plural,) = args.words
        cluster.create(plural, json.load(sys.stdin))
    elif args.command == "may-create":
        (plural,) = args.words
        cluster.create(plural, json.load(sys.stdin), "?dryRun=All")
    elif args.command == "delete":
        cluster.delete(*args.words)
    elif args.command == "summary":
        for workflow in cluster.list("workflows")["items"]:
            print(summary(workflow))
    elif args.command in ("enable", "disable"):
        (rabbit,) = args.words
        body = {"spec": {"state": f"{args.command}d".capitalize()}}
        cluster.patch(f"namespaces/default/storages/{rabbit}", body)
    elif args.command == "label":
        rabbit, label = args.words
        key, _, value = label.partition("=")
        body = {"metadata": {"labels": {key: value}}}
        cluster.patch(f"namespaces/default/storages/{rabbit}", body)
    elif args.command == "link":
        set_link(cluster, *args.words)
    elif args.command == "node":
        node, *wanted = args.words
        if wanted:
            body = {"data": {"nodes": {node: wanted[0]}}}
            cluster.patch("namespaces/default/systemstatuses/default", body)
        (status,) = cluster.list("systemstatuses")["items"]
        print(status["data"]["nodes"].get(node, "Enabled"))
    elif args.command == "version":
        print(cluster.list("workflows")["metadata"]["resourceVersion"])
    elif args.command == "wait":
        name, *states = args.words

        def desired() -> bool:
            workflow = cluster.find("workflows", name)
            return workflow is not None and workflow["spec"]["desiredState"] in states

        wait(desired, args.timeout, f"{name} is to be in {' or '.join(states)}")
    elif args.command == "wait-ready":
        name, state = args.words

        def ready() -> bool:
            workflow = cluster.find("workflows", name)
            status = {} if workflow is None else workflow.get("status", {})
            return status.get("state") == state and status.get("ready") is True

        wait(ready, args.timeout, f"{name} is to be ready in {state}")
    elif args.command == "wait-gone":
        (name,) = args.words
        wait(
            lambda: cluster.find("workflows", name) is None,
            args.timeout,
            f"{name} is to be gone",
        )
    elif args.command == "wait-none":
        plural, *names = args.words

        def gone() -> bool:
            items = cluster.list(plural)["items"]
            return not (of(items, names) if names else items)

        wait(gone, args.timeout, f"no {plural}")
    else:
        sys.exit(f"{args.command}: unknown command\n{__doc__}")


def problem(error: OSError) -> str:
    """What went wrong, in the words of the API server if it said something."""
    if isinstance(error, urllib.error.HTTPError):
        try:
            return str(json.load(error)["message"])
        except (ValueError, KeyError):
            pass
    return str(getattr(error, "reason", error))


if __name__ == "__main__":
    try:
        main()
    except ConfigError as error:
        sys.exit(error.problem)
    except OSError as error:
        sys.exit(problem(error))
