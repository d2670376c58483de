/* Copyright 2026 the flux-dws developers
 * SPDX-License-Identifier: LGPL-3.0-only
 */

/* jobtap.c: the job manager as a host of one jobtap plugin */

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <flux/jobtap.h>

#include "core.h"
#include "jobtap.h"

struct service {
    struct service *next;
    char *method;
    uint32_t rolemask;
    flux_msg_handler_f cb;
    void *arg;
};

static long json_failure;

static void *json_malloc (size_t size)
{
    if (json_failure > 0 && --json_failure == 0) {
        errno = ENOMEM;
        return NULL;
    }
    return malloc (size);
}

/* So that a caller who has to keep errno is seen not to. */
static void json_free (void *p)
{
    free (p);
    errno = 0;
}

long standin_fail_json (long n)
{
    long left = json_failure;

    json_set_alloc_funcs (json_malloc, json_free);
    json_failure = n;
    return left;
}

static flux_jobid_t resolve (flux_plugin_t *p, flux_jobid_t id)
{
    return id == FLUX_JOBTAP_CURRENT_JOB ? p->h->current : id;
}

flux_t *flux_jobtap_get_flux (flux_plugin_t *p)
{
    return p->h;
}

int flux_jobtap_service_register_ex (flux_plugin_t *p,
                                     const char *method,
                                     uint32_t rolemask,
                                     flux_msg_handler_f cb,
                                     void *arg)
{
    struct service *service;

    if (!(service = calloc (1, sizeof (*service)))
        || !(service->method = strdup (method))) {
        free (service);
        return -1;
    }
    service->rolemask = rolemask;
    service->cb = cb;
    service->arg = arg;
    service->next = p->h->services;
    p->h->services = service;
    return 0;
}

static int set_errmsg (flux_plugin_arg_t *args, const char *fmt, va_list ap)
{
    char text[160]; // that of a flux_error_t

    vsnprintf (text, sizeof (text), fmt, ap);
    (void)json_object_set_new (plugin_arg_out (args),
                               "errmsg",
                               json_string (text));
    return -1;
}

int flux_jobtap_error (flux_plugin_t *p,
                       flux_plugin_arg_t *args,
                       const char *fmt,
                       ...)
{
    va_list ap;

    va_start (ap, fmt);
    set_errmsg (args, fmt, ap);
    va_end (ap);
    return -1;
}

int flux_jobtap_reject_job (flux_plugin_t *p,
                            flux_plugin_arg_t *args,
                            const char *fmt,
                            ...)
{
    va_list ap;

    va_start (ap, fmt);
    set_errmsg (args, fmt, ap);
    va_end (ap);
    return -1;
}

int flux_jobtap_job_aux_set (flux_plugin_t *p,
                             flux_jobid_t id,
                             const char *name,
                             void *val,
                             flux_free_f free_fn)
{
    return aux_add (&p->h->job_aux, resolve (p, id), name, val, free_fn);
}

void *flux_jobtap_job_aux_get (flux_plugin_t *p,
                               flux_jobid_t id,
                               const char *name)
{
    return aux_find (p->h->job_aux, resolve (p, id), name);
}

/* Post one of the events that have a description. */
static int action (flux_plugin_t *p,
                   const char *op,
                   flux_jobid_t id,
                   const char *description)
{
    return host_call (p->h,
                      NULL,
                      op,
                      "{s:I s:s}",
                      "jobid", (json_int_t)id,
                      "description", description);
}

static int action_finish (flux_plugin_t *p,
                          const char *op,
                          flux_jobid_t id,
                          const char *description,
                          int status)
{
    return host_call (p->h,
                      NULL,
                      op,
                      "{s:I s:s s:i}",
                      "jobid", (json_int_t)resolve (p, id),
                      "description", description,
                      "status", status);
}

int flux_jobtap_dependency_add (flux_plugin_t *p,
                                flux_jobid_t id,
                                const char *description)
{
    return action (p, "dependency_add", resolve (p, id), description);
}

int flux_jobtap_dependency_remove (flux_plugin_t *p,
                                   flux_jobid_t id,
                                   const char *description)
{
    return action (p, "dependency_remove", resolve (p, id), description);
}

int flux_jobtap_prolog_start (flux_plugin_t *p, const char *description)
{
    if (p->h->current == 0) {
        errno = EINVAL;
        return -1;
    }
    return action (p, "prolog_start", p->h->current, description);
}

int flux_jobtap_prolog_finish (flux_plugin_t *p,
                               flux_jobid_t id,
                               const char *description,
                               int status)
{
    return action_finish (p, "prolog_finish", id, description, status);
}

int flux_jobtap_epilog_finish (flux_plugin_t *p,
                               flux_jobid_t id,
                               const char *description,
                               int status)
{
    return action_finish (p, "epilog_finish", id, description, status);
}

int flux_jobtap_raise_exception (flux_plugin_t *p,
                                 flux_jobid_t id,
                                 const char *type,
                                 int severity,
                                 const char *fmt,
                                 ...)
{
    char note[1024];
    va_list ap;

    va_start (ap, fmt);
    vsnprintf (note, sizeof (note), fmt, ap);
    va_end (ap);
    return host_call (p->h,
                      NULL,
                      "raise_exception",
                      "{s:I s:s s:i s:s}",
                      "jobid", (json_int_t)resolve (p, id),
                      "type", type,
                      "severity", severity,
                      "note", note);
}

