/* Copyright 2026 the flux-dws developers
 * SPDX-License-Identifier: LGPL-3.0-only
 */

/* dataout.c: the turns of the targets: look-ups, and the release or failure of
 * the jobs that wait
 *
 * The module commits the record of a job before it reports to the plugin, and a
 * target is there before its record is asked for. So nothing is missed in
 * between.
 *
 * Nothing is posted but in a turn: the callbacks that a post leads to must not
 * come back here while a list is walked.
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>

#include "text.h"
#include "action.h"
#include "request.h"
#include "dataout.h"

#define TURNS_MAX 8 // before the reactor has its own: 2 ms

static void record_cb (flux_future_t *f, void *arg);
static void release_cb (flux_future_t *f, void *arg);
static void recovered_cb (flux_future_t *f, void *arg);

/* The description of a dependency must be the same after a restart in another
 * locale. F58 is not.
 */
static void describe (flux_jobid_t target, char *buf, size_t size)
{
    char id[32];

    dws_job_id_encode (target, "f58plain", id, sizeof (id));
    snprintf (buf, size, "%s=%s", DWS_OUT, id);
}

/* A service of Flux is not there, or there is no memory. */
static void repeat (struct dws_target *target, flux_future_t *f)
{
    struct dws_dataout *out = target->dws->dataout;

    // job-info is loaded after the job manager.
    if (errno != ENOSYS && errno != EHOSTUNREACH && !out->failing) {
        dws_log (target->dws,
                 LOG_ERR,
                 target->id,
                 "error looking up what became of its data, it is looked up"
                 " again: %s",
                 f ? future_strerror (f, errno) : strerror (errno));
        out->failing = true;
    }
    dws_turn_repeat (target);
}

static void set_fate (struct dws_target *target,
                      enum dws_fate fate,
                      const char *reason)
{
    free (target->reason);
    target->reason = fate == DWS_FATE_LOST ? strdup (reason) : NULL;
    target->fate = fate;
    dws_turn_add (target);
}

/* Go on with a target when the last of its questions was answered. */
static void answered (struct dws_target *target,
                      flux_future_t *f,
                      enum dws_fate fate,
                      const char *reason)
{
    if (fate == DWS_FATE_UNKNOWN) {
        repeat (target, f);
        return;
    }
    target->dws->dataout->failing = false;
    if (fate != DWS_FATE_OPEN)
        set_fate (target, fate, reason);
}

static void look_up (struct dws_target *target)
{
    struct dws *dws = target->dws;

    if (!target->f
        && dws_turn_ask (dws,
                         &target->f,
                         dws_fate_ask_record (dws, target->id),
                         record_cb,
                         target) < 0)
        repeat (target, NULL);
}

/* Return true if the job has not ended. Its epilog does not end before one of
 * the records is there, and then dws_dataout_ended() is called.
 */
static bool is_active (struct dws *dws, flux_jobid_t id)
{
    int state = dws_job_state (dws, id);

    return state != 0 && state != FLUX_JOB_STATE_INACTIVE;
}

static void record_cb (flux_future_t *f, void *arg)
{
    struct dws_target *target = arg;
    struct dws *dws = target->dws;
    char reason[1000];
    enum dws_fate fate;

    dws_turn_answered (dws, &target->f);
    fate = dws_fate_by_record (f, reason, sizeof (reason));
    if (fate != DWS_FATE_OPEN || is_active (dws, target->id))
        answered (target, f, fate, reason);
    else if (dws_turn_ask (dws,
                           &target->f,
                           dws_fate_ask_release (dws, target->id),
                           release_cb,
                           target) < 0)
        repeat (target, NULL);
    flux_future_destroy (f);
}

static void release_cb (flux_future_t *f, void *arg)
{
    struct dws_target *target = arg;
    char reason[1000];
    enum dws_fate fate;

    dws_turn_answered (target->dws, &target->f);
    fate = dws_fate_by_release (target, f, reason, sizeof (reason));
    if (fate == DWS_FATE_OPEN && dws_fate_report (target->dws, target->id) < 0)
        repeat (target, NULL);
    else
        answered (target, f, fate, reason);
    flux_future_destroy (f);
}

static void ask_waiter (struct dws_waiter *waiter)
{
    struct dws_target *target = waiter->target;
    struct dws *dws = target->dws;

    if (dws_turn_ask (dws,
                      &waiter->f,
                      dws_eventlog_lookup (dws, waiter->id),
                      recovered_cb,
                      waiter) < 0)
        repeat (target, NULL);
    else
        dws_turn_add (target); // there may be others
}

static void recovered_cb (flux_future_t *f, void *arg)
{
    struct dws_waiter *waiter = arg;
    struct dws_target *target = waiter->target;
    json_t *eventlog;
    char description[64];

    dws_turn_answered (target->dws, &waiter->f);
    describe (target->id, description, sizeof (description));
    if (flux_rpc_get_unpack (f, "{s:o}", "eventlog", &eventlog) < 0)
        repeat (target, f);
    else if (!dws_dependency_is_held (eventlog, description))
        dws_waiter_detach (waiter);
    else {
        waiter->recovered = false;
        dws_turn_add (target);
    }
    flux_future_destroy (f);
}

