/* Copyright 2026 the flux-dws developers
 * SPDX-License-Identifier: LGPL-3.0-only
 */

/* core.c: futures, requests and job IDs for the job manager's host */

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>

#include "core.h"

struct flux_future {
    flux_t *h;
    struct flux_future *next;
    int64_t id;
    flux_continuation_f cb;
    void *arg;
    int errnum;
    char *errstr;
    char *text;         // the payload
    json_t *payload;    // the same, once it was asked for
    char *treeobj;      // of a KVS look-up
};

const char *flux_attr_get (flux_t *h, const char *name)
{
    if (strcmp (name, "security.owner") == 0)
        return h->owner;
    if (strcmp (name, "version") == 0)
        return DWS_OLDEST_FLUX;
    errno = ENOENT;
    return NULL;
}

void flux_log_error (flux_t *h, const char *fmt, ...)
{
    int saved_errno = errno;
    char text[512];
    va_list ap;

    va_start (ap, fmt);
    vsnprintf (text, sizeof (text), fmt, ap);
    va_end (ap);
    flux_log (h, LOG_ERR, "%s: %s", text, strerror (saved_errno));
    errno = saved_errno;
}

static flux_future_t *future_create (flux_t *h)
{
    flux_future_t *f;

    if (!(f = calloc (1, sizeof (*f))))
        return NULL;
    f->h = h;
    f->id = ++h->serial;
    f->next = h->futures;
    h->futures = f;
    return f;
}

void flux_future_destroy (flux_future_t *f)
{
    if (f) {
        int saved_errno = errno;
        flux_future_t **p = &f->h->futures;
        while (*p != f)
            p = &(*p)->next;
        *p = f->next;
        free (f->errstr);
        free (f->text);
        json_decref (f->payload);
        free (f->treeobj);
        free (f);
        errno = saved_errno;
    }
}

int flux_future_then (flux_future_t *f,
                      double timeout,
                      flux_continuation_f cb,
                      void *arg)
{
    f->cb = cb;
    f->arg = arg;
    return 0;
}

bool flux_future_has_error (flux_future_t *f)
{
    return f->errnum != 0;
}

const char *flux_future_error_string (flux_future_t *f)
{
    return f->errstr ? f->errstr : strerror (f->errnum);
}

void standin_future_fulfill (flux_t *h,
                             int64_t id,
                             int errnum,
                             const char *errstr,
                             const char *payload)
{
    flux_future_t *f;

    for (f = h->futures; f; f = f->next) {
        if (f->id != id)
            continue;
        f->errnum = errnum;
        if (errstr[0] != '\0')
            f->errstr = strdup (errstr);
        if (payload)
            f->text = strdup (payload);
        if (f->cb)
            f->cb (f, f->arg);
        return;
    }
}

static int future_get (flux_future_t *f)
{
    if (f->errnum != 0) {
        errno = f->errnum;
        return -1;
    }
    return 0;
}

static int future_vunpack (flux_future_t *f, const char *fmt, va_list ap)
{
    if (future_get (f) < 0)
        return -1;
    if (!f->payload && f->text)
        f->payload = json_loads (f->text, JSON_DECODE_ANY, NULL);
    if (!f->payload || json_vunpack_ex (f->payload, NULL, 0, fmt, ap) < 0) {
        errno = EPROTO;
        return -1;
    }
    return 0;
}

/* Send a request. 'payload' may be NULL; it is not stolen. */
static flux_future_t *rpc (flux_t *h, const char *topic, json_t *payload)
{
    flux_future_t *f;

    if (!(f = future_create (h)))
        return NULL;
    if (host_call (h,
                   NULL,
                   "rpc",
                   "{s:I s:s s:O?}",
                   "future", (json_int_t)f->id,
                   "topic", topic,
                   "payload", payload) < 0) {
        flux_future_destroy (f);
        return NULL;
    }
    return f;
}

flux_future_t *flux_rpc_pack (flux_t *h,
                              const char *topic,
                              uint32_t nodeid,
                              int flags,
                              const char *fmt,
                              ...)
{
    json_t *payload;
    flux_future_t *f;
    va_list ap;

    va_start (ap, fmt);
    payload = json_vpack_ex (NULL, 0, fmt, ap);
    va_end (ap);
    if (!payload) {
        errno = EINVAL;
        return NULL;
    }
    f = rpc (h, topic, payload);
    json_decref (payload);
    return f;
}

/* The host takes payloads that are JSON. */
flux_future_t *flux_rpc (flux_t *h,
                         const char *topic,
                         const char *s,
                         uint32_t nodeid,
                         int flags)
{
    json_t *payload = json_loads (s, 0, NULL);
    flux_future_t *f = rpc (h, topic, payload);

    json_decref (payload);
    return f;
}

