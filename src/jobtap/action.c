/* Copyright 2026 the flux-dws developers
 * SPDX-License-Identifier: LGPL-3.0-only
 */

/* action.c: the actions of the plugin on a job
 *
 * Only this file posts events. A post may end the job and free its struct: see
 * action.h. The struct is up to date before a post, for the callbacks.
 *
 * The job manager only counts open prolog and epilog actions. Finishing one of
 * ours twice would release another plugin's: job->prologs and job->epilogs say
 * how many are ours.
 */

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <syslog.h>

#include "text.h"
#include "job.h"
#include "action.h"

/* The means to find a job again after a post. */
struct post {
    struct dws *dws;
    flux_jobid_t id;
    enum dws_phase phase;
};

static struct post post_begin (struct dws_job *job)
{
    return (struct post){ job->dws, job->id, job->phase };
}

/* Return 'rc', with errno as it is. */
static int post_end (struct post *post, struct dws_job **jobp, int rc)
{
    int saved_errno = errno;

    *jobp = dws_job_lookup (post->dws, post->id);
    if (*jobp && (*jobp)->phase != post->phase)
        *jobp = NULL;
    errno = saved_errno;
    return rc;
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

    dws_job_id_encode (id, "f58", f58, sizeof (f58));
    va_start (ap, fmt);
    dws_vformat (text, sizeof (text), fmt, ap);
    va_end (ap);
    flux_log (dws->h, level, "dws: %s: %s", f58, text);
}

static void raise_exception (struct dws_job **jobp,
                             int severity,
                             const char *note)
{
    struct post post = post_begin (*jobp);
    int rc;

    rc = flux_jobtap_raise_exception (post.dws->p,
                                      post.id,
                                      DWS_EXCEPTION,
                                      severity,
                                      "%s",
                                      note);
    if (post_end (&post, jobp, rc) < 0)
        dws_log (post.dws,
                 LOG_ERR,
                 post.id,
                 "error raising exception: %s: %s",
                 note,
                 strerror (errno));
}

void dws_job_raise (struct dws_job **jobp, const char *fmt, ...)
{
    char note[1000]; // less than flux_jobtap_raise_exception() cuts at
    va_list ap;

    va_start (ap, fmt);
    dws_vformat (note, sizeof (note), fmt, ap);
    va_end (ap);
    raise_exception (jobp, 0, note);
}

int dws_job_raise_timeout (struct dws_job **jobp)
{
    struct post post = post_begin (*jobp);
    int rc;

    rc = flux_jobtap_raise_exception (post.dws->p,
                                      post.id,
                                      DWS_EPILOG_TIMEOUT,
                                      0,
                                      "storage was not released within the"
                                      " epilog-timeout of %g seconds; another"
                                      " exception says what is still in use",
                                      post.dws->epilog_timeout);
    return post_end (&post, jobp, rc);
}

static void post_memo (struct dws_job **jobp, const char *reason)
{
    struct post post = post_begin (*jobp);
    json_t *value;
    int rc;

    value = reason ? json_string (reason) : json_null ();
    rc = flux_jobtap_event_post_pack (post.dws->p,
                                      post.id,
                                      "memo",
                                      "{s:o}",
                                      DWS_MEMO, value);
    if (post_end (&post, jobp, rc) < 0)
        dws_log (post.dws,
                 LOG_ERR,
                 post.id,
                 "error posting memo: %s",
                 strerror (errno));
}

void dws_job_hold (struct dws_job **jobp, const char *reason)
{
    struct dws_job *job = *jobp;

    if (!job->dws->module_away) {
        job->dws->module_away = true;
        dws_log (job->dws,
                 LOG_WARNING,
                 job->id,
                 "%s: jobs with #DW directives wait for it",
                 reason);
    }
    if (!job->away_memo) {
        job->away_memo = true;
        post_memo (jobp, reason);
    }
}

void dws_job_unhold (struct dws_job **jobp)
{
    if ((*jobp)->away_memo) {
        (*jobp)->away_memo = false;
        post_memo (jobp, NULL);
    }
}

int dws_job_dependency_add (struct dws_job **jobp)
{
    struct post post = post_begin (*jobp);
    int rc = flux_jobtap_dependency_add (post.dws->p, post.id, DWS_DEPENDENCY);

    if (rc < 0 && errno == EEXIST)
        rc = 0;
    return post_end (&post, jobp, rc);
}

int dws_job_dependency_remove (struct dws_job **jobp)
{
    struct post post = post_begin (*jobp);

    return post_end (&post,
                     jobp,
                     flux_jobtap_dependency_remove (post.dws->p,
                                                    post.id,
                                                    DWS_DEPENDENCY));
}

int dws_job_update (struct dws_job **jobp, json_t *updates)
{
    struct post post = post_begin (*jobp);

    return post_end (&post,
                     jobp,
                     flux_jobtap_jobspec_update_id_pack (post.dws->p,
                                                         post.id,
                                                         "O",
                                                         updates));
}

