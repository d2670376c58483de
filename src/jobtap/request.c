/* Copyright 2026 the flux-dws developers
 * SPDX-License-Identifier: LGPL-3.0-only
 */

/* request.c: requests to the dws module
 *
 * Each phase has one request that the module needs to have got. It may be sent
 * any number of times. If it cannot be delivered, because no module is loaded
 * (ENOSYS), because its service is not ready (EAGAIN), or because that died with
 * the request in flight (EHOSTUNREACH), the job waits: the module says hello when
 * it is there, and gets it again.
 *
 * A request may be what the module died of. Those that were in flight at the
 * LOST_SUSPECT-th death in a row are sent one at a time from then on, before all
 * others: what did no harm is answered, and the rest goes on as before. One that
 * is lost for the LOST_MAX-th time in a row is not sent again.
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>

#include "dws.h"

#define LOST_SUSPECT 2
#define LOST_MAX 5

enum answer {
    ANSWER_YES,
    ANSWER_NO,
    ANSWER_UNDELIVERED, // the module has not seen the request
    ANSWER_LOST,        // the module may have acted on it
};

/* Get the answer, and why it is not ANSWER_YES. */
static enum answer answer_get (flux_future_t *f, char *reason, size_t size)
{
    int success;
    const char *errstr = NULL;

    if (flux_rpc_get_unpack (f,
                             "{s:b s?s}",
                             "success", &success,
                             "errstr", &errstr) < 0) {
        if (errno == ENOSYS) {
            dws_format (reason, size, "the dws module is not loaded");
            return ANSWER_UNDELIVERED;
        }
        if (errno == EAGAIN) {
            dws_format (reason, size, "%s", future_strerror (f, errno));
            return ANSWER_UNDELIVERED;
        }
        if (errno == EHOSTUNREACH) {
            dws_format (reason, size, "the dws module went away");
            return ANSWER_LOST;
        }
        dws_format (reason, size, "%s", future_strerror (f, errno));
        return ANSWER_NO;
    }
    if (success)
        return ANSWER_YES;
    dws_format (reason,
                size,
                "%s",
                errstr ? errstr : "refused without a reason");
    return ANSWER_NO;
}

static void request_refused (struct dws_job **jobp, const char *reason)
{
    (*jobp)->lost = 0;
    dws_job_unhold (jobp);
    if (!*jobp)
        return;
    if ((*jobp)->phase == DWS_POST_RUN)
        // Without this nothing would ever release the job.
        dws_job_epilog_give_up (jobp, reason);
    else
        dws_job_raise (jobp, "%s", reason);
}

static void request_lost (struct dws_job **jobp, const char *reason)
{
    struct dws_job *job = *jobp;

    if (++job->lost >= LOST_SUSPECT)
        job->dws->cautious = true;
    if (job->lost < LOST_MAX)
        dws_job_hold (jobp, reason);
    else {
        char text[128];
        dws_format (text,
                    sizeof (text),
                    "the dws module died %d times in a row when it was asked to"
                    " work on the job's storage",
                    LOST_MAX);
        dws_log (job->dws, LOG_ERR, job->id, "%s", text);
        request_refused (jobp, text);
    }
}

/* The module has seen the request, or was not there. */
static void request_answered (struct dws_job **jobp,
                              enum answer answer,
                              const char *reason)
{
    struct dws_job *job = *jobp;

    if (answer != ANSWER_UNDELIVERED)
        job->delivered = true;
    if (answer == ANSWER_UNDELIVERED)
        dws_job_hold (jobp, reason);
    else if (answer == ANSWER_LOST)
        request_lost (jobp, reason);
    else if (answer == ANSWER_NO) {
        job->dws->away = false;
        request_refused (jobp, reason);
    }
    else {
        job->dws->away = false;
        if (job->phase == DWS_POST_RUN)
            job->accepted = true;
        if (job->accepted && job->teardown)
            dws_job_ask_teardown (job);
        else
            job->lost = 0;
        dws_job_unhold (jobp);
    }
}

static void request_cb (flux_future_t *f, void *arg)
{
    struct dws_job *job = arg;
    struct dws *dws = job->dws;
    char reason[1000];
    enum answer answer;

    job->f = NULL; // ours now: the job may end below
    answer = answer_get (f, reason, sizeof (reason));
    request_answered (&job, answer, reason);
    flux_future_destroy (f);
    dws_requests_next (dws);
}

/* Have 'cb' called when 'f' is fulfilled. Return 'f', or NULL if it is NULL or
 * had to be destroyed.
 */
static flux_future_t *then (flux_future_t *f,
                            flux_continuation_f cb,
                            void *arg)
{
    if (f && flux_future_then (f, -1., cb, arg) < 0) {
        int saved_errno = errno;
        flux_future_destroy (f);
        f = NULL;
        errno = saved_errno;
    }
    return f;
}

