# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Kubernetes that is not :mod:`rabbitsim.kube`, for a run in real time.

Two siblings of :class:`rabbitsim.system.LocalKube`: :class:`AssetsKube` is a
real API server with the stand-ins for DWS and NNF, :class:`ClusterKube` a whole
cluster with DWS and NNF of its own.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import random
import tempfile
import threading
from functools import partial
from typing import Callable, Optional, Protocol, TypeVar, Union

from flux_k8s.errors import BadObject, ConfigError, DWSError
from flux_k8s.formats.jobid import jobid_of_workflow
from flux_k8s.json_reader import Reader
from flux_k8s.kube.client import KubeClient
from flux_k8s.objects.decoding import plain
from flux_k8s.objects.workflowview import WLM_ID
from flux_k8s.ports import (
    STORAGE,
    WORKFLOW,
    Json,
    Kind,
    KubeDone,
    KubeError,
    Request,
    Seen,
    WatchHandler,
)
from rabbitsim.dws import Controllers, Options, Topology, install
from rabbitsim.dws.files import FileSystems
from rabbitsim.dws.topology import Rabbit
from rabbitsim.kube import crds
from rabbitsim.kube.assets import VARIABLE, ApiServer
from rabbitsim.kube.kinds import load_kinds
from rabbitsim.loop import RealLoop

WORKERS = 8
PATIENCE = 60.0
"""Seconds to wait for an answer that takes a few."""

NAMESPACE = "default"
"""The namespace of Workflows and Storages."""

Changed = Callable[[str, Json], None]
Log = Callable[[str], None]
T = TypeVar("T")


class ClusterError(DWSError):
    """A cluster cannot be used; one line says why."""


class SystemKube(Protocol):
    """Kubernetes, with DWS and NNF in it, for one run."""

    @property
    def name(self) -> str:
        """The name of the Kubernetes."""

    @property
    def storage(self) -> str:
        """The DWS and NNF of the Kubernetes."""

    @property
    def topology(self) -> Topology:
        """The hardware that they know."""

    @property
    def kubeconfig(self) -> Optional[pathlib.Path]:
        """A kubeconfig for it; None for the client's default."""

    def watch(self, kind: Kind, function: Changed) -> None:
        """Have ``function`` called with each change (its type, the object) of
        objects of a kind from now on, on a thread that is not the caller's."""

    def stop(self) -> None:
        """End all that was started for the cluster."""


class _Client:
    """A client and its loop, which is run by the caller at first, then by a
    thread of its own.

    Attributes:
        what: the name of the API server, for errors.
        loop: the clock.
        kube: the client.
    """

    def __init__(self, what: str, kubeconfig: Optional[pathlib.Path], seed: int):
        """Raises :class:`flux_k8s.errors.ConfigError`."""
        self.what = what
        self.loop = RealLoop()
        self._thread: Optional[threading.Thread] = None
        self._stopped = False
        try:
            self.kube = KubeClient(
                None if kubeconfig is None else str(kubeconfig),
                workers=WORKERS,
                loop=self.loop,
                rng=random.Random(seed),
            )
        except BaseException:
            self.loop.close()
            raise

    def wait(self, begin: Callable[[Callable[[T], None]], None]) -> T:
        """Run the loop until a request is answered. Only before :meth:`start`.

        Args:
            begin: sends the request. It gets the function that takes the answer.

        Raises:
            ClusterError: the request got no answer within ``PATIENCE`` seconds.
        """
        answers: list[T] = []
        begin(answers.append)
        if not self.loop.run(lambda: bool(answers), PATIENCE):
            raise ClusterError(f"{self.what} does not answer")
        return answers[0]

    def start(self) -> None:
        """Run the loop on a thread of its own from now on."""
        run = partial(self.loop.run, lambda: self._stopped)
        self._thread = threading.Thread(target=run, name="rabbitsim-client")
        self._thread.daemon = True
        self._thread.start()

    def watch(self, kind: Kind, function: Changed) -> None:
        """As :meth:`SystemKube.watch`. Only after :meth:`start`.

        Raises:
            ClusterError: the watch cannot be opened.
        """
        handler = _Changes(function)

        def open() -> None:
            self.kube.watch(kind, None, handler)

        self.loop.call_soon_threadsafe(open)
        if not handler.opened.wait(PATIENCE):
            raise ClusterError(f"{self.what} lets nobody watch {kind.plural}")

    def stop(self) -> None:
        """End the thread. After that nothing runs the loop."""
        if self._thread is not None:
            self.loop.call_soon_threadsafe(self._stop)
            self._thread.join()

    def _stop(self) -> None:
        self._stopped = True

    def close(self) -> None:
        self.kube.close()
        self.loop.close()


class _Changes(WatchHandler):
    """Passes on changes, but not the objects that exist when the watch is opened."""

    def __init__(self, function: Changed) -> None:
        self.opened = threading.Event()
        self._function = function

    def event(self, type: str, object: Seen) -> None:
        if self.opened.is_set():
            self._function(type, plain(object.encoded))

    def synced(self) -> None:
        self.opened.set()

    def trouble(self, error: KubeError) -> None:
        """The service tells: its own watch is on the same API server."""