int dws_job_environment (struct dws_job **jobp,
                         json_t *variables,
                         const char *copy_out)
{
    struct post post = post_begin (*jobp);

    return post_end (&post,
                     jobp,
                     flux_jobtap_event_post_pack (post.dws->p,
                                                  post.id,
                                                  "dws_environment",
                                                  "{s:O s:s*}",
                                                  "variables", variables,
                                                  "copy_out", copy_out));
}

int dws_job_data_moving (struct dws_job **jobp)
{
    struct post post = post_begin (*jobp);

    return post_end (&post,
                     jobp,
                     flux_jobtap_event_post_pack (post.dws->p,
                                                  post.id,
                                                  DWS_RELEASED,
                                                  NULL));
}

int dws_job_prolog_start (struct dws_job **jobp)
{
    struct post post = post_begin (*jobp);

    (*jobp)->prologs++;
    (*jobp)->prolog_start = flux_reactor_now (flux_get_reactor (post.dws->h));
    if (post_end (&post,
                  jobp,
                  flux_jobtap_prolog_start (post.dws->p, DWS_PROLOG)) == 0)
        return 0;
    if (*jobp)
        (*jobp)->prologs--;
    return -1;
}

static int post_epilog_start (struct dws_job **jobp)
{
    struct post post = post_begin (*jobp);

    (*jobp)->epilogs++;
    if (post_end (&post,
                  jobp,
                  flux_jobtap_event_post_pack (post.dws->p,
                                               post.id,
                                               "epilog-start",
                                               "{s:s}",
                                               "description",
                                               DWS_EPILOG)) == 0)
        return 0;
    if (*jobp)
        (*jobp)->epilogs--;
    return -1;
}

/* flux_jobtap_epilog_start() is for the current job of a callback only. */
int dws_job_epilog_start (struct dws_job **jobp)
{
    int rc = post_epilog_start (jobp);

    while (rc == 0 && *jobp && (*jobp)->early_epilogs > 0) {
        (*jobp)->early_epilogs--;
        rc = post_epilog_start (jobp);
    }
    return rc;
}

static void finish (struct dws_job **jobp,
                    int (*finish_f) (flux_plugin_t *p,
                                     flux_jobid_t id,
                                     const char *description,
                                     int status),
                    const char *description,
                    int status)
{
    struct post post = post_begin (*jobp);

    if (post_end (&post,
                  jobp,
                  finish_f (post.dws->p, post.id, description, status)) < 0)
        dws_log (post.dws,
                 LOG_ERR,
                 post.id,
                 "error finishing %s: %s",
                 description,
                 strerror (errno));
}

void dws_job_prolog_release (struct dws_job **jobp, int status)
{
    while (*jobp && (*jobp)->prologs > 0) {
        (*jobp)->prologs--;
        finish (jobp, flux_jobtap_prolog_finish, DWS_PROLOG, status);
    }
}

void dws_job_epilog_release (struct dws_job **jobp, int status)
{
    dws_job_enter (*jobp, DWS_DONE);
    dws_job_unhold (jobp);
    while (*jobp && (*jobp)->epilogs > 0) {
        (*jobp)->epilogs--;
        finish (jobp, flux_jobtap_epilog_finish, DWS_EPILOG, status);
    }
}

void dws_job_epilog_abandon (struct dws_job **jobp, const char *fmt, ...)
{
    char note[1000];
    va_list ap;

    va_start (ap, fmt);
    dws_vformat (note, sizeof (note), fmt, ap);
    va_end (ap);
    dws_log ((*jobp)->dws, LOG_CRIT, (*jobp)->id, "%s", note);
    raise_exception (jobp, 1, note);
    if (*jobp)
        dws_job_epilog_release (jobp, 1);
}

int dws_dependency_add (struct dws *dws,
                        flux_jobid_t id,
                        const char *description)
{
    return flux_jobtap_dependency_add (dws->p, id, description);
}

/* A submission that is being committed is in NEW: what is posted waits. */
static bool in_depend (struct dws *dws, flux_jobid_t id)
{
    int state = dws_job_state (dws, id);

    return state == FLUX_JOB_STATE_DEPEND || state == FLUX_JOB_STATE_NEW;
}

void dws_dependency_fail (struct dws *dws, flux_jobid_t id, const char *note)
{
    if (in_depend (dws, id)
        && flux_jobtap_raise_exception (dws->p,
                                        id,
                                        "dependency",
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

void dws_dependency_remove (struct dws *dws,
                            flux_jobid_t id,
                            const char *description)
{
    char note[200];

    if (!in_depend (dws, id)
        || flux_jobtap_dependency_remove (dws->p, id, description) == 0)
        return;
    snprintf (note,
              sizeof (note),
              "error removing dependency %s: %s; please submit it again",
              description,
              strerror (errno));
    dws_log (dws, LOG_ERR, id, "%s", note);
    dws_dependency_fail (dws, id, note);
}

// vi:ts=4 sw=4 expandtab
