/* Copyright 2026 the flux-dws developers
 * SPDX-License-Identifier: LGPL-3.0-only
 */

/* Jobs that wait for the data of other jobs, and whose turn it is */

#ifndef DWS_TARGET_H
#define DWS_TARGET_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <flux/core.h>

#include "job.h"

#define DWS_TARGET_BUCKETS 1024

/* What became of the data of a job. */
enum dws_fate {
    DWS_FATE_OPEN,    // nothing says that it is out, or that it is lost
    DWS_FATE_OUT,     // it is where copy_out asked for it
    DWS_FATE_LOST,    // it will not be there, or there is none
    DWS_FATE_UNKNOWN, // the look-up failed
};

struct dws_target;

/* One dependency of one job. It belongs to the job's aux items, and is in the
 * list of its target until that is settled.
 */
struct dws_waiter {
    struct dws_target *target; // NULL: settled
    TAILQ_ENTRY (dws_waiter) link;
    flux_jobid_t id;           // the job that waits
    bool recovered;            // the dependency may be over: see its eventlog
    flux_future_t *f;          // asks for that
};

/* The data of a job as far as jobs of one user wait for it: what becomes of it
 * is the same for all of them. Without waiters there is no target.
 */
struct dws_target {
    struct dws *dws;
    LIST_ENTRY (dws_target) link; // in its bucket
    TAILQ_ENTRY (dws_target) turn;
    bool has_turn;
    flux_jobid_t id;
    uint32_t userid;           // of its waiters
    TAILQ_HEAD (, dws_waiter) waiters;
    enum dws_fate fate;
    char *reason;              // why the data is lost; NULL: no memory
    flux_future_t *f;          // asks for one of the records
};

LIST_HEAD (dws_bucket, dws_target);

struct dws_dataout {
    struct dws_bucket buckets[DWS_TARGET_BUCKETS];
    TAILQ_HEAD (, dws_target) turns;
    int lookups;               // futures that are in flight
    bool failing;              // an error was logged, and not overcome
    bool paused;               // a look-up is to be repeated: not at once
    flux_watcher_t *timer;     // to the next turns
    flux_watcher_f turns_cb;
};

/* target.c: lists of them.
 */

/* Make dws->dataout, unless it is there. */
int dws_dataout_create (struct dws *dws, flux_watcher_f turns_cb);

/* Nobody waits any more. */
void dws_dataout_clear (struct dws *dws);

/* Return the first target, or the one after 'target', with this ID. */
struct dws_target *dws_target_find (struct dws *dws,
                                    struct dws_target *target,
                                    flux_jobid_t id);

/* Return the first target of all, or the one after 'target'. */
struct dws_target *dws_target_next (struct dws *dws, struct dws_target *target);

/* Create the target of a waiter of 'userid', unless it is there, and attach the
 * waiter to it.
 */
int dws_waiter_attach (struct dws *dws,
                       struct dws_waiter *waiter,
                       flux_jobid_t target,
                       uint32_t userid);

/* The last waiter takes the target with it. */
void dws_waiter_detach (struct dws_waiter *waiter);
void dws_waiter_destroy (struct dws_waiter *waiter);

/* Give a target a turn, or take it away. */
void dws_turn_add (struct dws_target *target);
void dws_turn_remove (struct dws_target *target);

/* Return the target whose turn it is, or NULL. */
struct dws_target *dws_turn_next (struct dws *dws);

/* Add the turn again, after a while. */
void dws_turn_repeat (struct dws_target *target);

/* Go on with the turns when the reactor has had its own. */
void dws_turn_schedule (struct dws *dws);

/* Keep a look-up in '*fp' until it is answered. Return -1 if 'f' is NULL. */
int dws_turn_ask (struct dws *dws,
                  flux_future_t **fp,
                  flux_future_t *f,
                  flux_continuation_f cb,
                  void *arg);

/* The look-up was answered: the caller destroys the future. */
void dws_turn_answered (struct dws *dws, flux_future_t **fp);

/* The answer is not needed. */
void dws_turn_forget (struct dws *dws, flux_future_t **fp);

#endif // !DWS_TARGET_H
