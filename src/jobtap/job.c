/* Copyright 2026 the flux-dws developers
 * SPDX-License-Identifier: LGPL-3.0-only
 */

/* job.c: one job with #DW directives */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "job.h"

/* The most bytes of a memo that is kept. */
#define MEMO_MAX 4096

void dws_job_enter (struct dws_job *job, enum dws_phase phase)
{
    dws_job_drop_request (job);
    job->exec_asked = false;
    job->changed = false;
    flux_watcher_destroy (job->timer);
    job->timer = NULL;
    job->phase = phase;
}

static void dws_job_destroy (struct dws_job *job)
{
    if (job) {
        int saved_errno = errno;
        TAILQ_REMOVE (&job->dws->jobs, job, link);
        dws_job_enter (job, DWS_DONE);
        json_decref (job->directives);
        json_decref (job->late);
        json_decref (job->module_memo);
        free (job);
        errno = saved_errno;
    }
}

struct dws_job *dws_job_create (struct dws *dws,
                                flux_jobid_t id,
                                uint32_t userid)
{
    struct dws_job *job;

    if (!(job = calloc (1, sizeof (*job))))
        return NULL;
    job->dws = dws;
    job->serial = ++dws->serial;
    job->id = id;
    job->userid = userid;
    job->phase = DWS_NEW;
    TAILQ_INSERT_TAIL (&dws->jobs, job, link);
    if (flux_jobtap_job_aux_set (dws->p,
                                 id,
                                 DWS_JOB_AUX,
                                 job,
                                 (flux_free_f)dws_job_destroy) < 0) {
        dws_job_destroy (job);
        return NULL;
    }
    return job;
}

struct dws_job *dws_job_lookup (struct dws *dws, flux_jobid_t id)
{
    return flux_jobtap_job_aux_get (dws->p, id, DWS_JOB_AUX);
}

void dws_job_id_encode (flux_jobid_t id,
                        const char *type,
                        char *buf,
                        size_t size)
{
    if (flux_job_id_encode (id, type, buf, size) < 0)
        snprintf (buf, size, "%ju", (uintmax_t)id);
}

int dws_job_state (struct dws *dws, flux_jobid_t id)
{
    flux_plugin_arg_t *args = flux_jobtap_job_lookup (dws->p, id);
    int state = 0;

    if (args)
        (void)flux_plugin_arg_unpack (args,
                                      FLUX_PLUGIN_ARG_IN,
                                      "{s:i}",
                                      "state", &state);
    flux_plugin_arg_destroy (args);
    return state;
}

void dws_job_note_event (struct dws_job *job, const char *name, bool final)
{
    if (strcmp (name, "start") == 0)
        job->started = true;
    else if (strcmp (name, "finish") == 0)
        job->ended = true;
    else if (strcmp (name, "release") == 0 && final)
        job->ended = job->exec_done = true;
}

bool dws_job_note_dependency (struct dws_job *job,
                              const char *name,
                              const char *description)
{
    int before = job->others;

    if (strcmp (description, DWS_DEPENDENCY) == 0)
        return false;
    if (strcmp (name, "dependency-add") == 0)
        job->others++;
    else if (strcmp (name, "dependency-remove") == 0 && job->others > 0)
        job->others--;
    return (before == 0) != (job->others == 0);
}

/* Guests can post such memos, too. One that the module cannot have posted is
 * not kept: the module replaces an empty one.
 */
void dws_job_note_memo (struct dws_job *job, json_t *memo)
{
    json_decref (job->module_memo);
    if (json_is_null (memo))
        job->module_memo = NULL;
    else if (json_is_string (memo) && json_string_length (memo) <= MEMO_MAX)
        job->module_memo = json_incref (memo);
    else
        job->module_memo = json_string ("");
}

bool dws_job_has_tasks (struct dws_job *job)
{
    return (job->startable || job->started) && !job->ended;
}

/* While tasks are 'ending' nothing asks for Teardown: their data is copied out
 * when they have ended, however often the job is cancelled meanwhile, and each
 * task that is lost raises an exception. Nor does the job's time limit, which
 * may pass until job-exec is done with the job, 'released'. A timeout after
 * that was raised by a person, and does.
 *
 * dws_job_replay() gives the same answers, by the order of the events.
 */
static bool asks_teardown (const char *type, bool ending, bool released)
{
    return !ending && (released || strcmp (type, "timeout") != 0);
}

enum dws_demand dws_job_note_exception (struct dws_job *job,
                                        const char *type,
                                        json_int_t userid)
{
    if (strcmp (type, DWS_EXCEPTION) == 0)
        job->failed = true;
    if (strcmp (type, DWS_EPILOG_TIMEOUT) == 0
        && (userid <= 0 || userid == job->dws->owner)) // -1: by no user
        return DWS_DEMAND_ABORT;
    if (asks_teardown (type,
                       dws_job_has_tasks (job),
                       !job->started || job->exec_done))
        return DWS_DEMAND_TEARDOWN;
    return DWS_DEMAND_NOTHING;
}

// vi:ts=4 sw=4 expandtab
