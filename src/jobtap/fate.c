/* Copyright 2026 the flux-dws developers
 * SPDX-License-Identifier: LGPL-3.0-only
 */

/* fate.c: what became of the data of a job, by its record and its eventlog
 *
 * The module writes the record rabbit_data_out into the KVS directory of each
 * job with storage, before it reports that the data is out. It does so before
 * it releases the epilog, unless dws_released is in the eventlog: then the data
 * goes out later.
 */

#include <errno.h>
#include <string.h>

#include "text.h"
#include "request.h"
#include "dataout.h"

#define RECORD "rabbit_data_out"

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

flux_future_t *dws_fate_ask_eventlog (struct dws *dws, flux_jobid_t id)
{
    return ask (dws, id, "eventlog");
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

static bool is_released (const char *line, size_t size)
{
    json_t *entry = json_loadb (line, size, 0, NULL);
    const char *name;
    bool rc = json_unpack (entry, "{s:s}", "name", &name) == 0
        && strcmp (name, DWS_RELEASED) == 0;

    json_decref (entry);
    return rc;
}

/* The eventlog is text, one entry a line. Its user can make it long, so only
 * the lines are parsed that may matter.
 */
static bool has_released (const char *eventlog)
{
    const char *line = eventlog;

    while ((line = strstr (line, DWS_RELEASED))) {
        const char *end = strchrnul (line, '\n');
        while (line > eventlog && line[-1] != '\n')
            line--;
        if (is_released (line, end - line))
            return true;
        line = end;
    }
    return false;
}

enum dws_fate dws_fate_by_eventlog (flux_future_t *f, char *reason, size_t size)
{
    const char *eventlog;

    if (flux_rpc_get_unpack (f, "{s:s}", "eventlog", &eventlog) < 0) {
        if (errno != ENOENT)
            return DWS_FATE_UNKNOWN;
        dws_format (reason, size, "%s", no_such_job);
        return DWS_FATE_LOST;
    }
    if (has_released (eventlog))
        return DWS_FATE_OPEN;
    dws_format (reason, size, "the job ended without a record of its data");
    return DWS_FATE_LOST;
}

// vi:ts=4 sw=4 expandtab
