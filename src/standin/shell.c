/* Copyright 2026 the flux-dws developers
 * SPDX-License-Identifier: LGPL-3.0-only
 */

/* shell.c: the job shell as a host of one shell plugin */

#define FLUX_SHELL_PLUGIN_NAME "standin"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <flux/shell.h>

#include "host.h"
#include "shell.h"

/* The shell is the handle by another name. */
struct flux_shell {
    struct flux_handle handle;
};

/* A watch of the job's eventlog, or a request with its answer. */
struct flux_future {
    flux_t *h;
    int errnum;
    char *event;
    json_t *payload;
};

flux_shell_t *flux_plugin_get_shell (flux_plugin_t *p)
{
    return (flux_shell_t *)p->h;
}

flux_t *flux_shell_get_flux (flux_shell_t *shell)
{
    return &shell->handle;
}

/* The plugin keeps what it unpacks: aux keeps it alive. */
static json_t *get_info (flux_shell_t *shell)
{
    json_t *info;

    if (host_call (&shell->handle, &info, "info", "{}") < 0
        || flux_plugin_aux_set (shell->handle.p,
                                NULL,
                                info,
                                (flux_free_f)json_decref) < 0)
        return NULL;
    return info;
}

int flux_shell_getopt_unpack (flux_shell_t *shell,
                              const char *name,
                              const char *fmt,
                              ...)
{
    json_t *info = get_info (shell);
    json_t *option;
    va_list ap;
    int rc;

    if (!info)
        return -1;
    option = json_object_get (json_object_get (info, "options"), name);
    if (!option)
        return 0;
    va_start (ap, fmt);
    rc = json_vunpack_ex (option, NULL, 0, fmt, ap);
    va_end (ap);
    return rc < 0 ? -1 : 1;
}

int flux_shell_info_unpack (flux_shell_t *shell, const char *fmt, ...)
{
    json_t *info;
    va_list ap;
    int rc;

    if (!(info = get_info (shell)))
        return -1;
    va_start (ap, fmt);
    rc = json_vunpack_ex (info, NULL, 0, fmt, ap);
    va_end (ap);
    if (rc < 0)
        errno = EINVAL;
    return rc;
}

int flux_shell_setenvf (flux_shell_t *shell,
                        int overwrite,
                        const char *name,
                        const char *fmt,
                        ...)
{
    char *value;
    va_list ap;
    int rc;

    va_start (ap, fmt);
    rc = vasprintf (&value, fmt, ap);
    va_end (ap);
    if (rc < 0)
        return -1;
    rc = host_call (&shell->handle,
                    NULL,
                    "setenv",
                    "{s:s s:s}",
                    "name", name,
                    "value", value);
    free (value);
    return rc;
}

/* A shell process has one shell: flux_shell_log() takes it for granted. */
static _Thread_local flux_t *log_handle;

void flux_shell_log (const char *component,
                     int level,
                     const char *file,
                     int line,
                     const char *fmt,
                     ...)
{
    char text[1024];
    va_list ap;

    va_start (ap, fmt);
    vsnprintf (text, sizeof (text), fmt, ap);
    va_end (ap);
    (void)flux_log (log_handle, level, "%s: %s", component, text);
}

flux_future_t *flux_job_event_watch (flux_t *h,
                                     flux_jobid_t id,
                                     const char *path,
                                     int flags)
{
    flux_future_t *f;

    if (!(f = calloc (1, sizeof (*f))))
        return NULL;
    f->h = h;
    if (host_call (h,
                   NULL,
                   "eventlog_watch",
                   "{s:I}",
                   "jobid", (json_int_t)id) < 0) {
        free (f);
        return NULL;
    }
    return f;
}

int flux_job_event_watch_get (flux_future_t *f, const char **event)
{
    json_t *entry;

    if (host_call (f->h, &entry, "eventlog_next", "{}") < 0) {
        f->errnum = errno;
        return -1;
    }
    free (f->event);
    f->event = json_dumps (entry, JSON_COMPACT);
    json_decref (entry);
    *event = f->event;
    return f->event ? 0 : -1;
}

int flux_job_event_watch_cancel (flux_future_t *f)
{
    return 0;
}

int flux_future_wait_for (flux_future_t *f, double timeout)
{
    return host_call (f->h, NULL, "eventlog_wait", "{}");
}

void flux_future_reset (flux_future_t *f)
{
    f->errnum = 0;
}

void flux_future_destroy (flux_future_t *f)
{
    if (f) {
        free (f->event);
        json_decref (f->payload);
        free (f);
    }
}

flux_future_t *flux_rpc_pack (flux_t *h,
                              const char *topic,
                              uint32_t nodeid,
                              int flags,
                              const char *fmt,
                              ...)
{
    flux_future_t *f;
    json_t *payload;
    va_list ap;

    va_start (ap, fmt);
    payload = json_vpack_ex (NULL, 0, fmt, ap);
    va_end (ap);
    if (!payload || !(f = calloc (1, sizeof (*f)))) {
        json_decref (payload);
        errno = EINVAL;
        return NULL;
    }
    f->h = h;
    if (host_call (h,
                   &f->payload,
                   "rpc",
                   "{s:s s:b s:o}",
                   "topic", topic,
                   "leader", nodeid == 0,
                   "payload", payload) < 0)
        f->errnum = errno;
    return f;
}

int flux_rpc_get_unpack (flux_future_t *f, const char *fmt, ...)
{
    va_list ap;
    int rc;

    if (f->errnum) {
        errno = f->errnum;
        return -1;
    }
    va_start (ap, fmt);
    rc = json_vunpack_ex (f->payload, NULL, 0, fmt, ap);
    va_end (ap);
    if (rc < 0)
        errno = EPROTO;
    return rc;
}

bool flux_future_has_error (flux_future_t *f)
{
    return f->errnum != 0;
}

const char *flux_future_error_string (flux_future_t *f)
{
    return strerror (f->errnum);
}

int standin_shell_run (void *host, int to_the_end)
{
    flux_t *saved = log_handle;
    flux_shell_t shell = { .handle = { .host = host } };
    flux_t *h = &shell.handle;
    int rc = -1;

    log_handle = h;
    if ((h->p = plugin_create (h, NULL))
        && flux_plugin_init (h->p) == 0
        && plugin_call (h->p, "shell.init", NULL) >= 0
        && (!to_the_end || plugin_call (h->p, "shell.exit", NULL) >= 0))
        rc = 0;
    plugin_destroy (h->p);
    log_handle = saved;
    return rc;
}

// vi:ts=4 sw=4 expandtab
