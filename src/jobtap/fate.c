/* Copyright 2026 the flux-dws developers
 * SPDX-License-Identifier: LGPL-3.0-only
 */

/* fate.c: what became of the data of a job, by its eventlog and its record
 *
 * The module writes the record rabbit_data_out into the KVS directory of each
 * job with storage, before it says that the data is out. It does so before it
 * releases the epilog, unless dws_released is in the eventlog: then the data
 * goes out later.
 *
 * job-info fails a look-up as a whole if one of the keys does not exist, so the
 * record is asked for alone. The jobspec is not needed: each job with storage
 * had our dependency.
 */

#include <errno.h>
#include <string.h>

#include "text.h"
#include "request.h"
#include "dataout.h"

#define RECORD "rabbit_data_out"

const char dws_no_such_job[] = "this user has no such job, or it was purged";
const char dws_no_storage[] = "the job has no #DW storage";

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

/* The events of a job that are looked for. */
struct history {
    json_int_t userid;
    bool storage;
    bool released;
};

static void note_entry (struct history *hist, const char *s, size_t size)
{
    json_t *entry = json_loadb (s, size, 0, NULL);
    const char *name;
    const char *description = "";
    json_int_t userid = -1;

    if (json_unpack (entry,
                     "{s:s s?{s?s s?I}}",
                     "name", &name,
                     "context",
                       "description", &description,
                       "userid", &userid) == 0) {
        if (strcmp (name, "submit") == 0)
            hist->userid = userid;
        else if (strcmp (name, DWS_RELEASED) == 0)
            hist->released = true;
        else if (strcmp (name, "dependency-add") == 0
                 && strcmp (description, DWS_DEPENDENCY) == 0)
            hist->storage = true;
    }
    json_decref (entry);
}

/* The eventlog is text, one entry a line. Its user can make it long, so only
 * the lines are parsed that may matter.
 */
static struct history replay (const char *eventlog)
{
    struct history hist = { .userid = -1 };
    const char *line = eventlog;

    while (*line != '\0') {
        const char *end = strchrnul (line, '\n');
        size_t size = end - line;
        if (line == eventlog
            || memmem (line, size, DWS_RELEASED, strlen (DWS_RELEASED))
            || memmem (line, size, DWS_DEPENDENCY, strlen (DWS_DEPENDENCY)))
            note_entry (&hist, line, size);
        line = *end == '\0' ? end : end + 1;
    }
    return hist;
}

enum dws_fate dws_fate_by_eventlog (flux_future_t *f,
                                    uint32_t userid,
                                    bool *releasedp,
                                    char *reason,
                                    size_t size)
{
    const char *eventlog;
    struct history hist;

    if (flux_rpc_get_unpack (f, "{s:s}", "eventlog", &eventlog) < 0) {
        if (errno != ENOENT)
            return DWS_FATE_UNKNOWN;
        dws_format (reason, size, "%s", dws_no_such_job);
        return DWS_FATE_LOST;
    }
    hist = replay (eventlog);
    *releasedp = hist.released;
    if (hist.userid == (json_int_t)userid && hist.storage)
        return DWS_FATE_OPEN;
    dws_format (reason,
                size,
                "%s",
                hist.userid == (json_int_t)userid ? dws_no_storage
                                                  : dws_no_such_job);
    return DWS_FATE_LOST;
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

// vi:ts=4 sw=4 expandtab
