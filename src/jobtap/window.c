/* Copyright 2026 the flux-dws developers
 * SPDX-License-Identifier: LGPL-3.0-only
 */

/* window.c: which jobs have a request in flight, and which wait to send theirs
 *
 * Only so many are in flight. The next ones are sent when half of them are
 * answered: those of jobs in DEPEND last, for the others may have nodes, which
 * idle meanwhile. Each kind is sent in the order in which the jobs were queued,
 * so no job waits for ever behind those that a guest changes again and again.
 * Neither a guest who submits thousands of jobs, nor a hello about all of them,
 * fills the queues of the module and of the job manager, in which the requests
 * of others would wait.
 */

#include "job.h"

/* The most jobs with a request in flight. The module answers each as soon as it
 * has seen it.
 */
#define REQUESTS_MAX 64

/* The job whose turn it is, or NULL. */
static struct dws_job *next_job (struct dws *dws)
{
    struct dws_job *job = TAILQ_FIRST (&dws->actions);

    return job ? job : TAILQ_FIRST (&dws->creates);
}

static void job_unqueue (struct dws_job *job)
{
    if (job->queue) {
        TAILQ_REMOVE (job->queue, job, queued);
        job->queue = NULL;
    }
}

static void send_request (struct dws_job *job)
{
    struct dws *dws = job->dws;

    job->in_flight = true;
    dws->requests++;
    dws->send_request (job);
    if (!job->f)
        dws_job_request_done (job);
}

static void send_cb (flux_reactor_t *r,
                     flux_watcher_t *w,
                     int revents,
                     void *arg)
{
    struct dws *dws = arg;
    struct dws_job *job;

    dws_requests_clear (dws);
    while (dws->requests < REQUESTS_MAX && (job = next_job (dws))) {
        job_unqueue (job);
        send_request (job);
    }
}

/* Send what waits, but not here: a request is dropped in the midst of other
 * things.
 */
static void send_later (struct dws *dws)
{
    if (!next_job (dws)
        || dws->requests > REQUESTS_MAX / 2
        || dws->request_timer)
        return;
    if (!(dws->request_timer = flux_timer_watcher_create (
              flux_get_reactor (dws->h), 0., 0., send_cb, dws))) {
        flux_log_error (dws->h, "dws: error starting a timer");
        return;
    }
    flux_watcher_start (dws->request_timer);
}

void dws_job_queue_request (struct dws_job *job)
{
    struct dws *dws = job->dws;

    dws_job_drop_request (job);
    if (!next_job (dws) && dws->requests < REQUESTS_MAX) {
        send_request (job);
        return;
    }
    job->queue = job->phase == DWS_DEPEND ? &dws->creates : &dws->actions;
    TAILQ_INSERT_TAIL (job->queue, job, queued);
    send_later (dws);
}

bool dws_job_is_creating (struct dws_job *job)
{
    return job->phase == DWS_DEPEND && job->f && !job->uncounted;
}

void dws_job_drop_request (struct dws_job *job)
{
    if (dws_job_is_creating (job))
        job->delivered = true; // it may be
    flux_future_destroy (job->f);
    job->f = NULL;
    job_unqueue (job);
    dws_job_request_done (job);
}

void dws_job_request_done (struct dws_job *job)
{
    if (job->in_flight) {
        job->in_flight = false;
        job->dws->requests--;
        send_later (job->dws);
    }
}

void dws_requests_init (struct dws *dws, dws_send_f send_request)
{
    dws->send_request = send_request;
    TAILQ_INIT (&dws->actions);
    TAILQ_INIT (&dws->creates);
}

void dws_requests_clear (struct dws *dws)
{
    flux_watcher_destroy (dws->request_timer);
    dws->request_timer = NULL;
}

// vi:ts=4 sw=4 expandtab
