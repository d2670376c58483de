# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""flux_k8s.machine.nodes: the states of nodes, and their drains."""

from __future__ import annotations

import errno
import gc
import weakref
from typing import Any, Callable, Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_k8s.formats import hostlist
from flux_k8s.machine.nodes import DEBOUNCE, Nodes
from flux_k8s.ports import RpcError
from flux_k8s.reasons import Reason
from flux_k8s.rules.drainreason import (
    IN_USE,
    LOST_CONNECTION,
    NOT_UNMOUNTED,
    drain_reason,
    replacement,
)
from rabbitsim.loop import VirtualLoop

BUSY = RpcError(errno.EAGAIN, "busy")


class Resource:
    """The part of Flux that knows the nodes, and drains all of a list, or none.

    Args:
        refusals: how many requests it refuses at first.

    Attributes:
        drained: why each node is drained.
        down: whether all nodes are offline.
        delay: seconds that it takes to answer with the states.
    """

    def __init__(self, nodes: set[str], refusals: int = 0) -> None:
        self.loop = VirtualLoop(0.0)
        self.now = self.loop.now
        self.call_later = self.loop.call_later
        self.nodes = nodes
        self.refusals = refusals
        self.refused_by = BUSY
        self.drained: dict[str, str] = {}
        self.down = False
        self.asked: list[float] = []
        self.logged: list[str] = []
        self.changed: Callable[[], None] = lambda: None
        self.delay = 0.0

    def undrain(self, hosts: str) -> None:
        for name in hostlist.decode(hosts):
            self.drained.pop(name, None)

    def drain(
        self, hosts: str, reason: str, done: Any, overwrite: bool = False
    ) -> None:
        names = hostlist.decode(hosts)
        error = self._refusal()
        if error is None and not self.nodes.issuperset(names):
            error = RpcError(errno.EINVAL, "unknown host")
        for name in () if error else names:
            if overwrite or name not in self.drained:
                self.drained[name] = reason
        self.loop.call_soon(lambda: done(error))

    def rpc(self, topic: str, payload: Any, done: Any) -> None:
        assert topic == "resource.status"
        hosts = sorted(self.nodes)
        children = {"core": "0"}
        targets: list[Any] = [
            {"rank": str(n), "children": children} for n in range(len(hosts))
        ]
        execution = {"R_lite": targets, "nodelist": hosts}
        drains = {str(hosts.index(h)): {"reason": w} for h, w in self.drained.items()}
        offline = ",".join(each["rank"] for each in targets) if self.down else ""
        status = {
            "R": {"version": 1, "execution": execution},
            "drain": drains,
            "offline": offline,
        }
        answer = self._refusal() or status
        self.loop.call_later(self.delay, lambda: done(answer))

    def watch_nodes(self, changed: Callable[[], None]) -> None:
        self.changed = changed

    def log(self, level: int, message: str, reason: Reason) -> None:
        self.logged.append(message)

    def _refusal(self) -> Optional[RpcError]:
        self.asked.append(self.loop.now())
        return self.refused_by if len(self.asked) <= self.refusals else None


@given(st.lists(st.tuples(st.integers(0, 20), st.booleans()), unique_by=lambda x: x[0]))
def test_a_node_that_flux_lacks_spares_no_other(asked: list[tuple[int, bool]]) -> None:
    there = {f"n{number}" for number, is_there in asked if is_there}
    flux: Any = Resource({"another", *there})
    done: list[None] = []
    hosts = [f"n{number}" for number, _ in asked]
    Nodes(flux, lambda: None).drain(hosts, "broken", done.append)
    flux.loop.run()
    assert flux.drained.keys() == there
    assert done == [None]


def test_a_drain_that_flux_refuses_is_requested_until_flux_carries_it_out() -> None:
    flux: Any = Resource({"n1", "n2"}, refusals=3)
    done: list[None] = []
    Nodes(flux, lambda: None).drain(["n1", "n2"], "broken", done.append)
    assert flux.asked == [0.0], "it is requested before drain returns"
    flux.loop.run(lambda: bool(flux.drained), timeout=60.0)
    flux.loop.run(timeout=0.0)
    assert flux.asked == [0.0, 5.0, 10.0, 15.0]
    assert flux.drained == {"n1": "broken", "n2": "broken"}
    assert done == [None]


