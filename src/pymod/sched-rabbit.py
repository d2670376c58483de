# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""sched-rabbit: a scheduler that knows Rabbits, for instances without Fluxion.

It serves RFC 27 (``sched.*``, ``feasibility.check``) to the job manager, and those
requests of Fluxion's resource module to the module ``dws`` that
:mod:`flux_k8s.scheduler.graph` lists.

Load with::

    flux module load sched-rabbit [chunks=N] [queue-depth=N|unlimited] [log-level=LEVEL]

``chunks`` is the number of ``ssd`` into which the storage of each Rabbit is cut, 36 by
default. The other arguments are those of flux-core's schedulers.
The Rabbits are those of ``rabbit.mapping`` in the configuration; without a ``[rabbit]``
table the scheduler knows none.
"""

from __future__ import annotations

import errno
import sys
import syslog
from typing import Any

from flux_k8s.broker.log import log, log_exception
from flux_k8s.errors import DWSError
from flux_k8s.version import check_flux

LEVELS = 10_000
"""Python refuses JSON with more levels than this, once it was set. Guests write
jobspecs, and the job manager accepts 2048 levels of JSON."""


def mod_main(handle: Any, *args: str) -> None:
    """The entry point of the module, which the broker calls.

    Raises:
        OSError: the module cannot be loaded; the broker's log has the reason. After the
            load nothing is raised: the broker would panic.
    """
    sys.setrecursionlimit(LEVELS)
    try:
        check_flux(handle.attr_get("version"), "sched-rabbit")
        # An older Flux lacks what it imports.
        from flux_k8s.broker.rabbitscheduler import RabbitScheduler

        scheduler = RabbitScheduler(handle, *args)
    except (DWSError, OSError, ValueError) as error:
        reason = (isinstance(error, OSError) and error.strerror) or str(error)
        log(handle, syslog.LOG_ERR, reason)
        raise OSError(errno.EINVAL, reason) from None
    try:
        scheduler.run()
    except BaseException as error:
        if not scheduler.is_running:
            raise
        log_exception(handle, "sched-rabbit ends, jobs wait for resources", error)
