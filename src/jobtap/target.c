/* Copyright 2026 the flux-dws developers
 * SPDX-License-Identifier: LGPL-3.0-only
 */

/* target.c: targets, their waiters, and their turns
 *
 * A turn of a target is for one look-up, or for one waiter. A few turns follow
 * one another, then the reactor has one: ten thousand jobs may wait for one
 * target, or each for another one.
 */

#include <errno.h>
#include <stdlib.h>

#include "request.h"
#include "target.h"

#define LOOKUPS_MAX 32  // that are in flight
#define PAUSE 2.        // seconds

int dws_dataout_create (struct dws *dws, flux_watcher_f turns_cb)
{
    if (dws->dataout)
        return 0;
    if (!(dws->dataout = calloc (1, sizeof (*dws->dataout))))
        return -1;
    TAILQ_INIT (&dws->dataout->turns);
    dws->dataout->turns_cb = turns_cb;
    return 0;
}

void dws_dataout_clear (struct dws *dws)
{
    struct dws_dataout *out = dws->dataout;

    if (out) {
        flux_watcher_destroy (out->timer);
        free (out);
        dws->dataout = NULL;
    }
}

/* No target has a turn while too many look-ups are in flight. */
static bool has_turn (struct dws_dataout *out)
{
    return !TAILQ_EMPTY (&out->turns) && out->lookups < LOOKUPS_MAX;
}

struct dws_target *dws_turn_next (struct dws *dws)
{
    struct dws_dataout *out = dws->dataout;

    return has_turn (out) && !out->paused ? TAILQ_FIRST (&out->turns) : NULL;
}

void dws_turn_schedule (struct dws *dws)
{
    struct dws_dataout *out = dws->dataout;

    if (out->timer || !has_turn (out))
        return;
    if (!(out->timer = flux_timer_watcher_create (flux_get_reactor (dws->h),
                                                  out->paused ? PAUSE : 0.,
                                                  0.,
                                                  out->turns_cb,
                                                  dws))) {
        flux_log_error (dws->h, "dws: error starting a timer");
        return;
    }
    flux_watcher_start (out->timer);
}

void dws_turn_add (struct dws_target *target)
{
    if (!target->has_turn) {
        target->has_turn = true;
        TAILQ_INSERT_TAIL (&target->dws->dataout->turns, target, turn);
    }
    dws_turn_schedule (target->dws);
}

void dws_turn_remove (struct dws_target *target)
{
    if (target->has_turn) {
        target->has_turn = false;
        TAILQ_REMOVE (&target->dws->dataout->turns, target, turn);
    }
}

void dws_turn_repeat (struct dws_target *target)
{
    struct dws_dataout *out = target->dws->dataout;

    out->paused = true;
    flux_watcher_destroy (out->timer);
    out->timer = NULL;
    dws_turn_add (target);
}

int dws_turn_ask (struct dws *dws,
                  flux_future_t **fp,
                  flux_future_t *f,
                  flux_continuation_f cb,
                  void *arg)
{
    if (!(*fp = dws_then (f, cb, arg)))
        return -1;
    dws->dataout->lookups++;
    return 0;
}

void dws_turn_answered (struct dws *dws, flux_future_t **fp)
{
    *fp = NULL;
    dws->dataout->lookups--;
    dws_turn_schedule (dws);
}

void dws_turn_forget (struct dws *dws, flux_future_t **fp)
{
    flux_future_t *f = *fp;

    if (f) {
        dws_turn_answered (dws, fp);
        flux_future_destroy (f);
    }
}

static struct dws_bucket *bucket (struct dws *dws, flux_jobid_t id)
{
    // Most bits of an ID are the time, and the low ones are mostly 0.
    return &dws->dataout->buckets[(id * 0x9e3779b97f4a7c15) >> 54];
}

struct dws_target *dws_target_find (struct dws *dws,
                                    struct dws_target *target,
                                    flux_jobid_t id)
{
    target = target ? LIST_NEXT (target, link) : LIST_FIRST (bucket (dws, id));
    while (target && target->id != id)
        target = LIST_NEXT (target, link);
    return target;
}

struct dws_target *dws_target_next (struct dws *dws, struct dws_target *target)
{
    struct dws_bucket *buckets = dws->dataout->buckets;
    struct dws_bucket *b = target ? bucket (dws, target->id) + 1 : buckets;
    struct dws_target *next = target ? LIST_NEXT (target, link) : NULL;

    for (; !next && b < buckets + DWS_TARGET_BUCKETS; b++)
        next = LIST_FIRST (b);
    return next;
}

static void target_destroy (struct dws_target *target)
{
    LIST_REMOVE (target, link);
    dws_turn_remove (target);
    dws_turn_forget (target->dws, &target->f);
    free (target->reason);
    free (target);
}

static struct dws_target *target_create (struct dws *dws,
                                         flux_jobid_t id,
                                         uint32_t userid)
{
    struct dws_target *target;

    if (!(target = calloc (1, sizeof (*target))))
        return NULL;
    target->dws = dws;
    target->id = id;
    target->userid = userid;
    TAILQ_INIT (&target->waiters);
    LIST_INSERT_HEAD (bucket (dws, id), target, link);
    return target;
}

int dws_waiter_attach (struct dws *dws,
                       struct dws_waiter *waiter,
                       flux_jobid_t id,
                       uint32_t userid)
{
    struct dws_target *target = dws_target_find (dws, NULL, id);

    while (target && target->userid != userid)
        target = dws_target_find (dws, target, id);
    if (!target && !(target = target_create (dws, id, userid)))
        return -1;
    waiter->target = target;
    TAILQ_INSERT_TAIL (&target->waiters, waiter, link);
    return 0;
}

void dws_waiter_detach (struct dws_waiter *waiter)
{
    struct dws_target *target = waiter->target;

    dws_turn_forget (target->dws, &waiter->f);
    TAILQ_REMOVE (&target->waiters, waiter, link);
    waiter->target = NULL;
    if (TAILQ_EMPTY (&target->waiters))
        target_destroy (target);
}

void dws_waiter_destroy (struct dws_waiter *waiter)
{
    if (waiter) {
        int saved_errno = errno;
        if (waiter->target)
            dws_waiter_detach (waiter);
        free (waiter);
        errno = saved_errno;
    }
}

// vi:ts=4 sw=4 expandtab
