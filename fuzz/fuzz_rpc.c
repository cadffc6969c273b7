/* Any bytes as the payload of an event on /rpc, the first byte picks which: no crash, no over-read; what is understood is
 * written and read again and must come out the same. */
#include "proto/limits.h"
#include "proto/rpc.h"

#include <stdlib.h>

enum { MAX = 1 << 24 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void need(bool ok)
{
        if (!ok)
                abort();
}

static void same(agx_view a, agx_view b)
{
        need((a.p == NULL) == (b.p == NULL) && agx_view_eq(a, b));
}

static void same_faults(const agx_fault *a, const agx_fault *b)
{
        same(a->type, b->type);
        same(a->message, b->message);
        same(a->traceback, b->traceback);
        same(a->reason, b->reason);
        need(a->cancelled == b->cancelled && a->has_returncode == b->has_returncode && a->returncode == b->returncode);
}

static void same_events(const agx_rpc_event *a, const agx_rpc_event *b, const agx_view *ids, size_t n)
{
        agx_call_acks walk = agx_call_acks_of(b->call_ids);
        agx_view id;

        same(a->call_id, b->call_id);
        same(a->callable, b->callable);
        same(a->arguments, b->arguments);
        same(a->context, b->context);
        same(a->value, b->value);
        same_faults(&a->fault, &b->fault);
        need(a->has_stream == b->has_stream && a->stream == b->stream);
        need(a->has_grace == b->has_grace && agx_rpc_grace_ms(a) == agx_rpc_grace_ms(b));
        for (size_t i = 0; i < n; ++i) {
                need(agx_call_acks_next(&walk, &id));
                same(id, ids[i]);
        }
        need(!agx_call_acks_next(&walk, &id));
}

static void put(agx_buf *out, const agx_rpc_event *event, const agx_view *ids, size_t n)
{
        agx_mp_writer w = agx_mp_writer_on(out);

        agx_rpc_event_put(&w, event, ids, n);
        need(agx_mp_writer_end(&w) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        static agx_view ids[AGX_MAX_EVENT_IDS];
        agx_buf out = AGX_BUF_NULL(MAX);
        agx_rpc_kind kind = size ? (agx_rpc_kind)(data[0] % (AGX_RPC_ERROR + 1)) : AGX_RPC_UNKNOWN;
        agx_view payload = size ? agx_view_of(data + 1, size - 1) : AGX_VIEW("");
        agx_rpc_event event, again;
        const char *why = NULL;
        agx_call_acks walk;
        size_t n = 0;

        if (!agx_rpc_event_get(kind, payload, &event, &why)) {
                need(why != NULL);
                need(!event.call_id.p || (event.call_id.n && event.call_id.n <= AGX_MAX_CALL_ID));
                return 0;
        }
        walk = agx_call_acks_of(event.call_ids);
        for (agx_view id; agx_call_acks_next(&walk, &id);)
                ids[n++] = id;
        put(&out, &event, ids, n);
        need(agx_rpc_event_get(kind, agx_buf_view(&out), &again, &why));
        same_events(&event, &again, ids, n);
        agx_buf_deinit(&out);
        return 0;
}