/* Send 'payload', which is stolen. */
static flux_future_t *request_send (struct dws *dws,
                                    const char *topic,
                                    json_t *payload,
                                    flux_continuation_f cb,
                                    void *arg)
{
    flux_future_t *f;

    if (!payload) {
        errno = ENOMEM;
        return NULL;
    }
    f = then (flux_rpc_pack (dws->h, topic, 0, 0, "O", payload), cb, arg);
    json_decref (payload);
    return f;
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
}

static void send_create (struct dws_job *job)
{
    flux_plugin_arg_t *args;
    json_t *resources;
    json_t *payload = NULL;

    if (!(args = flux_jobtap_job_lookup (job->dws->p, job->id)))
        goto error;
    if (flux_plugin_arg_unpack (args,
                                FLUX_PLUGIN_ARG_IN,
                                "{s:{s:o}}",
                                "jobspec",
                                  "resources", &resources) < 0) {
        errno = EINVAL;
        goto error;
    }
    payload = json_pack ("{s:I s:I s:O s:O s:i}",
                         "jobid", (json_int_t)job->id,
                         "userid", (json_int_t)job->userid,
                         "dw_directives", job->directives,
                         "resources", resources,
                         "failure_tolerance", job->failure_tolerance);
    flux_plugin_arg_destroy (args);
    args = NULL;
    if (!(job->f = request_send (job->dws,
                                 "dws.create",
                                 payload,
                                 request_cb,
                                 job)))
        goto error;
    return;
error:
    request_failed (job, "dws.create");
    flux_plugin_arg_destroy (args);
}

static void R_failed (struct dws_job **jobp, flux_future_t *f)
{
    dws_job_raise (jobp, "error reading R: %s", future_strerror (f, errno));
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
        if (!(job->f = then (f_setup, request_cb, job)))
            request_failed (job, "dws.setup");
    }
    free (payload);
    flux_future_destroy (f);
}

/* May end the job. */
static void R_lookup_cb (flux_future_t *f, void *arg)
{
    struct dws_job *job = arg;

    if (!(job->f = then (dws_R_load (job->dws, f), R_load_cb, job)))
        R_failed (&job, f);
    flux_future_destroy (f);
}

/* The R of a callback's arguments is redacted: it has no scheduling key, which
 * is what tells the Rabbits of the job. The one in the KVS has it.
 */
static void send_setup (struct dws_job *job)
{
    flux_future_t *f = dws_R_lookup (job->dws, job->id);

    if (!(job->f = then (f, R_lookup_cb, job)))
        request_failed (job, "the look-up of R");
}

static void send_post_run (struct dws_job *job)
{
    if (!(job->f = request_send (job->dws,
                                 "dws.post_run",
                                 json_pack ("{s:I s:b}",
                                            "jobid", (json_int_t)job->id,
                                            "run_started", job->started),
                                 request_cb,
                                 job)))
        request_failed (job, "dws.post_run");
}

static void teardown_cb (flux_future_t *f, void *arg)
{
    struct dws_job *job = arg;
    struct dws *dws = job->dws;
    char reason[1000];
    enum answer answer;

    job->f = NULL;
    answer = answer_get (f, reason, sizeof (reason));
    if (answer == ANSWER_UNDELIVERED)
        dws_job_hold (&job, reason);
    else if (answer == ANSWER_LOST)
        request_lost (&job, reason);
    else {
        job->lost = 0;
        if (answer == ANSWER_NO)
            dws_log (dws, LOG_ERR, job->id, "dws.teardown failed: %s", reason);
    }
    flux_future_destroy (f);
    dws_requests_next (dws);
}

/* As long as tasks may be running, or dws.post_run was not answered, that has to
 * come first; dws.teardown follows.
 */
void dws_job_ask_teardown (struct dws_job *job)
{
    job->teardown = true;
    if (!job->accepted || job->f)
        return;
    if (!(job->f = request_send (job->dws,
                                 "dws.teardown",
                                 json_pack ("{s:I}",
                                            "jobid", (json_int_t)job->id),
                                 teardown_cb,
                                 job)))
        request_failed (job, "dws.teardown");
}

