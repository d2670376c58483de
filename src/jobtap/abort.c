/* Copyright 2026 the flux-dws developers
 * SPDX-License-Identifier: LGPL-3.0-only
 */

/* abort.c: the epilog timeout, and dws.abort, which outlives its job
 *
 * At dws-epilog-timeout the module takes the nodes and Rabbits that the job
 * still uses out of service. The epilog does not wait for a module that is not
 * loaded, and not for long for one whose service is being started; dws.abort
 * does, and is sent again whenever the module says hello, until it is answered.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>

#include "action.h"
#include "request.h"

/* Seconds that the module has at dws-epilog-timeout to answer dws.abort. */
#define ABORT_GRACE 10.

/* One dws.abort that was not answered yet. */
struct dws_abort {
    struct dws *dws;
    LIST_ENTRY (dws_abort) link;
    flux_jobid_t id;
    flux_future_t *f;
};

static void abort_destroy (struct dws_abort *abort)
{
    if (abort) {
        int saved_errno = errno;
        flux_future_destroy (abort->f);
        free (abort);
        errno = saved_errno;
    }
}

static void abort_remove (struct dws_abort *abort)
{
    LIST_REMOVE (abort, link);
    abort_destroy (abort);
}

/* Release the epilog at dws-epilog-timeout, when the module has not taken the
 * nodes and Rabbits in use out of service.
 */
static void epilog_let_go (struct dws_job **jobp, const char *reason)
{
    char nodes[500];

    dws_R_nodes ((*jobp)->dws, (*jobp)->id, nodes, sizeof (nodes));
    dws_job_epilog_abandon (jobp,
                            "epilog-timeout: %s; storage may still be mounted"
                            " on %s, and allocated (Workflow fluxjob-%ju)",
                            reason,
                            nodes,
                            (uintmax_t)(*jobp)->id);
}

/* Let the job go if the module cannot do anything for it. A service that is
 * being started gets dws.abort when it says hello: until then the job waits
 * for its timer (ABORT_GRACE).
 */
static void abort_cb (flux_future_t *f, void *arg)
{
    struct dws_abort *abort = arg;
    struct dws_job *job = dws_job_lookup (abort->dws, abort->id);
    char reason[1000];
    enum dws_answer answer;

    abort->f = NULL;
    answer = dws_answer_get (f, reason, sizeof (reason));
    if (answer == DWS_ANSWER_NO)
        dws_log (abort->dws,
                 LOG_ERR,
                 abort->id,
                 "dws.abort failed, nodes and Rabbits may still be in use: %s",
                 reason);
    else if (answer != DWS_ANSWER_YES)
        dws_log (abort->dws,
                 LOG_ERR,
                 abort->id,
                 "nodes and Rabbits may still be in use, dws.abort is sent"
                 " again when the dws module is there: %s",
                 reason);
    if (answer == DWS_ANSWER_YES || answer == DWS_ANSWER_NO)
        abort_remove (abort);
    flux_future_destroy (f);
    if (!job || job->phase != DWS_POST_RUN || answer == DWS_ANSWER_YES)
        return;
    if (answer == DWS_ANSWER_NO || answer == DWS_ANSWER_ABSENT || !job->timer)
        epilog_let_go (&job, reason);
}

static void abort_send (struct dws_abort *abort)
{
    flux_future_t *f = flux_rpc_pack (abort->dws->h,
                                      "dws.abort",
                                      0,
                                      0,
                                      "{s:I}",
                                      "jobid", (json_int_t)abort->id);

    flux_future_destroy (abort->f);
    if (!(abort->f = dws_then (f, abort_cb, abort)))
        dws_log (abort->dws,
                 LOG_ERR,
                 abort->id,
                 "error sending dws.abort: %s",
                 strerror (errno));
}

void dws_abort (struct dws *dws, flux_jobid_t id)
{
    struct dws_abort *abort;

    LIST_FOREACH (abort, &dws->aborts, link) {
        if (abort->id == id)
            break;
    }
    if (abort && abort->f)
        return;
    if (!abort) {
        if (!(abort = calloc (1, sizeof (*abort)))) {
            dws_log (dws, LOG_ERR, id, "dws.abort is not sent: out of memory");
            return;
        }
        abort->dws = dws;
        abort->id = id;
        LIST_INSERT_HEAD (&dws->aborts, abort, link);
    }
    abort_send (abort);
}

void dws_abort_resume (struct dws *dws)
{
    struct dws_abort *abort;

    LIST_FOREACH (abort, &dws->aborts, link)
        abort_send (abort);
}

void dws_abort_clear (struct dws *dws)
{
    struct dws_abort *abort;

    while ((abort = LIST_FIRST (&dws->aborts)))
        abort_remove (abort);
}

/* Start the job's timer, in place of the one that it has. */
static void timer_start (struct dws_job *job,
                         double after,
                         flux_watcher_f cb)
{
    flux_reactor_t *r = flux_get_reactor (job->dws->h);

    flux_watcher_destroy (job->timer);
    if (!(job->timer = flux_timer_watcher_create (r,
                                                  after > 0. ? after : 0.,
                                                  0.,
                                                  cb,
                                                  job))) {
        dws_log (job->dws,
                 LOG_ERR,
                 job->id,
                 "error starting a timer for the epilog: %s",
                 strerror (errno));
        return;
    }
    flux_watcher_start (job->timer);
}

static void grace_cb (flux_reactor_t *r,
                      flux_watcher_t *w,
                      int revents,
                      void *arg)
{
    struct dws_job *job = arg;

    epilog_let_go (&job,
                   "the dws module has not finished in time to take out of"
                   " service what is in use");
}

/* The module takes what is in use out of service, and releases the epilog then,
 * by epilog-remove. It is not waited for longer than ABORT_GRACE.
 */
void dws_job_epilog_abort (struct dws_job *job)
{
    job->aborted = true;
    timer_start (job, ABORT_GRACE, grace_cb);
    dws_abort (job->dws, job->id);
}

/* The exception comes back through the job.event.exception callback, which
 * aborts the epilog.
 */
static void timer_cb (flux_reactor_t *r,
                      flux_watcher_t *w,
                      int revents,
                      void *arg)
{
    struct dws_job *job = arg;
    struct dws *dws = job->dws;
    flux_jobid_t id = job->id;

    if (dws_job_raise_timeout (&job) < 0) {
        dws_log (dws,
                 LOG_ERR,
                 id,
                 "error raising dws-epilog-timeout: %s",
                 strerror (errno));
        if (job)
            dws_job_epilog_abort (job);
    }
}

void dws_job_epilog_timer (struct dws_job *job, double epilog_start)
{
    flux_reactor_t *r = flux_get_reactor (job->dws->h);
    double after = job->dws->epilog_timeout;
    double elapsed = flux_reactor_now (r) - epilog_start;

    if (after == 0.)
        return;
    if (epilog_start > 0. && elapsed > 0.) // or else the clock was set back
        after -= elapsed;
    timer_start (job, after, timer_cb);
}

// vi:ts=4 sw=4 expandtab
