#include "support/http1_rows.h"

#include <stdio.h>
#include <stdlib.h>

enum { CUTS_MAX = 2000 }; /* longer inputs are cut at some positions only */

static bool gives(const agx_http1_feed *feed, const agx_http1_row *row, size_t first, size_t step)
{
        _cleanup_(agx_buf_deinitp) agx_buf log = AGX_BUF_NULL(SIZE_MAX);

        agx_http1_log(&log, feed, row->in, first, step);
        if (agx_view_eq(agx_buf_view(&log), agx_view_str(row->want)))
                return true;
        fprintf(stderr, "input:  %.*s\nwanted: %s\ngot:    %.*s\nfed %zu, then %zu at a time\n\n",
                (int)(row->in.n < 400 ? row->in.n : 400), row->in.p, row->want, (int)agx_buf_view(&log).n,
                agx_buf_view(&log).p, first, step);
        return false;
}

static bool row_holds(const agx_http1_feed *feed, const agx_http1_row *row)
{
        size_t stride = row->in.n > CUTS_MAX ? row->in.n / CUTS_MAX * 7 + 1 : 1;

        if (!gives(feed, row, row->in.n, row->in.n) || !gives(feed, row, 1, 1))
                return false;
        for (size_t cut = 1; cut < row->in.n; cut += stride)
                if (!gives(feed, row, cut, row->in.n))
                        return false;
        return true;
}

size_t agx_http1_rows_check(const agx_http1_feed *feed, const agx_http1_row *rows, size_t n)
{
        size_t wrong = 0;

        for (size_t i = 0; i < n; ++i)
                wrong += !row_holds(feed, &rows[i]);
        return wrong;
}