def test_a_drain_that_flux_refuses_is_logged_once() -> None:
    flux: Any = Resource({"n1"}, refusals=3)
    nodes = Nodes(flux, lambda: None)
    nodes.drain(["n1"], IN_USE)
    flux.loop.run(timeout=60.0)
    assert flux.drained == {"n1": IN_USE}
    assert flux.logged == [f"cannot drain n1: {BUSY}"]


@pytest.mark.parametrize(
    ("error", "logged"),
    [
        (BUSY, ["resource.status: busy"]),
        # At a shutdown the resource module has gone.
        (RpcError(errno.ENOSYS, "No service matching resource.status"), []),
    ],
)
def test_states_that_flux_refuses_are_logged_once_and_requested_again(
    error: RpcError, logged: list[str]
) -> None:
    flux: Any = Resource({"n1"}, refusals=3)
    flux.refused_by = error
    changes: list[None] = []
    nodes = Nodes(flux, lambda: changes.append(None))
    nodes.start()
    flux.loop.run(lambda: bool(changes), timeout=60.0)
    assert flux.asked == [0.0, 5.0, 10.0, 15.0]
    assert flux.logged == logged
    assert nodes.states is not None and nodes.states.hosts == ("n1",)


def test_changes_of_nodes_cause_no_more_requests_while_flux_refuses() -> None:
    flux: Any = Resource({"n1"}, refusals=3)
    nodes = Nodes(flux, lambda: None)
    nodes.start()
    for _ in range(14):
        flux.loop.run(timeout=1.0)
        flux.changed()
    assert flux.asked == [0.0, 5.0, 10.0]


def test_many_changes_of_nodes_are_read_with_one_request() -> None:
    flux: Any = Resource({"n1"})
    changes: list[None] = []
    nodes = Nodes(flux, lambda: changes.append(None))
    nodes.start()
    flux.loop.run(lambda: bool(changes), timeout=60.0)
    flux.down = True
    for _ in range(5):
        flux.changed()
    flux.loop.run(lambda: len(changes) == 2, timeout=60.0)
    assert flux.asked == [0.0, 0.1]
    assert nodes.states is not None and nodes.states.offline == {"n1"}


def drained_of(nodes: Nodes) -> dict[str, str]:
    assert nodes.states is not None
    return dict(nodes.states.drained)


def test_states_that_were_asked_for_after_a_drain_count() -> None:
    flux: Any = Resource({"n1"})
    nodes = Nodes(flux, lambda: None)
    nodes.start()
    nodes.drain(["n1"], "fenced")
    flux.loop.run()
    assert drained_of(nodes) == {"n1": "fenced"}
    flux.undrain("n1")
    flux.changed()
    flux.loop.run()
    assert drained_of(nodes) == {}  # somebody has put it back


LOST, MOUNTED = f"{LOST_CONNECTION}lost", drain_reason(1, IN_USE)


@pytest.mark.parametrize(
    ("before", "drained", "reason", "put_back", "after"),
    [
        # Else a fenced node would be taken for one that serves again.
        (None, ["n1"], "fenced", False, {"n1": "fenced"}),
        (None, ["n1"], "fenced", True, {}),
        # Flux lacks n2.
        (None, ["n1", "n2"], "fenced", False, {"n1": "fenced"}),
        # Else the node, which is mounted, would be undrained with its connection.
        (LOST, ["n1"], MOUNTED, False, {"n1": MOUNTED}),
    ],
)
def test_states_that_were_asked_for_before_a_drain_do_not_undo_it(
    before: Optional[str],
    drained: list[str],
    reason: str,
    put_back: bool,
    after: dict[str, str],
) -> None:
    flux: Any = Resource({"n1"})
    if before is not None:
        flux.drained["n1"] = before
    nodes = Nodes(flux, lambda: None)
    nodes.start()
    flux.loop.run()
    assert drained_of(nodes) == ({} if before is None else {"n1": before})
    flux.delay = 1.0
    flux.changed()
    flux.loop.run(timeout=DEBOUNCE * 2)  # the states are being read again
    nodes.drain(drained, reason)
    if put_back:
        nodes.undrain(drained)
    flux.loop.run()
    assert drained_of(nodes) == after


class Drains(Resource):
    """The same with events. It refuses to drain those in ``refused``."""

    def __init__(self, nodes: set[str]) -> None:
        super().__init__(nodes)
        self.refused: set[str] = set()

    def drain(
        self, hosts: str, reason: str, done: Any, overwrite: bool = False
    ) -> None:
        self.refusals = len(self.asked) + 1 if self._refuses(hosts) else 0
        super().drain(hosts, reason, done, overwrite)
        self.loop.call_soon(self.changed)

    def _refuses(self, hosts: str) -> bool:
        return not self.refused.isdisjoint(hostlist.decode(hosts))

    def undrain(self, hosts: str) -> None:
        super().undrain(hosts)
        self.loop.call_soon(self.changed)


