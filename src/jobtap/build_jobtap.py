# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""dws-jobtap: the job manager's plugin, and ``rabbitsim._jobtap``."""

from __future__ import annotations

import sys

sys.path.insert(0, "src/standin")

from component import Component  # noqa: E402

COMPONENT = Component(
    extension="rabbitsim._jobtap",
    plugin="dws-jobtap.so",
    directory="lib/flux/job-manager/plugins",
    # Lowest first: a file calls none that comes after it (doc/architecture.md).
    sources=[
        "src/jobtap/text.c",
        "src/jobtap/window.c",
        "src/jobtap/job.c",
        "src/jobtap/jobspec.c",
        "src/jobtap/eventlog.c",
        "src/jobtap/action.c",
        "src/jobtap/rpc.c",
        "src/jobtap/R.c",
        "src/jobtap/abort.c",
        "src/jobtap/request.c",
        "src/jobtap/tasks.c",
        "src/jobtap/phase.c",
        "src/jobtap/recover.c",
        "src/jobtap/target.c",
        "src/jobtap/fate.c",
        "src/jobtap/dataout.c",
        "src/jobtap/conf.c",
        "src/jobtap/dependency.c",
        "src/jobtap/hello.c",
        "src/jobtap/service.c",
        "src/jobtap/callback.c",
        "src/jobtap/dws-jobtap.c",
    ],
    headers=[
        "src/jobtap/text.h",
        "src/jobtap/job.h",
        "src/jobtap/action.h",
        "src/jobtap/request.h",
        "src/jobtap/phase.h",
        "src/jobtap/target.h",
        "src/jobtap/dataout.h",
        "src/jobtap/plugin.h",
    ],
    host_sources=[
        "src/standin/plugin.c",
        "src/standin/core.c",
        "src/standin/reactor.c",
        "src/standin/jobtap.c",
    ],
    host_header="jobtap.h",
    cdef="""
        typedef struct flux_handle flux_t;

        flux_t *standin_load (void *host,
                              uint32_t owner,
                              const char *conf,
                              char **error);
        void standin_unload (flux_t *h);
        void standin_job_destroyed (flux_t *h, uint64_t id);
        int standin_call (flux_t *h,
                          const char *topic,
                          const char *in,
                          char **out);
        int standin_request (flux_t *h,
                             const char *method,
                             uint32_t role,
                             int64_t id,
                             const char *payload);
        long standin_fail_json (long n);
        void standin_timer_expire (flux_t *h, int64_t id);
        void standin_future_fulfill (flux_t *h,
                                     int64_t id,
                                     int errnum,
                                     const char *errstr,
                                     const char *payload);
    """,
)

ffibuilder = COMPONENT.ffi()
