/* Copyright 2026 the flux-dws developers
 * SPDX-License-Identifier: LGPL-3.0-only
 */

/* tasks.c: when a job's tasks have ended
 *
 * A job that an exception ends is in CLEANUP at once, while its tasks are being
 * killed and may take their time, for a checkpoint, say. They must not lose
 * their files meanwhile. The execution system promises the job manager a
 * release event with final=true for each job that it was asked to start, with
 * or without a start and a finish event before it (RFC 21,
 * job-manager/start.c).
 *
 * Three jobs get none of these events in CLEANUP:
 * - one that was ended before the job manager asked for it to be started,
 * - one in CLEANUP when job-exec is reloaded or the instance restarts: job-exec
 *   reattaches only to jobs in RUN,
 * - one that was started before the job manager was reloaded, by a job-exec
 *   that was not: that answers to the old job manager, and goes on with it.
 *
 * In all three, the job has tasks if and only if job-exec has the job. It is
 * asked, seldom, as long as there are jobs whose tasks are to end.
 */

#include <errno.h>
#include <syslog.h>

#include "action.h"
#include "request.h"

/* Seconds between two questions. */
#define ASK_PERIOD 2.

static void await (struct dws *dws);

static bool is_awaited (struct dws_job *job)
{
    return job->phase == DWS_POST_RUN && dws_job_has_tasks (job);
}

/* 'jobs' are those that job-exec has, by their F58 IDs. */
static void tasks_ended (struct dws_job *job, json_t *jobs)
{
    char f58[32];

    if (flux_job_id_encode (job->id, "f58", f58, sizeof (f58)) < 0
        || json_object_get (jobs, f58))
        return;
    dws_log (job->dws,
             LOG_NOTICE,
             job->id,
             "job-exec does not have the job (any more): its tasks count as"
             " ended");
    job->ended = true;
    dws_job_send_request (job);
}

static void exec_cb (flux_future_t *f, void *arg)
{
    struct dws *dws = arg;
    struct dws_job *job;
    json_t *jobs;

    if (flux_rpc_get_unpack (f, "{s:o}", "jobs", &jobs) == 0) {
        TAILQ_FOREACH (job, &dws->jobs, link) {
            if (job->exec_asked && is_awaited (job))
                tasks_ended (job, jobs);
        }
    }
    else if (errno != ENOSYS) // it is not loaded now
        flux_log (dws->h,
                  LOG_ERR,
                  "dws: error asking job-exec for its jobs: %s",
                  future_strerror (f, errno));
    flux_future_destroy (f);
    dws->f_exec = NULL;
    await (dws);
}

static void ask_cb (flux_reactor_t *r,
                    flux_watcher_t *w,
                    int revents,
                    void *arg)
{
    struct dws *dws = arg;
    flux_future_t *f;
    struct dws_job *job;
    bool any = false;

    flux_watcher_destroy (dws->exec_timer);
    dws->exec_timer = NULL;
    TAILQ_FOREACH (job, &dws->jobs, link) {
        if ((job->exec_asked = is_awaited (job)))
            any = true;
    }
    if (!any)
        return;
    f = flux_rpc_pack (dws->h, "job-exec.stats-get", 0, 0, "{}");
    if (!(dws->f_exec = dws_then (f, exec_cb, dws))) {
        flux_log_error (dws->h, "dws: error asking job-exec for its jobs");
        await (dws);
    }
}

static void await (struct dws *dws)
{
    if (dws->exec_timer || dws->f_exec)
        return;
    if (!(dws->exec_timer = flux_timer_watcher_create (
              flux_get_reactor (dws->h), ASK_PERIOD, 0., ask_cb, dws))) {
        flux_log_error (dws->h, "dws: error starting a timer");
        return;
    }
    flux_watcher_start (dws->exec_timer);
}

void dws_job_await_tasks (struct dws_job *job)
{
    if (is_awaited (job))
        await (job->dws);
}

void dws_tasks_clear (struct dws *dws)
{
    flux_watcher_destroy (dws->exec_timer);
    flux_future_destroy (dws->f_exec);
}

// vi:ts=4 sw=4 expandtab