/* Send the request of the job's phase. */
static void send_due (struct dws_job *job)
{
    job->due = false;
    switch (job->phase) {
        case DWS_DEPEND:
            send_create (job);
            break;
        case DWS_SETUP:
            send_setup (job);
            break;
        case DWS_POST_RUN:
            if (dws_job_has_tasks (job))
                dws_job_await_tasks (job);
            else
                send_post_run (job);
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

static void make_due (struct dws_job *job)
{
    flux_future_destroy (job->f);
    job->f = NULL;
    job->accepted = false;
    job->due = true;
}

void dws_job_resume (struct dws_job *job)
{
    make_due (job);
    if (job->dws->cautious)
        dws_requests_next (job->dws);
    else
        send_due (job);
}

void dws_job_settle (struct dws_job *job)
{
    dws_job_quiesce (job);
    job->lost = 0;
    dws_requests_next (job->dws);
}

/* One dws.abort that was not answered yet. It outlives its job. */
struct dws_abort {
    struct dws *dws;
    struct dws_abort *next;
    flux_jobid_t id;
    flux_future_t *f;
    bool due;
    int lost;                    // as those of struct dws_job
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
    struct dws_abort **p = &abort->dws->aborts;

    while (*p != abort)
        p = &(*p)->next;
    *p = abort->next;
    abort_destroy (abort);
}

static void abort_cb (flux_future_t *f, void *arg)
{
    struct dws_abort *abort = arg;
    struct dws *dws = abort->dws;
    flux_jobid_t id = abort->id;
    struct dws_job *job;
    char reason[1000];
    enum answer answer;

    abort->f = NULL;
    answer = answer_get (f, reason, sizeof (reason));
    if (answer == ANSWER_LOST && ++abort->lost >= LOST_SUSPECT)
        dws->cautious = true;
    if (answer == ANSWER_NO || abort->lost >= LOST_MAX)
        dws_log (dws,
                 LOG_ERR,
                 abort->id,
                 "dws.abort failed, nodes and Rabbits may still be in use: %s",
                 reason);
    else if (answer != ANSWER_YES)
        dws_log (dws,
                 LOG_ERR,
                 abort->id,
                 "nodes and Rabbits may still be in use, dws.abort is sent again"
                 " when the dws module is there: %s",
                 reason);
    if (answer == ANSWER_YES || answer == ANSWER_NO || abort->lost >= LOST_MAX)
        abort_remove (abort);
    flux_future_destroy (f);
    if (answer != ANSWER_YES // nobody else releases the epilog now
        && (job = dws_job_lookup (dws, id))
        && job->phase == DWS_POST_RUN)
        dws_job_epilog_release (&job, 1);
    dws_requests_next (dws);
}

static void abort_send (struct dws_abort *abort)
{
    abort->due = false;
    flux_future_destroy (abort->f);
    if (!(abort->f = request_send (abort->dws,
                                   "dws.abort",
                                   json_pack ("{s:I}",
                                              "jobid",
                                              (json_int_t)abort->id),
                                   abort_cb,
                                   abort)))
        dws_log (abort->dws,
                 LOG_ERR,
                 abort->id,
                 "error sending dws.abort: %s",
                 strerror (errno));
}

void dws_abort (struct dws *dws, flux_jobid_t id)
{
    struct dws_abort *abort;

    for (abort = dws->aborts; abort; abort = abort->next) {
        if (abort->id == id)
            break;
    }
    if (!abort) {
        if (!(abort = calloc (1, sizeof (*abort)))) {
            dws_log (dws, LOG_ERR, id, "dws.abort is not sent: out of memory");
            return;
        }
        abort->dws = dws;
        abort->id = id;
        abort->next = dws->aborts;
        dws->aborts = abort;
    }
    abort->due = true;
    if (dws->cautious)
        dws_requests_next (dws);
    else
        abort_send (abort);
}

/* Return true if a request is in flight that may be what the module dies of,
 * after having sent one that is due.
 */
static bool try_suspect (struct dws *dws)
{
    struct dws_job *job;
    struct dws_abort *abort;

    for (job = dws->first; job; job = job->next) {
        if (job->f && job->lost >= LOST_SUSPECT)
            return true;
    }
    for (abort = dws->aborts; abort; abort = abort->next) {
        if (abort->f && abort->lost >= LOST_SUSPECT)
            return true;
    }
    for (job = dws->first; job; job = job->next) {
        if (job->due && job->lost >= LOST_SUSPECT) {
            send_due (job);
            if (job->f)
                return true;
        }
    }
    for (abort = dws->aborts; abort; abort = abort->next) {
        if (abort->due && abort->lost >= LOST_SUSPECT) {
            abort_send (abort);
            if (abort->f)
                return true;
        }
    }
    return false;
}

void dws_requests_next (struct dws *dws)
{
    struct dws_job *job;
    struct dws_abort *abort;

    if (!dws->cautious || try_suspect (dws))
        return;
    dws->cautious = false;
    for (job = dws->first; job; job = job->next) {
        if (job->due)
            send_due (job);
    }
    for (abort = dws->aborts; abort; abort = abort->next) {
        if (abort->due)
            abort_send (abort);
    }
}

void dws_resume_suspects (struct dws *dws)
{
    struct dws_job *job;
    struct dws_abort *abort;

    for (job = dws->first; job; job = job->next) {
        if (job->lost >= LOST_SUSPECT)
            make_due (job);
    }
    for (abort = dws->aborts; abort; abort = abort->next) {
        flux_future_destroy (abort->f);
        abort->f = NULL;
        abort->due = true;
    }
    dws->cautious = true; // until no suspect is left
}

void dws_resume (struct dws *dws, const flux_jobid_t *ids, size_t count)
{
    struct dws_job *job;

    for (size_t i = 0; i < count; i++) {
        if ((job = dws_job_lookup (dws, ids[i])) && job->lost < LOST_SUSPECT)
            make_due (job);
    }
    dws->cautious = true;
    dws_requests_next (dws);
}

void dws_abort_clear (struct dws *dws)
{
    struct dws_abort *abort;

    while ((abort = dws->aborts)) {
        dws->aborts = abort->next;
        abort_destroy (abort);
    }
}

// vi:ts=4 sw=4 expandtab
