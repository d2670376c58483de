/* Copyright 2026 the flux-dws developers
 * SPDX-License-Identifier: LGPL-3.0-only
 */

/* action.c: what the plugin does to a job
 *
 * An event that is posted outside of a jobtap callback takes effect at once.
 * It may end the job and so free the struct: post last.
 *
 * The job manager only counts open prolog and epilog actions. Finishing one of
 * ours twice would release another plugin's: job->prologs and job->epilogs say
 * how many are ours.
 */

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>

#include "dws.h"

/* Seconds that the module has at dws-epilog-timeout to say what is in use. */
#define ABORT_GRACE 10.

static void vformat (char *buf, size_t size, const char *fmt, va_list ap)
{
    size_t first;
    size_t len;

    if (vsnprintf (buf, size, fmt, ap) < (int)size)
        return;
    first = len = strlen (buf);
    while (first > 0 && (buf[first - 1] & 0xc0) == 0x80)
        first--; // over the bytes that continue a sequence
    if (first > 0 && (buf[first - 1] & 0x80)) {
        unsigned char c = buf[first - 1];
        size_t need = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : 2;
        if (len - (first - 1) < need)
            buf[first - 1] = '\0';
    }
}

void dws_format (char *buf, size_t size, const char *fmt, ...)
{
    va_list ap;

    va_start (ap, fmt);
    vformat (buf, size, fmt, ap);
    va_end (ap);
}

void dws_log (struct dws *dws,
              int level,
              flux_jobid_t id,
              const char *fmt,
              ...)
{
    char f58[32];
    char text[1000];
    va_list ap;

    if (flux_job_id_encode (id, "f58", f58, sizeof (f58)) < 0)
        snprintf (f58, sizeof (f58), "%ju", (uintmax_t)id);
    va_start (ap, fmt);
    vformat (text, sizeof (text), fmt, ap);
    va_end (ap);
    flux_log (dws->h, level, "dws: %s: %s", f58, text);
}

void dws_job_raise (struct dws_job *job, const char *fmt, ...)
{
    struct dws *dws = job->dws;
    flux_jobid_t id = job->id;
    char note[1000]; // less than flux_jobtap_raise_exception() cuts at
    va_list ap;

    va_start (ap, fmt);
    vformat (note, sizeof (note), fmt, ap);
    va_end (ap);
    if (flux_jobtap_raise_exception (dws->p,
                                     id,
                                     DWS_EXCEPTION,
                                     0,
                                     "%s",
                                     note) < 0)
        dws_log (dws,
                 LOG_ERR,
                 id,
                 "error raising exception: %s: %s",
                 note,
                 strerror (errno));
}

static void post_memo (struct dws_job *job, const char *reason)
{
    int rc;

    if (reason)
        rc = flux_jobtap_event_post_pack (job->dws->p,
                                          job->id,
                                          "memo",
                                          "{s:s}",
                                          DWS_MEMO, reason);
    else
        rc = flux_jobtap_event_post_pack (job->dws->p,
                                          job->id,
                                          "memo",
                                          "{s:n}",
                                          DWS_MEMO);
    if (rc < 0)
        dws_log (job->dws,
                 LOG_ERR,
                 job->id,
                 "error posting memo: %s",
                 strerror (errno));
}

void dws_job_hold (struct dws_job *job, const char *reason)
{
    if (!job->dws->away) {
        job->dws->away = true;
        dws_log (job->dws,
                 LOG_WARNING,
                 job->id,
                 "%s: jobs with #DW directives wait for it",
                 reason);
    }
    if (!job->held) {
        job->held = true;
        post_memo (job, reason);
    }
}

void dws_job_unhold (struct dws_job *job)
{
    if (job->held) {
        job->held = false;
        post_memo (job, NULL);
    }
}

int dws_job_prolog_start (struct dws_job *job)
{
    if (flux_jobtap_prolog_start (job->dws->p, DWS_PROLOG) < 0)
        return -1;
    job->prologs++;
    return 0;
}

void dws_job_prolog_release (struct dws_job *job, int status)
{
    struct dws *dws = job->dws;
    flux_jobid_t id = job->id;
    int count = job->prologs;

    job->prologs = 0;
    while (count-- > 0) {
        if (flux_jobtap_prolog_finish (dws->p, id, DWS_PROLOG, status) < 0)
            dws_log (dws,
                     LOG_ERR,
                     id,
                     "error finishing %s: %s",
                     DWS_PROLOG,
                     strerror (errno));
    }
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

int dws_job_epilog_start (struct dws_job *job)
{
    if (flux_jobtap_epilog_start (job->dws->p, DWS_EPILOG) < 0)
        return -1;
    job->epilogs++;
    return 0;
}

void dws_job_epilog_release (struct dws_job *job, int status)
{
    struct dws *dws = job->dws;
    flux_jobid_t id = job->id;
    int count = job->epilogs;

    dws_job_quiesce (job);
    dws_job_unhold (job);
    job->phase = DWS_DONE;
    job->epilogs = 0;
    while (count-- > 0) {
        if (flux_jobtap_epilog_finish (dws->p, id, DWS_EPILOG, status) < 0)
            dws_log (dws,
                     LOG_ERR,
                     id,
                     "error finishing %s: %s",
                     DWS_EPILOG,
                     strerror (errno));
    }
}

static void grace_cb (flux_reactor_t *r,
                      flux_watcher_t *w,
                      int revents,
                      void *arg)
{
    struct dws_job *job = arg;

    dws_log (job->dws,
             LOG_ERR,
             job->id,
             "the dws module has not taken all that is in use out of service:"
             " the epilog is released");
    dws_job_epilog_release (job, 1);
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

    if (flux_jobtap_raise_exception (dws->p,
                                     id,
                                     DWS_EPILOG_TIMEOUT,
                                     0,
                                     "storage was not released within the"
                                     " epilog-timeout of %g seconds",
                                     dws->epilog_timeout) < 0) {
        dws_log (dws,
                 LOG_ERR,
                 id,
                 "error raising dws-epilog-timeout: %s",
                 strerror (errno));
        dws_job_epilog_abort (job);
    }
}

void dws_job_epilog_timer (struct dws_job *job, double epilog_start)
{
    flux_reactor_t *r = flux_get_reactor (job->dws->h);
    double after = job->dws->epilog_timeout;

    if (after == 0.)
        return;
    if (epilog_start > 0.)
        after -= flux_reactor_now (r) - epilog_start;
    timer_start (job, after, timer_cb);
}

// vi:ts=4 sw=4 expandtab
