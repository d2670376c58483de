/* Copyright 2026 the flux-dws developers
 * SPDX-License-Identifier: LGPL-3.0-only
 */

/* fate.c: what became of the data of a job, by what the module has recorded
 *
 * The module writes the record rabbit_data_out into the KVS directory of each
 * job with storage, before it reports that the data is out. It does so before
 * it releases the epilog, unless it has written rabbit_nodes_released there:
 * then the data goes out later. The eventlog says so as well, but its user can
 * make it so long that the job manager does nothing else while it is read.
 */

#include <errno.h>

#include "text.h"
#include "request.h"
#include "dataout.h"

#define RECORD "rabbit_data_out"
#define RELEASE "rabbit_nodes_released"

static const char no_such_job[] = "this user has no such job, or it was purged";
static const char no_storage[] = "the job has no #DW storage";

/* The job manager has all jobs in memory, also those that have ended. */
const char *dws_fate_check (struct dws *dws,
                            flux_jobid_t target,
                            uint32_t userid)
{
    flux_plugin_arg_t *args = flux_jobtap_job_lookup (dws->p, target);
    json_int_t owner;
    json_t *dw = NULL;
    const char *problem = no_such_job;

    if (args
        && flux_plugin_arg_unpack (args,
                                   FLUX_PLUGIN_ARG_IN,
                                   "{s:I s:{s?{s?{s?o}}}}",
                                   "userid", &owner,
                                   "jobspec",
                                     "attributes",
                                       "system",
                                         "dw", &dw) == 0
        && owner == (json_int_t)userid)
        problem = dw && !dws_jobspec_is_empty (dw) ? NULL : no_storage;
    flux_plugin_arg_destroy (args);
    return problem;
}

static flux_future_t *ask (struct dws *dws, flux_jobid_t id, const char *key)
{
    return flux_rpc_pack (dws->h,
                          "job-info.lookup",
                          0,
                          0,
                          "{s:I s:[s] s:i}",
                          "id", (json_int_t)id,
                          "keys", key,
                          "flags", 0);
}

flux_future_t *dws_fate_ask_release (struct dws *dws, flux_jobid_t id)
{
    return ask (dws, id, RELEASE);
}

flux_future_t *dws_fate_ask_record (struct dws *dws, flux_jobid_t id)
{
    return ask (dws, id, RECORD);
}

static enum dws_fate read_record (const char *s, char *reason, size_t size)
{
    json_t *record = json_loads (s, 0, NULL);
    enum dws_fate fate = DWS_FATE_LOST;
    int success;
    const char *errstr = "no reason is given";

    if (json_unpack (record,
                     "{s:b s?s}",
                     "success", &success,
                     "errstr", &errstr) < 0)
        errstr = "its record cannot be read";
    else if (success)
        fate = DWS_FATE_OUT;
    dws_format (reason, size, "the data is not out: %s", errstr);
    json_decref (record);
    return fate;
}

enum dws_fate dws_fate_by_record (flux_future_t *f, char *reason, size_t size)
{
    const char *s;

    if (flux_rpc_get_unpack (f, "{s:s}", RECORD, &s) == 0)
        return read_record (s, reason, size);
    return errno == ENOENT ? DWS_FATE_OPEN : DWS_FATE_UNKNOWN;
}

int dws_fate_report (struct dws *dws, flux_jobid_t id)
{
    flux_future_t *f = flux_rpc_pack (dws->h,
                                      "dws.report_data",
                                      0,
                                      FLUX_RPC_NORESPONSE,
                                      "{s:I}",
                                      "jobid", (json_int_t)id);

    if (!f)
        return -1;
    flux_future_destroy (f);
    return 0;
}

enum dws_fate dws_fate_by_release (struct dws_target *target,
                                   flux_future_t *f,
                                   char *reason,
                                   size_t size)
{
    const char *problem;

    if (flux_rpc_get (f, NULL) == 0)
        return DWS_FATE_OPEN;
    if (errno != ENOENT)
        return DWS_FATE_UNKNOWN;
    /* The module may yet see to the data of a job that ended without a plugin.
     */
    if (!(problem = dws_fate_check (target->dws, target->id, target->userid)))
        return DWS_FATE_OPEN;
    dws_format (reason, size, "%s", problem);
    return DWS_FATE_LOST;
}

// vi:ts=4 sw=4 expandtab
