/* Copyright 2026 the flux-dws developers
 * SPDX-License-Identifier: LGPL-3.0-only
 */

/* module.c: is the dws module there, and loading it again when it died
 *
 * The module says hello when it starts and bye when it ends cleanly. Between
 * the two one dws.alive request is in flight, which the module never answers:
 * the broker fails it when the module's process is gone. If that comes without
 * a bye, the module died: the broker is asked to load it again, in the way in
 * which it was loaded ("load" of its hello).
 *
 * A module that was removed has said bye, one that was never loaded has not
 * said hello: these are left alone. One that was loaded by somebody else in the
 * meantime (EEXIST) says hello by itself. "flux module remove --cancel" kills
 * the process: that cannot be told from a death.
 */

#include <errno.h>
#include <stdlib.h>
#include <syslog.h>

#include "dws.h"

/* Seconds before the module is loaded again: doubled each time, and as at first
 * after it was up for the longest of them.
 */
#define DELAY_FIRST 1.
#define DELAY_MAX 60.

struct dws_module {
    json_t *load;                // what module.load gets
    flux_future_t *f_alive;
    flux_future_t *f_load;
    flux_watcher_t *timer;
    double delay;                // of the next load; 0: DELAY_FIRST
    double up_since;
};

static double now (struct dws *dws)
{
    return flux_reactor_now (flux_get_reactor (dws->h));
}

static void forget_alive (struct dws_module *module)
{
    flux_future_destroy (module->f_alive);
    module->f_alive = NULL;
}

static void forget_timer (struct dws_module *module)
{
    flux_watcher_destroy (module->timer);
    module->timer = NULL;
}

static void forget_load (struct dws_module *module)
{
    flux_future_destroy (module->f_load);
    module->f_load = NULL;
}

static void module_died (struct dws *dws);

static void alive_cb (flux_future_t *f, void *arg)
{
    struct dws *dws = arg;
    int rc = flux_rpc_get (f, NULL);
    int errnum = errno;

    if (rc < 0 && errnum != EHOSTUNREACH && errnum != ENOSYS)
        flux_log (dws->h,
                  LOG_ERR,
                  "dws: dws.alive failed, the dws module is not loaded again"
                  " if it dies: %s",
                  future_strerror (f, errnum));
    forget_alive (dws->module);
    if (rc < 0 && (errnum == EHOSTUNREACH || errnum == ENOSYS))
        module_died (dws);
}

/* A request that is in flight already may be for an earlier module. */
static void module_watch (struct dws *dws)
{
    struct dws_module *module = dws->module;

    forget_alive (module);
    module->up_since = now (dws);
    if (!(module->f_alive = flux_rpc_pack (dws->h, "dws.alive", 0, 0, "{}"))
        || flux_future_then (module->f_alive, -1., alive_cb, dws) < 0) {
        flux_log_error (dws->h, "dws: error sending dws.alive");
        forget_alive (module);
    }
}

/* Load the module later. Return in how many seconds, or -1 on failure. */
static double load_later (struct dws *dws);

static void load_failed (struct dws *dws, const char *reason)
{
    double delay = load_later (dws);

    if (delay >= 0.)
        flux_log (dws->h,
                  LOG_ERR,
                  "dws: the dws module cannot be loaded again: %s;"
                  " trying again in %g s",
                  reason,
                  delay);
}

static void load_cb (flux_future_t *f, void *arg)
{
    struct dws *dws = arg;

    dws->module->f_load = NULL;
    if (flux_rpc_get (f, NULL) == 0) {
        flux_log (dws->h, LOG_NOTICE, "dws: the dws module was loaded again");
        // It may die before it says hello, or have said hello and died since.
        if (!dws->module->f_alive && !dws->module->timer)
            module_watch (dws);
    }
    else if (errno != EEXIST)
        load_failed (dws, future_strerror (f, errno));
    flux_future_destroy (f);
}

static void load (struct dws *dws)
{
    struct dws_module *module = dws->module;

    forget_load (module);
    if (!(module->f_load = flux_rpc_pack (dws->h,
                                          "module.load",
                                          0,
                                          0,
                                          "O",
                                          module->load))
        || flux_future_then (module->f_load, -1., load_cb, dws) < 0) {
        int saved_errno = errno;
        forget_load (module);
        load_failed (dws, flux_strerror (saved_errno));
    }
}

static void timer_cb (flux_reactor_t *r,
                      flux_watcher_t *w,
                      int revents,
                      void *arg)
{
    struct dws *dws = arg;

    forget_timer (dws->module);
    load (dws);
}

static double load_later (struct dws *dws)
{
    struct dws_module *module = dws->module;
    double delay = module->delay > 0. ? module->delay : DELAY_FIRST;

    forget_timer (module);
    if (!(module->timer = flux_timer_watcher_create (flux_get_reactor (dws->h),
                                                     delay,
                                                     0.,
                                                     timer_cb,
                                                     dws))) {
        flux_log_error (dws->h, "dws: the dws module is not loaded again");
        return -1.;
    }
    flux_watcher_start (module->timer);
    module->delay = 2. * delay < DELAY_MAX ? 2. * delay : DELAY_MAX;
    return delay;
}

static void module_died (struct dws *dws)
{
    struct dws_module *module = dws->module;
    double delay;

    dws->away = true;
    if (!dws->autoload) {
        flux_log (dws->h,
                  LOG_ERR,
                  "dws: the dws module died: jobs with #DW directives wait"
                  " until it is loaded");
        return;
    }
    if (now (dws) - module->up_since >= DELAY_MAX)
        module->delay = 0.;
    if ((delay = load_later (dws)) >= 0.)
        flux_log (dws->h,
                  LOG_ERR,
                  "dws: the dws module died: jobs with #DW directives wait,"
                  " loading it again in %g s",
                  delay);
}

int dws_module_create (struct dws *dws)
{
    return (dws->module = calloc (1, sizeof (*dws->module))) ? 0 : -1;
}

void dws_module_destroy (struct dws *dws)
{
    if (dws->module) {
        int saved_errno = errno;
        forget_alive (dws->module);
        forget_timer (dws->module);
        forget_load (dws->module);
        json_decref (dws->module->load);
        free (dws->module);
        dws->module = NULL;
        errno = saved_errno;
    }
}

void dws_module_hello (struct dws *dws, json_t *load)
{
    struct dws_module *module = dws->module;

    json_decref (module->load);
    module->load = json_incref (load);
    forget_timer (module);
    if (load)
        module_watch (dws);
    else {
        forget_alive (module);
        forget_load (module);
    }
}

void dws_module_bye (struct dws *dws)
{
    forget_alive (dws->module);
    forget_timer (dws->module);
    forget_load (dws->module);
}

// vi:ts=4 sw=4 expandtab
