#ifndef AGX_TEST_HTTP1_ROWS_H
#define AGX_TEST_HTTP1_ROWS_H
/*
 * Tables of HTTP/1.1 input and what must come of it, in the notation of support/http1_log.h. Each row is fed whole, byte
 * by byte and, up to a length, cut at every position; all must give the same text.
 */
#include "support/http1_log.h"

typedef struct agx_http1_row {
        agx_view in;
        const char *want;
} agx_http1_row;

/* A row of a string literal, which may hold NUL bytes. */
#define AGX_HTTP1_ROW(literal, want_)                                                                                  \
        {                                                                                                              \
                .in = {"" literal, sizeof(literal) - 1}, .want = (want_)                                               \
        }

/* Prints each row that differs; gives the number of them. */
size_t agx_http1_rows_check(const agx_http1_feed *feed, const agx_http1_row *rows, size_t n);

#endif
