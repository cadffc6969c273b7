/* Anything that any of the engines could read differently from what it is takes the second way; the first one stays, so
 * that `docker inspect` and `docker exec` show what people expect. */
#include "oci/envfile.h"

#include "base/err.h"
#include "base/utf8.h"

/* bufio.Scanner's limit is 64 KiB for a line; some room is left for whoever counts otherwise. */
enum { LINE_MAX_BYTES = 32 * 1024 };

static bool fits_a_line(agx_view entry)
{
        return entry.n <= LINE_MAX_BYTES && !memchr(entry.p, '\n', entry.n) && !memchr(entry.p, '\r', entry.n) &&
               agx_utf8_valid(entry);
}

int agx_oci_env_files(const agx_strv *env, agx_buf *lines, agx_buf *rest)
{
        int r = 0;

        for (size_t i = 0; i < env->count && !r; ++i) {
                agx_view entry = agx_view_str(env->items[i]);
                bool line = fits_a_line(entry);
                agx_buf *out = line ? lines : rest;

                r = agx_buf_append_view(out, entry);
                r = r ? r : agx_buf_append(out, line ? "\n" : "", 1);
        }
        return agx_trace(r);
}
