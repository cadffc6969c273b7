/* Writing packets: the head by hand, the JSON through its writer. Whatever fails, the buffer is cut back to where it was. */
#include "base/err.h"
#include "wire/sio_packet.h"

/* The types as they are written. */
enum { TYPE_CONNECT, TYPE_DISCONNECT, TYPE_EVENT, TYPE_ACK, TYPE_CONNECT_ERROR, TYPE_BINARY = 3 };

static int put_head(agx_buf *out, unsigned type, size_t attachments, agx_view nsp, const uint64_t *id)
{
        int r;

        if (!agx_sio_namespace_is_good(nsp))
                return agx_trace(-EINVAL);
        r = attachments ? agx_buf_printf(out, "%u%zu-", type + TYPE_BINARY, attachments)
                        : agx_buf_printf(out, "%u", type);
        if (!r && nsp.n > 1) {
                r = agx_buf_append_view(out, nsp);
                r = r ? r : agx_buf_append(out, ",", 1);
        }
        if (!r && id)
                r = agx_buf_printf(out, "%llu", (unsigned long long)*id);
        return r;
}

/* What was appended stays only if all of it is there. */
static int end(agx_buf *out, size_t before, int r)
{
        if (r)
                agx_buf_truncate(out, before);
        return r;
}

static size_t count_binary(const agx_sio_arg *args, size_t n)
{
        size_t count = 0;

        for (size_t i = 0; i < n; ++i)
                count += args[i].binary;
        return count;
}

static void put_args(agx_json_writer *w, const agx_sio_arg *args, size_t n)
{
        uint64_t num = 0;

        for (size_t i = 0; i < n; ++i) {
                if (!args[i].binary) {
                        agx_json_put_raw(w, args[i].v);
                        continue;
                }
                agx_json_put_object(w);
                agx_json_put_key(w, AGX_VIEW("_placeholder"));
                agx_json_put_bool(w, true);
                agx_json_put_key(w, AGX_VIEW("num"));
                agx_json_put_u64(w, num++);
                agx_json_put_object_end(w);
        }
}

int agx_sio_put_connect(agx_buf *out, agx_view nsp, agx_view json)
{
        size_t before = out->len;
        int r = put_head(out, TYPE_CONNECT, 0, nsp, NULL);

        return end(out, before, r ? r : agx_buf_append_view(out, json));
}

int agx_sio_put_connect_error(agx_buf *out, agx_view nsp, agx_view message)
{
        size_t before = out->len;
        int r = put_head(out, TYPE_CONNECT_ERROR, 0, nsp, NULL);
        agx_json_writer w = agx_json_writer_on(out);

        agx_json_put_object(&w);
        agx_json_put_key(&w, AGX_VIEW("message"));
        agx_json_put_string(&w, message);
        agx_json_put_object_end(&w);
        return end(out, before, r ? r : agx_json_writer_end(&w));
}

int agx_sio_put_disconnect(agx_buf *out, agx_view nsp)
{
        size_t before = out->len;

        return end(out, before, put_head(out, TYPE_DISCONNECT, 0, nsp, NULL));
}

int agx_sio_put_event(agx_buf *out, agx_view nsp, const uint64_t *id, agx_view name, const agx_sio_arg *args, size_t n)
{
        size_t before = out->len;
        int r = put_head(out, TYPE_EVENT, count_binary(args, n), nsp, id);
        agx_json_writer w = agx_json_writer_on(out);

        agx_json_put_array(&w);
        agx_json_put_string(&w, name);
        put_args(&w, args, n);
        agx_json_put_array_end(&w);
        return end(out, before, r ? r : agx_json_writer_end(&w));
}

int agx_sio_put_ack(agx_buf *out, agx_view nsp, uint64_t id, const agx_sio_arg *args, size_t n)
{
        size_t before = out->len;
        int r = put_head(out, TYPE_ACK, count_binary(args, n), nsp, &id);
        agx_json_writer w = agx_json_writer_on(out);

        agx_json_put_array(&w);
        put_args(&w, args, n);
        agx_json_put_array_end(&w);
        return end(out, before, r ? r : agx_json_writer_end(&w));
}