static flux_future_t *lookup (flux_t *h, const char *key, size_t size)
{
    flux_future_t *f;

    if (!(f = future_create (h)))
        return NULL;
    if (host_call (h,
                   NULL,
                   "kvs_lookup",
                   "{s:I s:s#}",
                   "future", (json_int_t)f->id,
                   "key", key, (int)size) < 0) {
        flux_future_destroy (f);
        return NULL;
    }
    return f;
}

/* The one service that takes what is no JSON is content.load. A blob has, for
 * its hash, the key that flux_kvs_lookup() found it with.
 */
flux_future_t *flux_rpc_raw (flux_t *h,
                             const char *topic,
                             const void *data,
                             size_t len,
                             uint32_t nodeid,
                             int flags)
{
    if (strcmp (topic, "content.load") != 0) {
        errno = ENOSYS;
        return NULL;
    }
    return lookup (h, data, len);
}

int flux_rpc_get_raw (flux_future_t *f, const void **data, size_t *len)
{
    if (future_get (f) < 0)
        return -1;
    *data = f->text;
    *len = f->text ? strlen (f->text) : 0;
    return 0;
}

/* The payload as text is not used by the plugins. */
int flux_rpc_get (flux_future_t *f, const char **s)
{
    if (s)
        *s = NULL;
    return future_get (f);
}

int flux_rpc_get_unpack (flux_future_t *f, const char *fmt, ...)
{
    va_list ap;
    int rc;

    va_start (ap, fmt);
    rc = future_vunpack (f, fmt, ap);
    va_end (ap);
    return rc;
}

static char *valref_create (const char *key)
{
    char *s;
    char *p;

    if (!(s = malloc (64 + 2 * strlen (key))))
        return NULL;
    p = s + sprintf (s, "{\"ver\":1,\"type\":\"valref\",\"data\":[\"key-");
    for (; *key != '\0'; key++)
        p += sprintf (p, "%02x", (unsigned char)*key);
    strcpy (p, "\"]}");
    return s;
}

/* Values are looked up as tree objects only. */
flux_future_t *flux_kvs_lookup (flux_t *h,
                                const char *ns,
                                int flags,
                                const char *key)
{
    flux_future_t *f;

    if (flags != FLUX_KVS_TREEOBJ) {
        errno = EINVAL;
        return NULL;
    }
    if (!(f = lookup (h, key, strlen (key))))
        return NULL;
    if (!(f->treeobj = valref_create (key))) {
        flux_future_destroy (f);
        return NULL;
    }
    return f;
}

int flux_kvs_lookup_get_treeobj (flux_future_t *f, const char **treeobj)
{
    *treeobj = f->treeobj;
    return future_get (f);
}

int flux_request_unpack (const flux_msg_t *msg,
                         const char **topic,
                         const char *fmt,
                         ...)
{
    va_list ap;
    int rc;

    va_start (ap, fmt);
    rc = json_vunpack_ex (msg->payload, NULL, 0, fmt, ap);
    va_end (ap);
    if (rc < 0)
        errno = EPROTO;
    return rc;
}

static int respond (flux_t *h,
                    const flux_msg_t *request,
                    int errnum,
                    const char *errstr,
                    json_t *payload)
{
    return host_call (h,
                      NULL,
                      "respond",
                      "{s:I s:i s:s s:O?}",
                      "request", (json_int_t)request->id,
                      "errnum", errnum,
                      "errstr", errstr,
                      "payload", payload);
}

int flux_respond (flux_t *h, const flux_msg_t *request, const char *s)
{
    json_t *payload = s ? json_loads (s, 0, NULL) : NULL;
    int rc = respond (h, request, 0, "", payload);

    json_decref (payload);
    return rc;
}

int flux_respond_pack (flux_t *h,
                       const flux_msg_t *request,
                       const char *fmt,
                       ...)
{
    json_t *payload;
    va_list ap;
    int rc;

    va_start (ap, fmt);
    payload = json_vpack_ex (NULL, 0, fmt, ap);
    va_end (ap);
    if (!payload) {
        errno = EINVAL;
        return -1;
    }
    rc = respond (h, request, 0, "", payload);
    json_decref (payload);
    return rc;
}

int flux_respond_error (flux_t *h,
                        const flux_msg_t *request,
                        int errnum,
                        const char *errstr)
{
    return respond (h,
                    request,
                    errnum,
                    errstr ? errstr : strerror (errnum),
                    NULL);
}

int flux_job_kvs_key (char *buf, int bufsz, flux_jobid_t id, const char *key)
{
    int len = snprintf (buf,
                        bufsz,
                        "job.%04x.%04x.%04x.%04x.%s",
                        (unsigned int)(id >> 48) & 0xffff,
                        (unsigned int)(id >> 32) & 0xffff,
                        (unsigned int)(id >> 16) & 0xffff,
                        (unsigned int)id & 0xffff,
                        key);

    if (len >= bufsz) {
        errno = EOVERFLOW;
        return -1;
    }
    return len;
}

// vi:ts=4 sw=4 expandtab
