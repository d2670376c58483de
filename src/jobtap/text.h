/* Copyright 2026 the flux-dws developers
 * SPDX-License-Identifier: LGPL-3.0-only
 */

/* Text from others, for the log, exceptions and memos */

#ifndef DWS_TEXT_H
#define DWS_TEXT_H

#include <stdarg.h>
#include <stddef.h>
#include <jansson.h>

/* Put 'value' into 'buf' as JSON in ASCII, cut to fit. */
const char *dws_show (json_t *value, char *buf, size_t size);

/* Format into 'buf', with control characters escaped, and cut to fit between
 * two UTF-8 sequences: Flux refuses text that is not valid UTF-8.
 */
void dws_format (char *buf, size_t size, const char *fmt, ...)
    __attribute__ ((format (printf, 3, 4)));
void dws_vformat (char *buf, size_t size, const char *fmt, va_list ap);

#endif // !DWS_TEXT_H
