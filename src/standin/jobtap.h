/* Copyright 2026 the flux-dws developers
 * SPDX-License-Identifier: LGPL-3.0-only
 */

/* jobtap.h: the interface of the job manager's host to Python */

#ifndef STANDIN_JOBTAP_H
#define STANDIN_JOBTAP_H

#include "core.h"

/* Load the plugin into an instance of 'owner'. Return NULL if it refuses, with
 * its reason in '*error', which the caller frees.
 */
flux_t *standin_load (void *host,
                      uint32_t owner,
                      const char *conf,
                      char **error);
void standin_unload (flux_t *h);

/* Free the aux items of a job. */
void standin_job_destroyed (flux_t *h, uint64_t id);

/* Call the plugin's handler for 'topic' with JSON text for arguments. Return
 * as flux_plugin_call() does, and the OUT arguments in '*out', which the caller
 * frees.
 */
int standin_call (flux_t *h, const char *topic, const char *in, char **out);

/* Deliver a request from a sender with a role (FLUX_ROLE_OWNER or another) to
 * job-manager.dws.<method>, to be answered through the host operation
 * "respond". Return -ENOSYS if there is no such service, -EPERM if it is not
 * for this role.
 */
int standin_request (flux_t *h,
                     const char *method,
                     uint32_t role,
                     int64_t id,
                     const char *payload);

/* Have libjansson find no memory once, at its n-th allocation from now on (0: do
 * not). Return how many were left till then.
 */
long standin_fail_json (long n);

#endif // !STANDIN_JOBTAP_H
