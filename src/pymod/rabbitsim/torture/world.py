# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""A whole system to which a plan happens."""

from __future__ import annotations

from functools import partial
from typing import Callable, Sequence

from flux_k8s.formats import hostlist
from flux_k8s.formats.jobid import f58, workflow_name
from flux_k8s.objects.workflowview import FINALIZER
from flux_k8s.ports import PERSISTENTSTORAGE, STORAGE, SYSTEMSTATUS, WORKFLOW, Json
from rabbitsim.dws.options import Fault as DwsFault
from rabbitsim.flux.events import Event, JobState
from rabbitsim.flux.fluid import FluidGenerator
from rabbitsim.flux.job import Job
from rabbitsim.flux.manager import UPTIME, SubmitError
from rabbitsim.loop import VirtualLoop
from rabbitsim.torture.jobs import PlannedJob
from rabbitsim.torture.plan import Plan
from rabbitsim.torture.rescues import Rescues
from rabbitsim.torture.system import TorturedSystem
from rabbitsim.torture.trouble import Trouble
from rabbitsim.torture.troubles import KINDS
from rabbitsim.torture.troubles.dws import FENCE

ROUND = 600.0
"""Seconds between two rounds of the administrator, who puts nodes and Rabbits back
into service."""


FOREIGN = (("fluxjob-77", "slurm"), ("mine", "flux"))
"""Workflows that are not ours: names, and workload managers."""

PURGED = 7777
"""A job that Flux does not know any more, but whose Workflow exists."""


def jobids(plan: Plan) -> dict[int, int]:
    """The IDs that the plan's jobs are going to have, by their numbers."""
    start = VirtualLoop().now()
    fluids = FluidGenerator(start - UPTIME)
    jobs = sorted(plan.jobs, key=lambda job: job.at)
    return {job.number: fluids.next(start + job.at) for job in jobs}


