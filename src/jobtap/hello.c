/* Copyright 2026 the flux-dws developers
 * SPDX-License-Identifier: LGPL-3.0-only
 */

/* hello.c: job-manager.dws.hello, by which a module that was loaded learns of
 * all jobs, some at a time. The requests of these are sent again.
 */

#include <errno.h>
#include <syslog.h>

#include "text.h"
#include "request.h"
#include "phase.h"
#include "dataout.h"
#include "plugin.h"

/* The most jobs in one answer. */
#define HELLO_MAX 32

const char dws_not_ready[] = "dws-jobtap.so reads the eventlogs of its jobs";

static const char *phase_name (struct dws_job *job)
{
    switch (job->phase) {
        case DWS_DEPEND:
            return "depend";
        case DWS_SCHED:
            return "sched";
        case DWS_SETUP:
            return "prolog";
        case DWS_RUNNING:
            return "running";
        case DWS_POST_RUN:
            return dws_job_has_tasks (job) ? "running" : "epilog";
        case DWS_NEW:
        case DWS_RECOVER:
        case DWS_DONE:
            break;
    }
    return NULL;
}

static json_t *hello_job (struct dws_job *job, const char *phase)
{
    return json_pack ("{s:I s:I s:s s:f s:f s:i s:b s:b s:b s:O?}",
                      "id", (json_int_t)job->id,
                      "userid", (json_int_t)job->userid,
                      "phase", phase,
                      "t_submit", job->t_submit,
                      "t_prolog", job->prolog_start,
                      "failure_tolerance", job->failure_tolerance,
                      "run_started", job->started,
                      "teardown", job->teardown,
                      "told", job->failed,
                      "waits", job->module_memo);
}

/* The jobs of one answer to hello. The cursor is the serial of the last one. */
struct hello {
    json_t *jobs;
    flux_jobid_t ids[HELLO_MAX];
    size_t count;
    json_int_t cursor;
    bool more;
};

/* Add the jobs after the cursor, as many as fit, or as there is memory for. */
static void hello_fill (struct dws *dws, struct hello *hello)
{
    struct dws_job *job;
    const char *phase;

    TAILQ_FOREACH (job, &dws->jobs, link) {
        if ((json_int_t)job->serial <= hello->cursor
            || !job->directives
            || !(phase = phase_name (job)))
            continue;
        if (hello->count == HELLO_MAX
            || json_array_append_new (hello->jobs,
                                      hello_job (job, phase)) < 0) {
            hello->more = true;
            return;
        }
        job->delivered = true; // the module may know it from now on
        hello->ids[hello->count++] = job->id;
        hello->cursor = job->serial;
    }
}

static int hello_respond (struct dws *dws,
                          const flux_msg_t *msg,
                          struct hello *hello)
{
    json_t *cursor = NULL;
    int rc;

    if (hello->more && !(cursor = json_integer (hello->cursor)))
        return -1;
    rc = flux_respond_pack (dws->h,
                            msg,
                            "{s:O s:s s:i s:O*}",
                            "jobs", hello->jobs,
                            "version", DWS_VERSION,
                            "protocol", DWS_PROTOCOL,
                            "cursor", cursor);
    json_decref (cursor);
    return rc;
}

void dws_hello_cb (flux_t *h,
                   flux_msg_handler_t *mh,
                   const flux_msg_t *msg,
                   void *arg)
{
    struct dws *dws = arg;
    struct hello hello = { 0 };
    struct dws_job *job;
    const char *version = "unknown";
    int errnum = EPROTO;
    const char *text = "expected {cursor:integer}";
    char shown[64];
    bool first;

    if (flux_request_unpack (msg,
                             NULL,
                             "{s?I s?s}",
                             "cursor", &hello.cursor,
                             "version", &version) < 0)
        goto error;
    if ((first = hello.cursor == 0)) {
        dws_format (shown, sizeof (shown), "%s", version);
        flux_log (h,
                  LOG_INFO,
                  "dws: hello from the dws module %s; dws-jobtap.so %s,"
                  " protocol %d",
                  shown,
                  DWS_VERSION,
                  DWS_PROTOCOL);
    }
    if (dws->recovering > 0) {
        // dws.hello follows as soon as the phase of each job is known
        errnum = EAGAIN;
        text = dws_not_ready;
        goto error;
    }
    if ((hello.jobs = json_array ()))
        hello_fill (dws, &hello);
    if (!hello.jobs
        || (hello.more && hello.count == 0)
        || hello_respond (dws, msg, &hello) < 0) {
        // The module asks again.
        errnum = ENOMEM;
        text = "error listing jobs";
        goto error;
    }
    json_decref (hello.jobs);
    dws->module_away = false;
    if (first) {
        dws_abort_resume (dws);
        dws_dataout_resume (dws);
    }
    for (size_t i = 0; i < hello.count; i++) {
        if ((job = dws_job_lookup (dws, hello.ids[i])))
            dws_job_resume (job);
    }
    return;
error:
    json_decref (hello.jobs);
    if (flux_respond_error (h, msg, errnum, text) < 0)
        flux_log_error (h, "dws: error responding");
}

// vi:ts=4 sw=4 expandtab
