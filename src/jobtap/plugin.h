/* Copyright 2026 the flux-dws developers
 * SPDX-License-Identifier: LGPL-3.0-only
 */

/* The callbacks of Flux */

#ifndef DWS_PLUGIN_H
#define DWS_PLUGIN_H

#include <stddef.h>

#include "job.h"

/* conf.c: the configuration that the plugin was loaded with.
 */

/* Set dws->epilog_timeout. On failure return -1 with a sentence in 'error'. */
int dws_conf_parse (struct dws *dws, char *error, size_t size);

/* Set dws->directives_limit by rabbit.directives_limit, NULL if there is none.
 * The module refuses a wrong value, which counts as none here.
 */
void dws_conf_limit_directives (struct dws *dws, json_t *limit);

/* dependency.c: the dependencies that users ask for. */
int dws_rabbit_storage_cb (flux_plugin_t *p,
                           const char *topic,
                           flux_plugin_arg_t *args,
                           void *data);
int dws_out_cb (flux_plugin_t *p,
                const char *topic,
                flux_plugin_arg_t *args,
                void *data);

/* Let the current job wait for the data that its jobspec asks for, unless it
 * does already, or that is over. This is done in job.new: when the plugin is
 * loaded, job.dependency.* is not called for jobs that are not in DEPEND yet.
 */
void dws_out_take_up (struct dws *dws,
                      flux_jobid_t id,
                      uint32_t userid,
                      json_t *dependencies);

/* hello.c: the service job-manager.dws.hello.
 */

/* The error, EAGAIN, while a job is in DWS_RECOVER. */
extern const char dws_not_ready[];

void dws_hello_cb (flux_t *h,
                   flux_msg_handler_t *mh,
                   const flux_msg_t *msg,
                   void *arg);

/* service.c: the job-manager.dws.* services. */
int dws_service_register (struct dws *dws);

/* callback.c: the callbacks of the job manager, for each job. */
extern const struct flux_plugin_handler dws_callbacks[];

#endif // !DWS_PLUGIN_H