class World:
    """Carries out a plan. What each kind of trouble does is in
    :mod:`rabbitsim.torture.troubles`.

    Attributes:
        ids: the IDs of the plan's jobs, by their numbers; ``numbers`` the reverse.
        faults: those of DWS.
        steps: how many there were.
        at_event: what is to happen when an event of a job is posted, by its name.
        pauses: how many troubles keep the controllers of DWS from doing anything.
        plugin_outages: when the plugin was not loaded.
        meddled_jobs: the IDs of jobs whose Workflows an administrator took away.
        taken_names: the numbers of jobs whose Workflows' names others have.
        foreign: the names of the Workflows that are not ours.
        lost_nodes: the nodes that were lost, ever.
        aborted: the IDs of jobs whose epilogs somebody gives up.
        given_up: the IDs of jobs whose users have given up their data.
        disabled: the nodes that an operator disabled in SystemStatus, ever;
            ``disabled_now`` those that are.
        filled: when others last filled a Rabbit.
        fenced: the nodes that cannot write any more, though nothing else shows it.
        put_back: when (UNIX time) an administrator last undrained a node, by its host
            name.
        note: takes a line for the trace.
    """

    def __init__(self, plan: Plan, note: Callable[[str], None]) -> None:
        self.plan = plan
        self.ids = jobids(plan)
        self.numbers = {jobid: number for number, jobid in self.ids.items()}
        self.faults: list[DwsFault] = []
        self.system = TorturedSystem(plan, self.faults)
        self.note = note
        self.plugin_outages: list[tuple[float, float]] = []
        self.meddled_jobs: set[int] = set()
        self.taken_names: set[int] = set()
        self.foreign: set[str] = set()
        self.lost_nodes: set[str] = set()
        self.aborted: set[int] = set()
        self.disabled: set[str] = set()
        self.disabled_now: set[str] = set()
        self.put_back: dict[str, float] = {}
        self.fenced: set[str] = set()
        self.system.instance.programs[FENCE] = self._fenced
        self.filled = float("-inf")
        self._start = self.system.loop.now()
        self._armed: dict[tuple[int, int], list[Trouble]] = {}
        self._counting: list[tuple[int, Trouble]] = []
        self.steps = 0
        self.at_event: dict[tuple[int, str], Trouble] = {}
        self.pauses = 0
        self.given_up = Rescues(self.system, plan.seed, note).given_up
        self._schedule()

    def _schedule(self) -> None:
        loop = self.system.loop
        self.system.instance.manager.listeners.append(self._seen)
        for job in self.plan.jobs:
            loop.call_later(job.at, partial(self._submit, job))
        for trouble in self.plan.troubles:
            KINDS[trouble.kind].arm(self, trouble)
        loop.call_later(ROUND, self._round)

    def arm(self, trouble: Trouble) -> None:
        """Let a trouble begin at its time, or at its moment of a job's life."""
        if trouble.at is not None:
            self.later(trouble.at, partial(self.begin, trouble))
        else:
            moment = self.jobid_of(trouble), trouble.events
            self._armed.setdefault(moment, []).append(trouble)

    def begin(self, trouble: Trouble) -> None:
        """Let a trouble begin now."""
        self.note(f"trouble: {trouble}")
        KINDS[trouble.kind].deed(self, trouble)

    def jobid_of(self, trouble: Trouble) -> int:
        """The ID of the job that a trouble is about."""
        assert trouble.job is not None
        return self.ids[trouble.job]

    def later(self, seconds: float, function: Callable[[], None]) -> None:
        self.system.loop.call_later(seconds, function)

    def settle(self) -> None:
        """Make the objects that are there before the service comes."""
        for name, wlm in FOREIGN:
            self.make_foreign(name, wlm)
        name = workflow_name(PURGED)
        orphan = _workflow(name, "flux", f58(PURGED))
        orphan["metadata"]["finalizers"] = [FINALIZER]
        self.system.store.create(WORKFLOW, "default", orphan)

    def make_foreign(self, name: str, wlm: str) -> None:
        """Make a Workflow that is not ours."""
        self.foreign.add(name)
        self.system.store.create(WORKFLOW, "default", _workflow(name, wlm, "x"))

    @property
    def now(self) -> float:
        """Seconds since the beginning."""
        return self.system.loop.now() - self._start

    def step(self) -> bool:
        """Let one thing happen; False when there is nothing to happen."""
        if not self.system.loop.step():
            return False
        self.steps += 1
        if self._counting:
            due = [t for step, t in self._counting if step <= self.steps]
            self._counting = [c for c in self._counting if c[0] > self.steps]
            for trouble in due:
                self.begin(trouble)
        return True

    def calm(self) -> None:
        """All trouble is over: nodes, Rabbits and servers that are away come back."""
        self.note("all trouble is over")
        self._counting = []
        self._armed = {}
        self.system.api_troubles.clear()
        self.system.controllers.resume()
        self.load_plugin()
        if not self.system.instance.module_loaded:
            self.system.load_module()
        for host in sorted(self.disabled_now):
            self.enable(host)
        self._free_persistent()
        self.restore()

    def _free_persistent(self) -> None:
        """Let persistent storage go that Workflows use which were deleted with their
        finalizers: nobody else does, and its Teardown waits for that."""
        store = self.system.store
        workflows = {w["metadata"]["name"] for w in store.list(WORKFLOW, None)["items"]}
        for persistent in store.list(PERSISTENTSTORAGE, None)["items"]:
            users = persistent["spec"].get("consumerReferences") or []
            left = [u for u in users if u["name"].rpartition("-")[0] in workflows]
            if left != users:
                body: Json = {"spec": {"consumerReferences": left or None}}
                name = persistent["metadata"]["name"]
                store.merge_patch(PERSISTENTSTORAGE, "default", name, body)

    def _fenced(self, arguments: Sequence[str]) -> str:
        """Which nodes are fenced, for ``rabbit.fence_command``."""
        return "\n".join(self.fenced.intersection(hostlist.decode(arguments[-1])))

    def cancel_all(self) -> None:
        """Cancel all jobs that are still active, once."""
        for job in self.system.instance.manager.active_jobs:
            self.note(f"cancel job {self.numbers[job.id]}")
            self.system.instance.cancel(job.id)

    def is_kept_out(self, host: str) -> bool:
        """Whether a node is drained, or an administrator has put it back since."""
        nodes = self.system.instance.scheduler.pool.nodes
        if any(node.drained is not None for node in nodes if node.host == host):
            return True
        begin = f"resource: drained {host}: "
        drains = [time for time, _, line in self.system.log if line.startswith(begin)]
        put_back = self.put_back.get(host)
        return bool(drains) and put_back is not None and put_back >= drains[-1]

    def restore(self) -> None:
        """Put all nodes and Rabbits back into service."""
        system = self.system
        for node in system.instance.scheduler.pool.nodes:
            if node.drained is not None:
                self.put_back[node.host] = system.loop.now()
                self.fenced.discard(node.host)
                system.instance.undrain(node.host)
        for storage in system.store.list(STORAGE, None)["items"]:
            if storage["spec"].get("state") == "Disabled":
                name = storage["metadata"]["name"]
                body: Json = {"spec": {"state": "Enabled"}}
                system.store.merge_patch(STORAGE, "default", name, body)

    def _round(self) -> None:
        self.restore()
        self.system.loop.call_later(ROUND, self._round)

    def _submit(self, job: PlannedJob) -> None:
        try:
            jobid = self.system.instance.submit(self._jobspec(job), userid=job.userid)
        except SubmitError as error:
            self.note(f"job {job.number} is refused: {error}")
            return
        if jobid != self.ids[job.number]:
            raise AssertionError(f"job {job.number} got the ID {jobid}")

    def _jobspec(self, job: PlannedJob) -> Json:
        if job.after not in self.ids:  # or it is left out of the plan
            return job.jobspec
        after = {"scheme": "dws-out", "value": f58(self.ids[job.after])}
        system = {**job.jobspec["attributes"]["system"], "dependencies": [after]}
        return {**job.jobspec, "attributes": {"system": system}}

    def _seen(self, job: Job, event: Event, before: JobState) -> None:
        armed = self._armed.pop((job.id, len(job.events)), [])
        at_once = self.at_event.pop((job.id, event.name), None)
        if at_once is not None and job.active:
            self.begin(at_once)
        for trouble in armed:
            self._counting.append((self.steps + 1 + trouble.skip, trouble))

    # What several troubles do, or end

    def load_module(self) -> None:
        if not self.system.instance.module_loaded:
            self.note("the module is loaded")
            self.system.load_module()

    def load_plugin(self) -> None:
        if self.system.instance.jobtap.plugin is None:
            begin, _ = self.plugin_outages.pop()
            if self.system.loop.now() > begin:
                self.plugin_outages.append((begin, self.system.loop.now()))
            self.note("the plugin is loaded")
            self.system.load_plugin()

    def fence(self, host: str) -> None:
        """Fence a node, as the site's program is to tell."""
        self.fenced.add(host)
        self.system.controllers.rabbits.fence(host)

    def enable(self, host: str) -> None:
        """Enable a node in SystemStatus that an operator has disabled."""
        if host in self.disabled_now:
            self.disabled_now.discard(host)
            self.set_node(host, "Enabled")

    def set_node(self, host: str, status: str) -> bool:
        """Set a node's status in SystemStatus; whether that changed anything."""
        store = self.system.store
        found: Json = store.find(SYSTEMSTATUS, "default", "default") or {}
        nodes = (found.get("data") or {}).get("nodes") or {}
        if nodes.get(host, "Enabled") == status:
            return False
        body: Json = {"data": {"nodes": {host: status}}}
        store.merge_patch(SYSTEMSTATUS, "default", "default", body)
        return True


def _workflow(name: str, wlm: str, jobid: str) -> Json:
    return {
        "metadata": {"name": name},
        "spec": {
            "desiredState": "Proposal",
            "dwDirectives": [],
            "forceReady": False,
            "groupID": 0,
            "jobID": jobid,
            "userID": 0,
            "wlmID": wlm,
        },
    }
