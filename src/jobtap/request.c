/* Copyright 2026 the flux-dws developers
 * SPDX-License-Identifier: LGPL-3.0-only
 */

/* request.c: requests to the dws module
 *
 * Each phase has one request that the module needs to have got. It may be sent
 * any number of times. If no module is loaded (ENOSYS), if its service is not
 * ready (EAGAIN), or if that died with the request in flight (EHOSTUNREACH),
 * the job waits: the module says hello when it is there, and gets the request
 * again.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>

#include "action.h"
#include "request.h"

static void request_refused (struct dws_job **jobp, const char *reason)
{
    dws_job_unhold (jobp);
    if (!*jobp)
        return;
    if ((*jobp)->phase == DWS_POST_RUN)
        // Without this nothing would ever release the job.
        dws_job_epilog_abandon (jobp,
                                "the epilog is released, storage may be left"
                                " behind (Workflow fluxjob-%ju): %s",
                                (uintmax_t)(*jobp)->id,
                                reason);
    else
        dws_job_raise (jobp, "%s", reason);
}

/* The module has seen the request, or was not there. */
static void request_cb (flux_future_t *f, void *arg)
{
    struct dws_job *job = arg;
    char reason[1000];
    enum dws_answer answer;

    job->f = NULL; // ours now: the job may end below
    dws_job_request_done (job);
    answer = dws_answer_get (f, reason, sizeof (reason));
    if (answer != DWS_ANSWER_ABSENT && answer != DWS_ANSWER_LATER)
        job->delivered = true;
    if (answer != DWS_ANSWER_YES && answer != DWS_ANSWER_NO)
        dws_job_hold (&job, reason);
    else {
        job->dws->module_away = false;
        if (answer == DWS_ANSWER_NO)
            request_refused (&job, reason);
        else {
            if (job->phase == DWS_POST_RUN)
                job->accepted = true;
            if (job->accepted && job->teardown)
                dws_job_ask_teardown (job);
            if (job->changed)
                dws_job_send_request (job);
            dws_job_unhold (&job);
        }
    }
    flux_future_destroy (f);
}

static void request_failed (struct dws_job *job, const char *what)
{
    dws_log (job->dws,
             LOG_ERR,
             job->id,
             "error sending %s, the job waits until the dws module is loaded"
             " again: %s",
             what,
             strerror (errno));
    dws_job_request_done (job);
}

static void send_create (struct dws_job *job)
{
    flux_plugin_arg_t *args = flux_jobtap_job_lookup (job->dws->p, job->id);
    json_t *resources;
    json_t *constraints = NULL;
    int urgency;
    flux_future_t *f = NULL;

    job->changed = false;
    if (args
        && flux_plugin_arg_unpack (args,
                                   FLUX_PLUGIN_ARG_IN,
                                   "{s:i s:{s:o s?{s?{s?o}}}}",
                                   "urgency", &urgency,
                                   "jobspec",
                                     "resources", &resources,
                                     "attributes",
                                       "system",
                                         "constraints", &constraints) < 0)
        errno = EINVAL;
    else if (args)
        f = flux_rpc_pack (job->dws->h,
                           "dws.create",
                           0,
                           0,
                           "{s:I s:I s:O s:O s:i s:s* s:s* s:O* s:i s:b}",
                           "jobid", (json_int_t)job->id,
                           "userid", (json_int_t)job->userid,
                           "dw_directives", job->directives,
                           "resources", resources,
                           "failure_tolerance", job->failure_tolerance,
                           "release", job->release,
                           "stage", job->stage,
                           "constraints", constraints,
                           "urgency", urgency,
                           "depends", job->others > 0);
    if (!(job->f = dws_then (f, request_cb, job)))
        request_failed (job, "dws.create");
    flux_plugin_arg_destroy (args);
}

/* The job's own dependencies were added before the plugin saw its events. */
static void count_cb (flux_future_t *f, void *arg)
{
    struct dws_job *job = arg;
    json_t *eventlog;

    job->f = NULL;
    job->uncounted = false;
    if (flux_rpc_get_unpack (f, "{s:o}", "eventlog", &eventlog) < 0)
        dws_log (job->dws,
                 LOG_ERR,
                 job->id,
                 "error reading the eventlog: %s",
                 future_strerror (f, errno));
    else
        dws_job_count_dependencies (job, eventlog);
    send_create (job);
    flux_future_destroy (f);
}

static void send_count (struct dws_job *job)
{
    flux_future_t *f = dws_eventlog_lookup (job->dws, job->id);

    if (!(job->f = dws_then (f, count_cb, job))) {
        job->uncounted = false; // or dws.create would pass for the look-up
        send_create (job);
    }
}

static void R_failed (struct dws_job **jobp, flux_future_t *f)
{
    int errnum = errno;

    dws_job_request_done (*jobp);
    dws_job_raise (jobp,
                   "error reading R: %s; please submit it again",
                   future_strerror (f, errnum));
}

