/* Copyright 2026 the flux-dws developers
 * SPDX-License-Identifier: LGPL-3.0-only
 */

/* dependency.c: the dependencies that users ask for (RFC 26) */

#include <errno.h>
#include <string.h>
#include <syslog.h>

#include "text.h"
#include "action.h"
#include "dataout.h"
#include "plugin.h"

/* The most dws-out dependencies of one job. */
#define OUT_MAX 64

/* The frobnicator of flux-dws adds this dependency to #DW jobs, so that Flux
 * refuses them if this plugin is not loaded. There is nothing to wait for.
 */
int dws_rabbit_storage_cb (flux_plugin_t *p,
                           const char *topic,
                           flux_plugin_arg_t *args,
                           void *data)
{
    return 0;
}

/* One dws-out dependency of the current job. */
struct request {
    json_int_t id;
    json_int_t userid;
    int state;
    json_t *dependencies;   // all of the job
    json_t *value;
    flux_jobid_t target;
};

static int request_unpack (struct request *request, flux_plugin_arg_t *args)
{
    return flux_plugin_arg_unpack (args,
                                   FLUX_PLUGIN_ARG_IN,
                                   "{s:I s:I s:i s:{s:{s:{s:o}}} s:{s:o}}",
                                   "id", &request->id,
                                   "userid", &request->userid,
                                   "state", &request->state,
                                   "jobspec",
                                     "attributes",
                                       "system",
                                         "dependencies", &request->dependencies,
                                   "dependency",
                                     "value", &request->value);
}

static bool is_out (json_t *entry)
{
    const char *scheme = json_string_value (json_object_get (entry, "scheme"));

    return scheme && strcmp (scheme, DWS_OUT) == 0;
}

static bool has_too_many (struct request *request)
{
    size_t index;
    json_t *entry;
    int count = 0;

    json_array_foreach (request->dependencies, index, entry) {
        if (is_out (entry) && ++count > OUT_MAX)
            return true;
    }
    return false;
}

static bool parse_target (json_t *value, flux_jobid_t *target)
{
    return flux_job_id_parse (json_string_value (value), target) == 0
           && *target != FLUX_JOBTAP_CURRENT_JOB;
}

/* Return why the dependency is refused, or NULL. */
static const char *check (struct dws *dws, struct request *request)
{
    if (!parse_target (request->value, &request->target))
        return "not a job ID";
    if (request->target == (flux_jobid_t)request->id)
        return "a job cannot wait for its own data";
    return dws_fate_check (dws, request->target, request->userid);
}

static int reject (flux_plugin_t *p,
                   flux_plugin_arg_t *args,
                   json_t *value,
                   const char *problem)
{
    char shown[64];

    if (json_is_string (value))
        dws_format (shown, sizeof (shown), "%s", json_string_value (value));
    else
        dws_show (value, shown, sizeof (shown));
    return flux_jobtap_reject_job (p,
                                   args,
                                   "%s: '%s': %s",
                                   DWS_OUT,
                                   shown,
                                   problem);
}

/* Also called, in DEPEND, for each job that has the dependency when the plugin
 * is loaded or the instance restarts: dws_out_take_up() does these.
 */
int dws_out_cb (flux_plugin_t *p,
                const char *topic,
                flux_plugin_arg_t *args,
                void *data)
{
    struct dws *dws = flux_plugin_aux_get (p, DWS_AUX);
    struct request request = { 0 };
    const char *problem;

    if (request_unpack (&request, args) < 0)
        return reject (p, args, request.value, "it has no value");
    if (request.state != FLUX_JOB_STATE_NEW)
        return 0;
    if (has_too_many (&request))
        return flux_jobtap_reject_job (p,
                                       args,
                                       "%s: a job may wait for the data of at"
                                       " most %d others",
                                       DWS_OUT,
                                       OUT_MAX);
    if (!(problem = check (dws, &request))
        && dws_dataout_wait (dws,
                             request.id,
                             request.userid,
                             false,
                             request.target) < 0)
        problem = strerror (errno);
    if (!problem)
        return 0;
    return reject (p, args, request.value, problem);
}

void dws_out_take_up (struct dws *dws,
                      flux_jobid_t id,
                      uint32_t userid,
                      json_t *dependencies)
{
    size_t index;
    json_t *entry;
    flux_jobid_t target;

    json_array_foreach (dependencies, index, entry) {
        if (is_out (entry)
            && parse_target (json_object_get (entry, "value"), &target)
            && dws_dataout_wait (dws, id, userid, true, target) < 0)
            dws_log (dws,
                     LOG_ERR,
                     id,
                     "error creating job: %s",
                     strerror (errno));
    }
}

// vi:ts=4 sw=4 expandtab
