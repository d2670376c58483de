# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The system under torture: the simulated one, with requests and steps that fail."""

from __future__ import annotations

import random
from typing import Any, Callable, Optional, Sequence

from flux_k8s.config.settings import Settings
from flux_k8s.jobs.service import Service
from flux_k8s.jobs.step import Next
from flux_k8s.jobs.steps import Steps
from flux_k8s.jobs.workflowinfo import WorkflowInfo
from rabbitsim.dws.options import Fault as DwsFault
from rabbitsim.dws.options import Options, table
from rabbitsim.dws.topology import Topology
from rabbitsim.flux.broker import FluxPort
from rabbitsim.setups import Receiver, every_other
from rabbitsim.system import VirtualSystem
from rabbitsim.torture.api import ApiTroubles, TroubledKube
from rabbitsim.torture.data import FileContents
from rabbitsim.torture.interruptions import FAULT
from rabbitsim.torture.plan import Plan


class FaultySteps:
    """The service's steps, some of which raise an exception.

    Args:
        faults: how many steps of a job are taken before one raises, by its ID.
    """

    def __init__(self, steps: Steps, faults: dict[int, int]) -> None:
        self._steps = steps
        self._faults = faults

    def __getattr__(self, name: str) -> Any:
        return getattr(self._steps, name)

    async def carry_out(self, info: WorkflowInfo, step: Next) -> None:
        left = self._faults.get(info.jobid)
        if left is not None:
            self._faults[info.jobid] = left - 1
            if left <= 0:
                del self._faults[info.jobid]
                raise RuntimeError(FAULT)
        await self._steps.carry_out(info, step)


class TorturedSystem(VirtualSystem):
    """A system whose service meets the troubles of a plan.

    Attributes:
        data: the contents of the file systems.
        step_faults: as :class:`FaultySteps` has them.
        loaded_at: when the module was loaded last.
        died: is called when it has died.
    """

    def __init__(self, plan: Plan, faults: Sequence[DwsFault]) -> None:
        site = plan.site
        timeout = site.epilog_timeout
        self.data = FileContents()
        self.step_faults: dict[int, int] = {}
        self.loaded_at = float("-inf")
        self.died: Callable[[], None] = lambda: None
        super().__init__(
            plan.seed,
            options=Options(latency=table(site.states, spread=0.5), faults=faults),
            config=site.config,
            plugin_conf=None if timeout is None else {"epilog-timeout": timeout},
            message_latency=site.message_latency,
            topology=Topology.regular(site.nodes, site.rabbits, capacity=site.capacity),
            files=self.data,
        )
        self._latency = site.kube_latency
        self._ssds_by_status = 4096 if plan.seed % 2 else 0
        rng = random.Random(f"weather {plan.seed}")
        self.api_troubles = ApiTroubles(self.loop, self.store, rng)
        self.troubled: Optional[TroubledKube] = None

    def workflow_names(self) -> set[str]:
        return {workflow["metadata"]["name"] for workflow in self.workflows()}

    def kill_module(self) -> None:
        super().kill_module()
        self.died()

    def load_module(self) -> None:
        api_troubles = self.api_troubles

        def make(port: FluxPort) -> Receiver:
            self.service_kube = self.troubled = TroubledKube(
                self.store,
                port,
                lambda: api_troubles.latency(self._latency),
                api_troubles.fault,
                api_troubles,
            )
            self.troubled.sent = api_troubles.sent
            settings = Settings(
                self.config,
                self.mapping,
                owner=self.instance.broker.owner,
                ssds_by_status=self._ssds_by_status,
            )
            rng = random.Random(self.rng.getrandbits(32))
            self.service = Service(
                port,
                self.service_kube,
                settings,
                rng=rng,
            )
            reconciler = self.service._reconciler
            steps = FaultySteps(reconciler._steps, self.step_faults)
            # FaultySteps has the methods of Steps, but is no subclass.
            reconciler._steps = steps  # type: ignore[assignment]
            return Receiver(port, self.service, every_other)

        self.loaded_at = self.loop.now()
        self.instance.load_module(make)