class AssetsKube:
    """A real API server on this machine, with our CRDs and controllers.

    Attributes:
        name: which Kubernetes it is.
        storage: which DWS and NNF are in it.
        topology: the hardware that they know.
        kubeconfig: the path of a kubeconfig for it.
    """

    storage = "stand-in DWS and NNF"

    def __init__(
        self,
        topology: Topology,
        *,
        options: Options,
        files: FileSystems,
        seed: int,
        scratch: pathlib.Path,
        log: Log,
    ) -> None:
        """Start it; its files are in a new folder in ``scratch``.

        Raises:
            rabbitsim.kube.assets.AssetsError: the API server does not start.
            ClusterError: the API server does not work as it should.
        """
        self.topology = topology
        with contextlib.ExitStack() as stack:
            folder = pathlib.Path(tempfile.mkdtemp(prefix="kubernetes-", dir=scratch))
            server = ApiServer(folder)
            stack.callback(server.stop)
            server.start()
            self.name = f"kube-apiserver {server.version} from {VARIABLE}"
            self.kubeconfig = folder / "kubeconfig"
            server.write_kubeconfig(self.kubeconfig)
            self._client = client = _Client(self.name, self.kubeconfig, seed)
            stack.callback(client.close)
            _install(client, topology, options)
            controllers = Controllers(
                client.kube,
                client.loop,
                topology=topology,
                options=options,
                rng=random.Random(seed),
                files=files,
                log=log,
            )
            controllers.start()
            stack.callback(controllers.stop)
            client.start()
            stack.callback(client.stop)
            self._stack = stack.pop_all()

    def watch(self, kind: Kind, function: Changed) -> None:
        """As :meth:`SystemKube.watch`."""
        self._client.watch(kind, function)

    def stop(self) -> None:
        """End all of it. Stopping twice does nothing."""
        self._stack.close()


def _install(client: _Client, topology: Topology, options: Options) -> None:
    """Make the kinds, and the objects of the system."""
    error = client.wait(
        partial(crds.install, client.kube, client.loop, load_kinds())
    ) or client.wait(partial(install, client.kube, topology, options.rules))
    if error is not None:
        raise ClusterError(f"{client.what}: {error}")


class ClusterKube:
    """The cluster of ``KUBECONFIG``, with the DWS and NNF that it has.

    Attributes:
        name: which Kubernetes it is.
        storage: which DWS and NNF are in it.
        topology: the hardware, as its Storages tell.
        kubeconfig: None, for the client's default.
    """

    name = "the cluster of KUBECONFIG"
    storage = "its own DWS and NNF"
    kubeconfig = None

    def __init__(self) -> None:
        """Connect to it.

        Raises:
            ClusterError: that fails; the cluster has no Rabbits, or another Flux
                uses it.
        """
        with contextlib.ExitStack() as stack:
            self._client = client = self._connect()
            stack.callback(client.close)
            self.topology = topology_of(self._list(STORAGE))
            if not self.topology.rabbit_of:
                raise ClusterError(
                    f"{self.name}: no Storage in the namespace {NAMESPACE}"
                    " has compute nodes (status.access.computes)"
                )
            self._refuse_company()
            client.start()
            stack.callback(client.stop)
            self._stack = stack.pop_all()

    def watch(self, kind: Kind, function: Changed) -> None:
        """As :meth:`SystemKube.watch`."""
        self._client.watch(kind, function)

    def stop(self) -> None:
        """Let go of the cluster. Stopping twice does nothing."""
        self._stack.close()

    def _connect(self) -> _Client:
        named = os.environ.get("KUBECONFIG", "")
        paths = [os.path.expanduser(path) for path in named.split(os.pathsep)]
        if not any(map(os.path.exists, paths)):
            raise ClusterError(f"KUBECONFIG: {named}: No such file or directory")
        try:
            return _Client(self.name, None, 0)
        except ConfigError as error:
            raise ClusterError(f"KUBECONFIG: {error.problem}") from None

    def _list(self, kind: Kind) -> list[Json]:
        def ask(done: KubeDone) -> None:
            request = Request("list", kind, NAMESPACE)
            self._client.kube.send(request, done, key="list")

        answer: Union[Json, KubeError] = self._client.wait(ask)
        if isinstance(answer, KubeError):
            raise ClusterError(f"{self.name}: {answer}")
        return list(answer.get("items") or ())

    def _refuse_company(self) -> None:
        """A service tears down the Workflows of jobs that its Flux does not
        know. Two Flux instances on one cluster would do so to each other."""
        names = [
            str(workflow["metadata"]["name"])
            for workflow in self._list(WORKFLOW)
            if _is_of_flux(workflow)
        ]
        if names:
            more = f" and {len(names) - 1} more" if names[1:] else ""
            raise ClusterError(
                f"{self.name} has the Workflow {NAMESPACE}/{names[0]}{more} of another"
                " Flux, which would be torn down: expected a cluster that no Flux uses"
            )


def _is_of_flux(workflow: Json) -> bool:
    """Whether a service would think that the Workflow is its own."""
    ours = (workflow.get("spec") or {}).get("wlmID") == WLM_ID
    return ours and jobid_of_workflow(workflow["metadata"]["name"]) is not None


def topology_of(storages: list[Json]) -> Topology:
    """The topology that Storage objects describe.

    ``status.capacity`` is the free capacity; the size of a Rabbit is that of its
    devices.

    Raises:
        ClusterError: they do not describe one.
    """
    try:
        return Topology.of([_rabbit(storage) for storage in storages])
    except (BadObject, ValueError) as error:
        raise ClusterError(f"{ClusterKube.name}: {error}") from None


def _rabbit(storage: Json) -> Rabbit:
    name = str(storage["metadata"]["name"])
    reader = Reader(f"Storage {NAMESPACE}/{name}", storage)
    devices = [
        device.optional_integer("capacity", minimum=0) or 0
        for device in reader.optional_objects("status.devices")
    ]
    free = reader.optional_integer("status.capacity", minimum=0) or 0
    return Rabbit(
        name,
        sum(devices) or free,
        tuple(
            compute.string("name")
            for compute in reader.optional_objects("status.access.computes")
        ),
    )
