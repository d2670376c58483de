/* Copyright 2026 the flux-dws developers
 * SPDX-License-Identifier: LGPL-3.0-only
 */

/* eventlog.c: the state of a job's storage by its eventlog */

#include <string.h>

#include "job.h"

/* The events of an eventlog that concern the plugin. */
struct history {
    bool dependency_added;
    bool dependency_removed;
    bool prolog_seen;
    bool epilog_seen;
    bool failed;
    bool ending; // the job is in CLEANUP
    double epilog_start;
};

static void replay_exception (struct dws_job *job,
                              struct history *hist,
                              const char *type,
                              json_int_t userid)
{
    enum dws_demand demand = dws_job_note_exception (job, type, userid);

    hist->failed = true;
    hist->ending = true;
    if (job->epilogs == 0)
        return;
    if (demand == DWS_DEMAND_ABORT)
        job->aborted = true;
    else if (demand == DWS_DEMAND_TEARDOWN)
        job->teardown = true;
}

static void replay_action (struct dws_job *job,
                           struct history *hist,
                           const char *name,
                           const char *description,
                           double timestamp)
{
    if (strcmp (description, DWS_DEPENDENCY) == 0) {
        if (strcmp (name, "dependency-add") == 0)
            hist->dependency_added = true;
        else if (strcmp (name, "dependency-remove") == 0)
            hist->dependency_removed = true;
    }
    else if (strcmp (description, DWS_PROLOG) == 0) {
        if (strcmp (name, "prolog-start") == 0) {
            hist->prolog_seen = true;
            job->prolog_start = timestamp;
            job->prologs++;
        }
        else if (strcmp (name, "prolog-finish") == 0) {
            job->prologs--;
            job->startable = job->prologs == 0 && !hist->failed;
        }
    }
    else if (strcmp (description, DWS_EPILOG) == 0) {
        if (strcmp (name, "epilog-start") == 0) {
            if (!hist->epilog_seen)
                hist->epilog_start = timestamp;
            hist->epilog_seen = true;
            job->epilogs++;
        }
        else if (strcmp (name, "epilog-finish") == 0)
            job->epilogs--;
    }
    else if (strcmp (name, "epilog-start") == 0 && !hist->ending)
        job->early_epilogs++;
}

static void replay_entry (struct dws_job *job,
                          struct history *hist,
                          json_t *entry)
{
    const char *name;
    double timestamp;
    const char *description = NULL;
    const char *type = NULL;
    int severity = -1;
    int final = 0;
    json_int_t userid = -1;
    json_t *memo = NULL;
    json_t *waits = NULL;

    if (json_unpack (entry,
                     "{s:s s:F s?{s?s s?s s?i s?b s?I s?o s?o}}",
                     "name", &name,
                     "timestamp", &timestamp,
                     "context",
                       "description", &description,
                       "type", &type,
                       "severity", &severity,
                       "final", &final,
                       "userid", &userid,
                       DWS_MEMO, &memo,
                       DWS_MODULE_MEMO, &waits) < 0)
        return; // some other plugin's event with a context like ours
    if (description)
        replay_action (job, hist, name, description, timestamp);
    else if (strcmp (name, "dws_environment") == 0)
        job->released = true;
    else if (strcmp (name, "memo") == 0) {
        if (memo)
            job->away_memo = !json_is_null (memo);
        if (waits)
            dws_job_note_memo (job, waits);
    }
    else if (strcmp (name, "exception") == 0
             && severity == 0
             && type)
        replay_exception (job, hist, type, userid);
    else {
        if (strcmp (name, "finish") == 0)
            hist->ending = true;
        dws_job_note_event (job, name, final);
    }
}

static enum dws_phase replay_phase (struct dws_job *job, struct history *hist)
{
    if (job->epilogs > 0)
        return DWS_POST_RUN;
    if (hist->epilog_seen || job->state == FLUX_JOB_STATE_CLEANUP)
        return DWS_DONE;
    if (job->state == FLUX_JOB_STATE_RUN) {
        if (job->prologs > 0)
            return DWS_SETUP;
        return hist->prolog_seen ? DWS_RUNNING : DWS_DONE;
    }
    if (job->state == FLUX_JOB_STATE_DEPEND && !hist->dependency_removed)
        return DWS_DEPEND;
    return hist->dependency_added ? DWS_SCHED : DWS_DONE;
}

void dws_job_note_late (struct dws_job *job, json_t *entry)
{
    if (!job->late)
        job->late = json_array ();
    if (json_array_append (job->late, entry) < 0)
        job->stale = true; // no memory: the eventlog has it
}

/* Late entries that the eventlog has are the first ones, in the same order. */
static void replay_late (struct dws_job *job,
                         struct history *hist,
                         json_t *eventlog)
{
    size_t known = 0;
    size_t index;
    json_t *entry;

    json_array_foreach (eventlog, index, entry) {
        if (json_equal (entry, json_array_get (job->late, known)))
            known++;
    }
    while ((entry = json_array_get (job->late, known++)))
        replay_entry (job, hist, entry);
    json_decref (job->late);
    job->late = NULL;
}

enum dws_phase dws_job_replay (struct dws_job *job,
                               json_t *eventlog,
                               double *epilog_start)
{
    struct history hist = { 0 };
    size_t index;
    json_t *entry;

    job->prologs = 0;
    job->epilogs = 0;
    job->early_epilogs = 0;
    job->startable = job->started = job->ended = job->exec_done = false;
    json_array_foreach (eventlog, index, entry)
        replay_entry (job, &hist, entry);
    replay_late (job, &hist, eventlog);
    dws_job_count_dependencies (job, eventlog);
    job->admitted = hist.dependency_added;
    job->delivered = hist.dependency_added;
    *epilog_start = hist.epilog_start;
    return replay_phase (job, &hist);
}

void dws_job_count_dependencies (struct dws_job *job, json_t *eventlog)
{
    size_t index;
    json_t *entry;
    const char *name;
    const char *description;

    job->others = 0;
    json_array_foreach (eventlog, index, entry) {
        if (json_unpack (entry,
                         "{s:s s:{s:s}}",
                         "name", &name,
                         "context",
                           "description", &description) == 0)
            dws_job_note_dependency (job, name, description);
    }
}

bool dws_dependency_is_held (json_t *eventlog, const char *description)
{
    size_t index;
    json_t *entry;
    const char *name;
    const char *found;

    json_array_foreach (eventlog, index, entry) {
        if (json_unpack (entry,
                         "{s:s s:{s:s}}",
                         "name", &name,
                         "context",
                           "description", &found) == 0
            && strcmp (name, "dependency-remove") == 0
            && strcmp (found, description) == 0)
            return false;
    }
    return true;
}

// vi:ts=4 sw=4 expandtab