def test_a_node_that_somebody_puts_back_while_another_cannot_be_drained_serves() -> (
    None
):
    """A drain has a part for each text. One that is carried out is over."""
    flux: Any = Drains({"n1", "n2"})
    nodes = Nodes(flux, lambda: None)
    flux.drained["n2"], flux.refused = "broken fan", {"n2"}
    nodes.start()
    flux.loop.run()
    reason = drain_reason(7, NOT_UNMOUNTED)
    nodes.drain(["n1", "n2"], reason)
    flux.loop.run(timeout=1.0)
    assert flux.drained["n1"] == reason == drained_of(nodes)["n1"]
    flux.undrain("n1")
    flux.loop.run(timeout=1.0)
    assert drained_of(nodes) == {"n2": f"broken fan; {reason}"}


def test_all_parts_of_a_drain_are_requested_before_drain_returns() -> None:
    """Who drains nodes goes on to tell that they are drained."""
    flux: Any = Drains({"n1", "n2"})
    nodes = Nodes(flux, lambda: None)
    flux.drained["n2"] = "broken fan"
    nodes.start()
    flux.loop.run()
    reason = drain_reason(7, NOT_UNMOUNTED)
    nodes.drain(["n1", "n2"], reason)
    assert flux.drained == {"n1": reason, "n2": f"broken fan; {reason}"}


def test_a_node_whose_connection_has_just_failed_is_drained_for_its_mount() -> None:
    """Flux has not told of the first drain when the second is sent."""
    flux: Any = Drains({"n1"})
    nodes = Nodes(flux, lambda: None)
    nodes.start()
    flux.loop.run()
    reason = drain_reason(7, NOT_UNMOUNTED)
    nodes.drain(["n1"], f"{LOST_CONNECTION} is Offline")
    nodes.drain(["n1"], reason)
    flux.loop.run(timeout=1.0)
    assert flux.drained == drained_of(nodes) == {"n1": reason}
    nodes.want({})
    assert flux.drained == {"n1": reason}


@pytest.mark.parametrize(
    ("text", "is_first"),
    [(f"{LOST_CONNECTION} is Offline", True), ("bad DIMM", True), ("bad DIMM", False)],
)
def test_a_drain_that_was_refused_goes_by_what_drains_the_node_by_then(
    text: str, is_first: bool
) -> None:
    """A new service asks before it has read that, and somebody drains it meanwhile."""
    flux: Any = Resource({"n1"}, refusals=1)
    reason = drain_reason(7, NOT_UNMOUNTED)
    nodes = Nodes(flux, lambda: None)
    if is_first:
        flux.drained["n1"] = text
    nodes.drain(["n1"], reason)
    flux.drained["n1"] = text
    nodes.start()
    flux.loop.run(timeout=60.0)
    assert flux.drained == {"n1": replacement(text, reason)}


def test_drains_that_are_carried_out_are_not_kept() -> None:
    """Flux tells of no change when a node is drained already."""
    flux: Any = Drains({"n1"})
    nodes = Nodes(flux, lambda: None)
    nodes.start()
    nodes.drain(["n1"], "broken")
    flux.loop.run()
    flux.changed = lambda: None
    kept = []
    for _ in range(3):
        done = Done()
        kept.append(weakref.ref(done))
        nodes.drain(["n1"], "broken", done)
        del done
        flux.loop.run()
    gc.collect()
    assert [each() for each in kept] == [None] * 3


class Done:
    """What is to be done when nodes are drained."""

    def __call__(self, result: None) -> None:
        pass


def test_nodes_are_drained_for_their_rabbit_and_only_these_are_undrained() -> None:
    flux: Any = Resource({"n1", "n2", "n3", "n4"})
    flux.drained.update(n1=LOST, n2="by hand", n4=MOUNTED)
    nodes = Nodes(flux, lambda: None)
    nodes.want({"n3": LOST})
    assert not flux.asked  # the states are not known
    nodes.start()
    flux.loop.run()
    nodes.want(dict.fromkeys(["n2", "n3", "n9"], LOST))
    after = {"n2": "by hand", "n3": LOST, "n4": MOUNTED}
    assert drained_of(nodes) == after
    flux.loop.run()
    assert flux.drained == after
