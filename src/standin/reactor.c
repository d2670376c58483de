/* Copyright 2026 the flux-dws developers
 * SPDX-License-Identifier: LGPL-3.0-only
 */

/* reactor.c: the time and the timers of the job manager's host */

#include <errno.h>
#include <stdlib.h>

#include "core.h"

struct flux_watcher {
    flux_t *h;
    struct flux_watcher *next;
    int64_t id;
    double after;
    flux_watcher_f cb;
    void *arg;
};

/* The reactor is the handle by another name. */
struct flux_reactor {
    struct flux_handle handle;
};

static flux_t *reactor_handle (flux_reactor_t *r)
{
    return &r->handle;
}

flux_reactor_t *flux_get_reactor (flux_t *h)
{
    return (flux_reactor_t *)h;
}

double flux_reactor_now (flux_reactor_t *r)
{
    json_t *o;
    double now;

    if (host_call (reactor_handle (r), &o, "now", "{}") < 0)
        return 0.;
    now = json_number_value (o);
    json_decref (o);
    return now;
}

flux_watcher_t *flux_timer_watcher_create (flux_reactor_t *r,
                                           double after,
                                           double repeat,
                                           flux_watcher_f cb,
                                           void *arg)
{
    flux_t *h = reactor_handle (r);
    flux_watcher_t *w;

    if (!(w = calloc (1, sizeof (*w))))
        return NULL;
    w->h = h;
    w->id = ++h->serial;
    w->after = after;
    w->cb = cb;
    w->arg = arg;
    w->next = h->timers;
    h->timers = w;
    return w;
}

void flux_watcher_start (flux_watcher_t *w)
{
    if (host_call (w->h,
                   NULL,
                   "timer_start",
                   "{s:I s:f}",
                   "timer", (json_int_t)w->id,
                   "after", w->after) < 0)
        flux_log_error (w->h, "timer_start");
}

void flux_watcher_destroy (flux_watcher_t *w)
{
    if (w) {
        int saved_errno = errno;
        flux_watcher_t **p = &w->h->timers;
        while (*p != w)
            p = &(*p)->next;
        *p = w->next;
        (void)host_call (w->h,
                         NULL,
                         "timer_stop",
                         "{s:I}",
                         "timer", (json_int_t)w->id);
        free (w);
        errno = saved_errno;
    }
}

void standin_timer_expire (flux_t *h, int64_t id)
{
    flux_watcher_t *w;

    for (w = h->timers; w; w = w->next) {
        if (w->id == id) {
            w->cb (flux_get_reactor (h), w, 0, w->arg);
            return;
        }
    }
}

void reactor_clear (flux_t *h)
{
    while (h->futures)
        flux_future_destroy (h->futures);
    while (h->timers)
        flux_watcher_destroy (h->timers);
}

// vi:ts=4 sw=4 expandtab