static void R_load_cb (flux_future_t *f, void *arg)
{
    struct dws_job *job = arg;
    char *payload;

    job->f = NULL;
    if (!(payload = dws_R_setup (job->id, f)))
        R_failed (&job, f);
    else {
        flux_t *h = job->dws->h;
        flux_future_t *f_setup = flux_rpc (h, "dws.setup", payload, 0, 0);
        if (!(job->f = dws_then (f_setup, request_cb, job)))
            request_failed (job, "dws.setup");
    }
    free (payload);
    flux_future_destroy (f);
}

/* May end the job. */
static void R_lookup_cb (flux_future_t *f, void *arg)
{
    struct dws_job *job = arg;

    if (!(job->f = dws_then (dws_R_load (job->dws, f), R_load_cb, job)))
        R_failed (&job, f);
    flux_future_destroy (f);
}

/* The R of a callback's arguments is redacted: it lacks the scheduling key, by
 * which the Rabbits of the job are known. The R in the KVS has it.
 */
static void send_setup (struct dws_job *job)
{
    flux_future_t *f = dws_R_lookup (job->dws, job->id);

    if (!(job->f = dws_then (f, R_lookup_cb, job)))
        request_failed (job, "the look-up of R");
}

static flux_future_t *post_run (struct dws_job *job, int flags)
{
    return flux_rpc_pack (job->dws->h,
                          "dws.post_run",
                          0,
                          flags,
                          "{s:I s:b}",
                          "jobid", (json_int_t)job->id,
                          "run_started", job->started);
}

static void send_post_run (struct dws_job *job)
{
    if (!(job->f = dws_then (post_run (job, 0), request_cb, job)))
        request_failed (job, "dws.post_run");
}

void dws_job_ended (struct dws_job *job)
{
    flux_future_t *f;

    dws_log (job->dws,
             LOG_WARNING,
             job->id,
             "the job ended before its storage was released: another plugin"
             " finished an epilog more than it had started");
    if (job->accepted)
        return;
    if (!(f = post_run (job, FLUX_RPC_NORESPONSE)))
        dws_log (job->dws,
                 LOG_ERR,
                 job->id,
                 "error sending dws.post_run, the storage is released when the"
                 " dws module is loaded again: %s",
                 strerror (errno));
    flux_future_destroy (f);
}

static void teardown_cb (flux_future_t *f, void *arg)
{
    struct dws_job *job = arg;
    char reason[1000];
    enum dws_answer answer;

    job->f = NULL;
    answer = dws_answer_get (f, reason, sizeof (reason));
    if (answer != DWS_ANSWER_YES && answer != DWS_ANSWER_NO)
        dws_job_hold (&job, reason);
    else if (answer == DWS_ANSWER_NO)
        dws_log (job->dws,
                 LOG_ERR,
                 job->id,
                 "dws.teardown failed: %s",
                 reason);
    flux_future_destroy (f);
}

/* As long as dws.post_run was not answered, that comes first; dws.teardown
 * follows.
 */
void dws_job_ask_teardown (struct dws_job *job)
{
    flux_future_t *f;

    job->teardown = true;
    if (!job->accepted || job->f)
        return;
    f = flux_rpc_pack (job->dws->h,
                       "dws.teardown",
                       0,
                       0,
                       "{s:I}",
                       "jobid", (json_int_t)job->id);
    if (!(job->f = dws_then (f, teardown_cb, job)))
        request_failed (job, "dws.teardown");
}

void dws_send_request (struct dws_job *job)
{
    if (job->phase == DWS_SETUP)
        send_setup (job);
    else if (job->phase == DWS_DEPEND && job->uncounted)
        send_count (job);
    else if (job->phase == DWS_DEPEND)
        send_create (job);
    else if (!dws_job_has_tasks (job))
        send_post_run (job);
}

void dws_job_send_request (struct dws_job *job)
{
    dws_job_drop_request (job);
    job->accepted = false;
    switch (job->phase) {
        case DWS_DEPEND:
        case DWS_SETUP:
            dws_job_queue_request (job);
            break;
        case DWS_POST_RUN:
            if (!dws_job_has_tasks (job))
                dws_job_queue_request (job);
            if (job->aborted) // the module may have died before it was done
                dws_abort (job->dws, job->id);
            break;
        case DWS_NEW:
        case DWS_RECOVER:
        case DWS_SCHED:
        case DWS_RUNNING:
        case DWS_DONE:
            break;
    }
}

/* A guest may have a job change hundreds of times a second, and each request
 * takes the module milliseconds: jobs of others would wait behind them.
 */
void dws_job_note_change (struct dws_job *job)
{
    if (dws_job_is_creating (job))
        job->changed = true;
    else if (!job->queue) // then it is not made yet
        dws_job_send_request (job);
}

// vi:ts=4 sw=4 expandtab
