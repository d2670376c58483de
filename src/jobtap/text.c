/* Copyright 2026 the flux-dws developers
 * SPDX-License-Identifier: LGPL-3.0-only
 */

/* text.c: text from others for the log, exceptions and memos */

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text.h"

const char *dws_show (json_t *value, char *buf, size_t size)
{
    char *s = json_dumps (value, JSON_ENCODE_ANY | JSON_ENSURE_ASCII);
    char *del;

    if (snprintf (buf, size, "%s", s ? s : "?") >= (int)size)
        memcpy (buf + size - 4, "...", 4);
    // The one control character that jansson writes as it is.
    for (del = strchr (buf, '\177'); del; del = strchr (del, '\177'))
        *del = '?';
    free (s);
    return buf;
}

/* Return the length of the UTF-8 sequence that 's' begins with, and whether it
 * is a control character (C0, DEL or C1).
 */
static size_t sequence (const char *s, bool *control)
{
    unsigned char c = s[0];

    *control = c < 0x20 || c == 0x7f
        || (c == 0xc2 && (unsigned char)s[1] < 0xa0);
    return c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
}

void dws_vformat (char *buf, size_t size, const char *fmt, va_list ap)
{
    char raw[1024];
    char *s = raw;
    size_t used = 0;

    (void)vsnprintf (raw, sizeof (raw), fmt, ap);
    while (*s != '\0') {
        char shown[8];
        bool control;
        size_t len = sequence (s, &control);
        size_t n = len;
        if (strnlen (s, len) < len) // it was cut within
            break;
        if (control)
            n = snprintf (shown,
                          sizeof (shown),
                          "\\x%02x",
                          (unsigned char)s[len - 1]);
        if (used + n >= size)
            break;
        memcpy (buf + used, control ? shown : s, n);
        used += n;
        s += len;
    }
    buf[used] = '\0';
}

void dws_format (char *buf, size_t size, const char *fmt, ...)
{
    va_list ap;

    va_start (ap, fmt);
    dws_vformat (buf, size, fmt, ap);
    va_end (ap);
}

// vi:ts=4 sw=4 expandtab
