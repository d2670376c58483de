/* Copyright 2026 the flux-dws developers
 * SPDX-License-Identifier: LGPL-3.0-only
 */

/* job.c: one job with #DW directives */

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dws.h"

#define BLANKS " \t\n\v\f\r"

static bool is_blank (json_t *string)
{
    const char *s = json_string_value (string);

    return s[strspn (s, BLANKS)] == '\0';
}

bool dws_jobspec_is_empty (json_t *dw)
{
    return (json_is_string (dw) && is_blank (dw))
        || (json_is_array (dw) && json_array_size (dw) == 0);
}

static json_t *directives_create (json_t *dw)
{
    size_t index;
    json_t *entry;

    if (json_is_string (dw) && !is_blank (dw))
        return json_pack ("[O]", dw);
    if (!json_is_array (dw) || json_array_size (dw) == 0)
        return NULL;
    json_array_foreach (dw, index, entry) {
        if (!json_is_string (entry) || is_blank (entry))
            return NULL;
    }
    return json_copy (dw);
}

/* Return how many words of 's' are the prefix of a directive.
 */
static size_t count_prefixes (const char *s)
{
    size_t count = 0;
    size_t length;

    for (s += strspn (s, BLANKS); *s != '\0'; s += strspn (s, BLANKS)) {
        length = strcspn (s, BLANKS);
        if (length == 3 && memcmp (s, "#DW", 3) == 0)
            count++;
        s += length;
    }
    return count;
}

/* A guest wrote the directives, and rank 0 reads them.
 */
static int check_size (json_t *directives, char *error, size_t size)
{
    size_t bytes = 0;
    size_t count = 0;
    size_t index;
    json_t *entry;

    json_array_foreach (directives, index, entry)
        bytes += json_string_length (entry);
    if (bytes > DWS_DIRECTIVES_BYTES) {
        snprintf (error,
                  size,
                  "attributes.system.dw has %zu bytes,"
                  " at most %d are accepted",
                  bytes,
                  DWS_DIRECTIVES_BYTES);
        return -1;
    }
    json_array_foreach (directives, index, entry)
        count += count_prefixes (json_string_value (entry));
    if (json_array_size (directives) > DWS_DIRECTIVES
        || count > DWS_DIRECTIVES) {
        snprintf (error,
                  size,
                  "attributes.system.dw has more than %d directives"
                  " for one job",
                  DWS_DIRECTIVES);
        return -1;
    }
    return 0;
}

int dws_jobspec_parse (json_t *dw,
                       json_t *tolerance,
                       json_t **directivesp,
                       int *failure_tolerancep,
                       char *error,
                       size_t size)
{
    char value[40];

    *failure_tolerancep = 0;
    if (tolerance) {
        json_int_t n = json_integer_value (tolerance);
        if (!json_is_integer (tolerance) || n < 0 || n > INT_MAX) {
            snprintf (error,
                      size,
                      "attributes.system.dw_failure_tolerance is %s,"
                      " expected an integer from 0 to %d",
                      dws_show (tolerance, value, sizeof (value)),
                      INT_MAX);
            return -1;
        }
        *failure_tolerancep = n;
    }
    if (!(*directivesp = directives_create (dw))) {
        snprintf (error,
                  size,
                  "attributes.system.dw is %s,"
                  " expected a string of #DW directives or a list of them",
                  dws_show (dw, value, sizeof (value)));
        return -1;
    }
    if (check_size (*directivesp, error, size) < 0) {
        json_decref (*directivesp);
        *directivesp = NULL;
        return -1;
    }
    return 0;
}

void dws_job_quiesce (struct dws_job *job)
{
    flux_future_destroy (job->f);
    job->f = NULL;
    job->asked = false;
    flux_watcher_destroy (job->timer);
    job->timer = NULL;
}

static void list_append (struct dws *dws, struct dws_job *job)
{
    job->prev = dws->last;
    if (dws->last)
        dws->last->next = job;
    else
        dws->first = job;
    dws->last = job;
}

static void list_remove (struct dws *dws, struct dws_job *job)
{
    if (job->prev)
        job->prev->next = job->next;
    else
        dws->first = job->next;
    if (job->next)
        job->next->prev = job->prev;
    else
        dws->last = job->prev;
}

static void dws_job_destroy (struct dws_job *job)
{
    if (job) {
        int saved_errno = errno;
        if (job->dws) { // NULL once the plugin is gone
            list_remove (job->dws, job);
            if (job->phase == DWS_RECOVER)
                dws_job_recovered (job, DWS_DONE);
        }
        dws_job_quiesce (job);
        json_decref (job->directives);
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
    list_append (dws, job);
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

void dws_job_note_event (struct dws_job *job, const char *name, bool final)
{
    if (strcmp (name, "start") == 0)
        job->started = true;
    else if (strcmp (name, "finish") == 0)
        job->ended = true;
    else if (strcmp (name, "release") == 0 && final)
        job->ended = job->exec_done = true;
}

/* What an eventlog says about us. */
struct history {
    bool dependency_added;
    bool dependency_removed;
    bool prolog_seen;
    bool epilog_seen;
    bool failed;
    double epilog_start;
};

/* The job's time limit does not ask for Teardown: data movement goes on. It may
 * pass until job-exec is done with the job; a timeout after that, 'released', is
 * somebody's who means it. As long as tasks are ending, only cancel does: others
 * come in numbers then, one for each task that is lost.
 */
static bool asks_teardown (const char *type, bool ending, bool released)
{
    if (ending)
        return strcmp (type, "cancel") == 0;
    return released || strcmp (type, "timeout") != 0;
}

enum dws_demand dws_job_note_exception (struct dws_job *job,
                                        const char *type,
                                        json_int_t userid)
{
    if (strcmp (type, DWS_EXCEPTION) == 0)
        job->told = true;
    if (strcmp (type, DWS_EPILOG_TIMEOUT) == 0
        && (userid <= 0 || userid == job->dws->owner)) // -1: by no user
        return DWS_DEMAND_ABORT;
    if (asks_teardown (type,
                       dws_job_has_tasks (job),
                       !job->started || job->exec_done))
        return DWS_DEMAND_TEARDOWN;
    return DWS_DEMAND_NOTHING;
}

static void replay_exception (struct dws_job *job,
                              struct history *hist,
                              const char *type,
                              json_int_t userid)
{
    enum dws_demand demand = dws_job_note_exception (job, type, userid);

    hist->failed = true;
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
            job->held = !json_is_null (memo);
        if (waits)
            job->waits = !json_is_null (waits);
    }
    else if (strcmp (name, "exception") == 0
             && severity == 0
             && type)
        replay_exception (job, hist, type, userid);
    else
        dws_job_note_event (job, name, final);
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

enum dws_phase dws_job_replay (struct dws_job *job,
                               json_t *eventlog,
                               double *epilog_start)
{
    struct history hist = { 0 };
    size_t index;
    json_t *entry;

    job->prologs = 0;
    job->epilogs = 0;
    job->startable = job->started = job->ended = job->exec_done = false;
    json_array_foreach (eventlog, index, entry)
        replay_entry (job, &hist, entry);
    job->admitted = hist.dependency_added;
    job->delivered = hist.dependency_added;
    *epilog_start = hist.epilog_start;
    return replay_phase (job, &hist);
}

// vi:ts=4 sw=4 expandtab
