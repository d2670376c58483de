# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The kinds of trouble."""

from __future__ import annotations

import random
from typing import Mapping, Sequence

from rabbitsim.torture.trouble import Kind, Moment, Trouble
from rabbitsim.torture.troubles import dws, flux, kube

KINDS: Mapping[str, Kind] = {
    "module": Kind(flux.draw_module, flux.lose_module, weight=4),
    "plugin": Kind(flux.draw_plugin, flux.reload_plugin),
    "watch": Kind(kube.draw_watch, kube.disturb_watches, weight=3),
    "api": Kind(kube.draw_api, kube.disturb, weight=3),
    "outage": Kind(kube.draw_outage, kube.disturb),
    "dws": Kind(dws.draw_dws, weight=4, add=dws.add_failing_copies, arm=dws.arm),
    "controllers": Kind(dws.draw_controllers, dws.pause_controllers),
    "unready": Kind(kube.draw_unready, kube.disturb),
    "part": Kind(dws.draw_part, weight=3, arm=dws.arm_part),
    "unmount": Kind(weight=0, add=dws.add_bad_nodes, arm=dws.arm_unmount),
    "rabbit": Kind(dws.draw_rabbit, dws.break_rabbit),
    "storage": Kind(dws.draw_storage, dws.fill_rabbit),
    "node": Kind(flux.draw_node, flux.lose_node),
    "user": Kind(flux.draw_user, flux.act_as_user, weight=3),
    "queue": Kind(deed=flux.change_queue, weight=0, add=flux.add_queue),
    "admin": Kind(kube.draw_admin, kube.meddle, add=kube.add_unseen),
    "abort": Kind(flux.draw_abort),
    "operator": Kind(kube.draw_operator, kube.disable_node),
    "latency": Kind(add=flux.add_latency),
    "hostile": Kind(flux.draw_hostile, flux.raise_hostile, arm=flux.arm_hostile),
    "exec": Kind(flux.draw_exec, flux.reload_exec),
    "fault": Kind(flux.draw_fault, arm=flux.arm_fault),
}
"""The kinds of trouble for ``--faults``, by their names. (Another order of them changes
the runs of all seeds.)"""


def draw_trouble(
    rng: random.Random, kinds: Sequence[str], moment: Moment
) -> list[Trouble]:
    """One trouble, or a few that belong together."""
    names = [name for name in kinds for _ in range(KINDS[name].weight)]
    return KINDS[rng.choice(names)].draw(rng, moment) if names else []
