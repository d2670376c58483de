/* Copyright 2026 the flux-dws developers
 * SPDX-License-Identifier: LGPL-3.0-only
 */

/* core.h: the interface of the job manager's host to Python besides jobtap.c */

#ifndef STANDIN_CORE_H
#define STANDIN_CORE_H

#include "host.h"

struct flux_msg {
    int64_t id; // of the request, given by Python
    json_t *payload;
};

/* A timer fired. Nothing happens if it was destroyed. */
void standin_timer_expire (flux_t *h, int64_t id);

/* A future is ready: 'payload' is JSON text or NULL. Nothing happens if it was
 * destroyed.
 */
void standin_future_fulfill (flux_t *h,
                             int64_t id,
                             int errnum,
                             const char *errstr,
                             const char *payload);

#endif // !STANDIN_CORE_H