/* Let a job go on, or fail. A post may end any job: neither the waiter nor its
 * target is used after it.
 */
static void settle (struct dws_waiter *waiter)
{
    struct dws_target *target = waiter->target;
    struct dws *dws = target->dws;
    flux_jobid_t id = waiter->id;
    enum dws_fate fate = target->fate;
    const char *reason = target->reason;
    char description[64];
    char f58[32];
    char note[1000];

    describe (target->id, description, sizeof (description));
    dws_job_id_encode (target->id, "f58", f58, sizeof (f58));
    dws_format (note,
                sizeof (note),
                "%s: %s: %s",
                DWS_OUT,
                f58,
                reason ? reason : "the data is not out");
    dws_turn_add (target); // there may be others
    dws_waiter_detach (waiter);
    if (fate == DWS_FATE_LOST)
        dws_dependency_fail (dws, id, note);
    else
        dws_dependency_remove (dws, id, description);
}

static void take_turn (struct dws_target *target)
{
    struct dws_waiter *waiter;

    dws_turn_remove (target);
    if (target->fate == DWS_FATE_OPEN) {
        look_up (target);
        return;
    }
    TAILQ_FOREACH (waiter, &target->waiters, link) {
        if (!waiter->f)
            break;
    }
    if (waiter && waiter->recovered)
        ask_waiter (waiter);
    else if (waiter)
        settle (waiter);
}

static void turns_cb (flux_reactor_t *r,
                      flux_watcher_t *w,
                      int revents,
                      void *arg)
{
    struct dws *dws = arg;
    struct dws_dataout *out = dws->dataout;
    struct dws_target *target;

    out->paused = false;
    for (int n = 0; n < TURNS_MAX; n++) {
        if (!(target = dws_turn_next (dws)))
            break;
        take_turn (target);
    }
    flux_watcher_destroy (out->timer);
    out->timer = NULL;
    dws_turn_schedule (dws);
}

/* Begin with a new target. The data of a job that has not come to its epilog is
 * not out yet.
 */
static void begin (struct dws_target *target)
{
    struct dws *dws = target->dws;
    const char *problem = dws_fate_check (dws, target->id, target->userid);

    if (problem)
        set_fate (target, DWS_FATE_LOST, problem);
    else if (dws_job_state (dws, target->id) >= FLUX_JOB_STATE_CLEANUP)
        dws_turn_add (target);
}

int dws_dataout_wait (struct dws *dws,
                      flux_jobid_t id,
                      uint32_t userid,
                      bool recovered,
                      flux_jobid_t target)
{
    struct dws_waiter *waiter;
    char description[64];

    if (dws_dataout_create (dws, turns_cb) < 0)
        return -1;
    describe (target, description, sizeof (description));
    if (flux_jobtap_job_aux_get (dws->p, id, description))
        return 0; // the same target, in another encoding of its ID
    if (!(waiter = calloc (1, sizeof (*waiter))))
        return -1;
    waiter->id = id;
    waiter->recovered = recovered;
    if (flux_jobtap_job_aux_set (dws->p,
                                 id,
                                 description,
                                 waiter,
                                 (flux_free_f)dws_waiter_destroy) < 0) {
        dws_waiter_destroy (waiter);
        return -1;
    }
    if (dws_waiter_attach (dws, waiter, target, userid) < 0)
        return -1;
    if (TAILQ_FIRST (&waiter->target->waiters) == waiter)
        begin (waiter->target);
    else if (waiter->target->fate != DWS_FATE_OPEN)
        dws_turn_add (waiter->target);
    return recovered ? 0 : dws_dependency_add (dws, id, description);
}

void dws_dataout_report (struct dws *dws, flux_jobid_t id, const char *errstr)
{
    struct dws_target *target = NULL;
    char reason[1000];

    dws_format (reason,
                sizeof (reason),
                "the data is not out: %s",
                errstr ? errstr : "");
    if (!dws->dataout)
        return;
    while ((target = dws_target_find (dws, target, id))) {
        if (target->fate == DWS_FATE_OPEN) {
            dws_turn_forget (dws, &target->f);
            set_fate (target, errstr ? DWS_FATE_LOST : DWS_FATE_OUT, reason);
        }
    }
}

/* A look-up that is under way may have been too early. */
void dws_dataout_ended (struct dws *dws, flux_jobid_t id)
{
    struct dws_target *target = NULL;

    if (!dws->dataout)
        return;
    while ((target = dws_target_find (dws, target, id))) {
        if (target->fate == DWS_FATE_OPEN) {
            dws_turn_forget (dws, &target->f);
            dws_turn_add (target);
        }
    }
}

void dws_dataout_resume (struct dws *dws)
{
    struct dws_target *target = NULL;

    while (dws->dataout && (target = dws_target_next (dws, target))) {
        if (target->fate == DWS_FATE_OPEN && !is_active (dws, target->id))
            dws_turn_add (target);
    }
}

// vi:ts=4 sw=4 expandtab