int flux_jobtap_event_post_pack (flux_plugin_t *p,
                                 flux_jobid_t id,
                                 const char *name,
                                 const char *fmt,
                                 ...)
{
    json_t *context = NULL;
    va_list ap;
    int rc;

    if (fmt) {
        va_start (ap, fmt);
        context = json_vpack_ex (NULL, 0, fmt, ap);
        va_end (ap);
        if (!context) {
            errno = EINVAL;
            return -1;
        }
    }
    rc = host_call (p->h,
                    NULL,
                    "event_post",
                    "{s:I s:s s:O?}",
                    "jobid", (json_int_t)resolve (p, id),
                    "name", name,
                    "context", context);
    json_decref (context);
    return rc;
}

int flux_jobtap_jobspec_update_id_pack (flux_plugin_t *p,
                                        flux_jobid_t id,
                                        const char *fmt,
                                        ...)
{
    json_t *updates;
    va_list ap;
    int rc;

    va_start (ap, fmt);
    updates = json_vpack_ex (NULL, 0, fmt, ap);
    va_end (ap);
    if (!updates || id == p->h->current) {
        json_decref (updates);
        errno = EINVAL;
        return -1;
    }
    rc = host_call (p->h,
                    NULL,
                    "jobspec_update",
                    "{s:I s:O}",
                    "jobid", (json_int_t)id,
                    "updates", updates);
    json_decref (updates);
    return rc;
}

flux_plugin_arg_t *flux_jobtap_job_lookup (flux_plugin_t *p, flux_jobid_t id)
{
    flux_plugin_arg_t *args;
    json_t *o;

    if (host_call (p->h,
                   &o,
                   "job_lookup",
                   "{s:I}",
                   "jobid", (json_int_t)resolve (p, id)) < 0)
        return NULL;
    args = plugin_arg_create (o);
    json_decref (o);
    return args;
}

int flux_jobtap_job_event_posted (flux_plugin_t *p,
                                  flux_jobid_t id,
                                  const char *name)
{
    json_t *o;
    int rc;

    if (host_call (p->h,
                   &o,
                   "event_posted",
                   "{s:I s:s}",
                   "jobid", (json_int_t)resolve (p, id),
                   "name", name) < 0)
        return -1;
    rc = json_is_true (o) ? 1 : 0;
    json_decref (o);
    return rc;
}

int flux_jobtap_job_subscribe (flux_plugin_t *p, flux_jobid_t id)
{
    return host_call (p->h,
                      NULL,
                      "subscribe",
                      "{s:I}",
                      "jobid", (json_int_t)resolve (p, id));
}

/* What follows is called by Python. */

/* flux_plugin_init() cannot give a reason, conf.update can. */
static int load (flux_t *h, char **error)
{
    flux_plugin_arg_t *args;
    json_t *in;
    const char *errmsg = "flux_plugin_init failed";
    int rc = -1;

    if (!(in = json_pack ("{s:{}}", "conf")))
        return -1;
    args = plugin_arg_create (in);
    json_decref (in);
    if (!args)
        return -1;
    if (flux_plugin_init (h->p) == 0
        && plugin_call (h->p, "conf.update", args) >= 0)
        rc = 0;
    else {
        (void)flux_plugin_arg_unpack (args,
                                      FLUX_PLUGIN_ARG_OUT,
                                      "{s:s}",
                                      "errmsg", &errmsg);
        *error = strdup (errmsg);
    }
    flux_plugin_arg_destroy (args);
    return rc;
}

flux_t *standin_load (void *host,
                      uint32_t owner,
                      const char *conf,
                      char **error)
{
    flux_t *h;

    if (!(h = calloc (1, sizeof (*h))))
        return NULL;
    h->host = host;
    snprintf (h->owner, sizeof (h->owner), "%" PRIu32, owner);
    if (!(h->p = plugin_create (h, conf)) || load (h, error) < 0) {
        standin_unload (h);
        return NULL;
    }
    return h;
}

void standin_unload (flux_t *h)
{
    struct service *service;

    // In the order in which the job manager does it.
    aux_delete_all (&h->job_aux);
    plugin_destroy (h->p);
    reactor_clear (h);
    while ((service = h->services)) {
        h->services = service->next;
        free (service->method);
        free (service);
    }
    free (h);
}

void standin_job_destroyed (flux_t *h, uint64_t id)
{
    aux_delete_job (&h->job_aux, id);
}

int standin_call (flux_t *h, const char *topic, const char *in, char **out)
{
    flux_jobid_t saved = h->current;
    json_int_t id = 0;
    json_t *o;
    flux_plugin_arg_t *args = NULL;
    int rc = -1;

    if (!(o = json_loads (in, 0, NULL))
        || json_unpack (o, "{s?I}", "id", &id) < 0
        || !(args = plugin_arg_create (o)))
        goto out;
    h->current = id;
    rc = plugin_call (h->p, topic, args);
    h->current = saved;
    *out = json_dumps (plugin_arg_out (args), JSON_COMPACT);
out:
    flux_plugin_arg_destroy (args);
    json_decref (o);
    return rc;
}

int standin_request (flux_t *h,
                     const char *method,
                     uint32_t role,
                     int64_t id,
                     const char *payload)
{
    struct service *service;

    for (service = h->services; service; service = service->next) {
        if (strcmp (service->method, method) == 0) {
            flux_msg_t msg = { .id = id };
            if (!(role & (service->rolemask | FLUX_ROLE_OWNER)))
                return -EPERM;
            msg.payload = json_loads (payload, 0, NULL);
            service->cb (h, NULL, &msg, service->arg);
            json_decref (msg.payload);
            return 0;
        }
    }
    return -ENOSYS;
}

// vi:ts=4 sw=4 expandtab
