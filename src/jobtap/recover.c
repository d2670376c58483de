/* Copyright 2026 the flux-dws developers
 * SPDX-License-Identifier: LGPL-3.0-only
 */

/* recover.c: finding back into the life of a job
 *
 * When the plugin is loaded while jobs are active (or the instance restarts),
 * job.new is called for each, but not the callbacks of the states that it went
 * through. Whether dws-setup or dws-epilog is outstanding is nowhere but in the
 * eventlog: flux_jobtap_job_event_posted() cannot tell our prolog-start from
 * another plugin's. The job manager's own copy of the eventlog is asked for,
 * because the one in the KVS may lag behind.
 *
 * Until the answer is there the job is in DWS_RECOVER. A callback that comes
 * meanwhile does what can only be done in a callback (starting a prolog or an
 * epilog), and has the eventlog read again. Of ten thousand jobs only a few are
 * read at a time, so that the job manager has its turn in between.
 */

#include <errno.h>
#include <string.h>
#include <syslog.h>

#include "action.h"
#include "request.h"
#include "phase.h"

#define LOOKUPS_MAX 32

static void eventlog_cb (flux_future_t *f, void *arg);

/* Ask for the eventlog of a job. */
static int lookup (struct dws_job *job)
{
    struct dws *dws = job->dws;
    flux_future_t *f = dws_eventlog_lookup (dws, job->id);

    if (!(job->f = dws_then (f, eventlog_cb, job)))
        return -1;
    job->stale = false;
    dws->lookups++;
    return 0;
}

/* Nothing more can be done for this job, but others must not wait for it. */
static void lookup_failed (struct dws_job *job, const char *reason)
{
    dws_log (job->dws,
             LOG_ERR,
             job->id,
             "error reading the eventlog, the job may be stuck: %s",
             reason);
    dws_job_enter (job, DWS_DONE);
    job->dws->recovering--;
}

/* A look-up has ended, or was not sent: send those of the jobs that wait. */
static void lookup_next (struct dws *dws)
{
    struct dws_job *job;

    if (dws->lookups == 0) {
        TAILQ_FOREACH (job, &dws->jobs, link) {
            if (dws->lookups == LOOKUPS_MAX)
                break;
            if (job->phase == DWS_RECOVER && !job->f && lookup (job) < 0)
                lookup_failed (job, strerror (errno));
        }
    }
    if (dws->recovering == 0)
        dws_hello (dws);
}

static void hold_failed (struct dws *dws, flux_jobid_t id)
{
    dws_log (dws,
             LOG_ERR,
             id,
             "error holding the job: %s",
             strerror (errno));
}

static void recover (struct dws_job *job)
{
    struct dws *dws = job->dws;

    if (dws->lookups < LOOKUPS_MAX && lookup (job) < 0) {
        lookup_failed (job, strerror (errno));
        lookup_next (dws);
    }
}

void dws_job_recovered (struct dws_job *job, enum dws_phase phase)
{
    struct dws *dws = job->dws;

    if (job->f) // the job ends
        dws->lookups--;
    dws_job_enter (job, phase);
    dws->recovering--;
    lookup_next (dws);
}

/* The job came to CLEANUP while the plugin was not loaded, and another plugin's
 * epilog has held it since.
 */
static void hold_late (struct dws_job **jobp)
{
    struct dws *dws = (*jobp)->dws;
    flux_jobid_t id = (*jobp)->id;

    if (flux_jobtap_job_event_posted (dws->p, id, "free") != 1
        && dws_job_epilog_start (jobp) < 0)
        hold_failed (dws, id);
}

/* Go on from what was learnt. */
static void go_on (struct dws_job **jobp, double epilog_start)
{
    struct dws_job *job = *jobp;

    switch (job->phase) {
        case DWS_DEPEND:
            dws_job_begin_depend (jobp);
            break;
        case DWS_SETUP:
            dws_job_begin_setup (jobp);
            break;
        case DWS_POST_RUN:
            dws_job_prolog_release (jobp, 1);
            if (*jobp && !job->admitted)
                dws_job_epilog_release (jobp, 0);
            else if (*jobp)
                dws_job_begin_post_run (*jobp, epilog_start);
            break;
        case DWS_DONE:
            if (job->state == FLUX_JOB_STATE_CLEANUP) {
                if (job->admitted && epilog_start == 0.)
                    hold_late (jobp);
                if (*jobp)
                    dws_job_prolog_release (jobp, 1);
                if (*jobp && (*jobp)->epilogs > 0)
                    dws_job_begin_post_run (*jobp, 0.);
            }
            else if (job->state == FLUX_JOB_STATE_RUN && job->admitted) {
                job->startable = true;
                dws_job_raise (jobp,
                               "started without its storage: dws-jobtap was"
                               " not loaded when it was allocated resources,"
                               " please submit it again");
            }
            break;
        case DWS_NEW:
        case DWS_RECOVER:
        case DWS_SCHED:
        case DWS_RUNNING:
            break;
    }
}

static void eventlog_cb (flux_future_t *f, void *arg)
{
    struct dws_job *job = arg;
    struct dws *dws = job->dws;
    json_t *eventlog;
    double epilog_start;

    job->f = NULL;
    dws->lookups--;
    if (job->stale)
        recover (job);
    else if (flux_rpc_get_unpack (f, "{s:o}", "eventlog", &eventlog) < 0) {
        lookup_failed (job, future_strerror (f, errno));
        lookup_next (dws);
    }
    else {
        dws_job_recovered (job, dws_job_replay (job, eventlog, &epilog_start));
        go_on (&job, epilog_start);
    }
    flux_future_destroy (f);
}

/* Do what only a callback may do, or what must be done before the job goes on,
 * and ask for the eventlog.
 *
 * After a restart of the instance there is nothing to do: the job was restored
 * with all that we had added. (Events from before it count as not posted.)
 */
void dws_job_adopt (struct dws_job **jobp)
{
    struct dws *dws = (*jobp)->dws;
    flux_plugin_t *p = dws->p;
    flux_jobid_t id = (*jobp)->id;
    int rc = 0;

    dws_job_enter (*jobp, DWS_RECOVER);
    dws->recovering++;
    if (flux_jobtap_job_event_posted (p, id, "submit") != 1)
        goto out;
    if ((*jobp)->state == FLUX_JOB_STATE_DEPEND) {
        // If some dependency was removed it may have been ours: then Proposal
        // is over, and nothing may be added again.
        if (flux_jobtap_job_event_posted (p, id, "dependency-remove") != 1)
            rc = dws_job_dependency_add (jobp);
    }
    else if ((*jobp)->state == FLUX_JOB_STATE_CLEANUP) {
        if (flux_jobtap_job_event_posted (p, id, "epilog-start") != 1
            && flux_jobtap_job_event_posted (p, id, "free") != 1)
            rc = dws_job_epilog_start (jobp);
    }
    if (rc < 0)
        hold_failed (dws, id);
out:
    if (*jobp)
        recover (*jobp);
}

// vi:ts=4 sw=4 expandtab
