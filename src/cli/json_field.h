#ifndef AGX_CLI_JSON_FIELD_H
#define AGX_CLI_JSON_FIELD_H
/* Members of an object of which both key and value are C strings; what is not UTF-8 is escaped first. */
#include "cli/say.h"
#include "wire/json.h"

#include <errno.h>

static inline void agx_json_field(agx_json_writer *w, const char *key, const char *text)
{
        _cleanup_(agx_buf_deinitp) agx_buf safe = AGX_BUF_NULL(SIZE_MAX / 2);

        agx_json_put_key(w, agx_view_str(key));
        if (!text) {
                agx_json_put_null(w);
                return;
        }
        if (agx_say_escape(&safe, agx_view_str(text)))
                w->error = -ENOMEM;
        agx_json_put_string(w, agx_buf_view(&safe));
}

static inline void agx_json_field_u64(agx_json_writer *w, const char *key, uint64_t u)
{
        agx_json_put_key(w, agx_view_str(key));
        agx_json_put_u64(w, u);
}

static inline void agx_json_field_bool(agx_json_writer *w, const char *key, bool b)
{
        agx_json_put_key(w, agx_view_str(key));
        agx_json_put_bool(w, b);
}

#endif
