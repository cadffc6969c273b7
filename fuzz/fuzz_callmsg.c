/* Any bytes as a body of /call, request and replies: no crash, no over-read; what is understood is written and read
 * again and must come out the same. */
#include "proto/callmsg.h"

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

static void same_acks(agx_view a, const agx_view *ids, size_t n)
{
        agx_call_acks walk = agx_call_acks_of(a);
        agx_view id;

        for (size_t i = 0; i < n; ++i) {
                need(agx_call_acks_next(&walk, &id));
                same(id, ids[i]);
        }
        need(!agx_call_acks_next(&walk, &id));
}

static void as_request(agx_view body)
{
        static agx_view ids[4096];
        agx_buf out = AGX_BUF_NULL(MAX);
        agx_mp_writer w = agx_mp_writer_on(&out);
        agx_call_request request, again;
        const char *why = NULL;
        agx_call_acks walk;
        size_t n = 0;

        if (!agx_call_request_get(body, &request, &why)) {
                need(why != NULL);
                return;
        }
        walk = agx_call_acks_of(request.acks);
        for (agx_view id; agx_call_acks_next(&walk, &id);)
                ids[n++] = id;
        agx_call_request_put(&w, &request, ids, n);
        need(agx_mp_writer_end(&w) == 0);
        need(agx_call_request_get(agx_buf_view(&out), &again, &why));
        same(request.call_id, again.call_id);
        same(request.callable, again.callable);
        same(request.arguments, again.arguments);
        same(request.context, again.context);
        need(request.has_stream == again.has_stream && request.stream == again.stream);
        same_acks(again.acks, ids, n);
        agx_buf_deinit(&out);
}

static void put_reply(agx_buf *out, const agx_call_reply *reply)
{
        agx_mp_writer w = agx_mp_writer_on(out);

        if (reply->accepted)
                agx_call_reply_put_accepted(&w, reply->call_id);
        else if (reply->ok)
                agx_call_reply_put_value_head(&w, reply->value.n);
        else
                agx_call_reply_put_fault(&w, &reply->fault);
        need(agx_mp_writer_end(&w) == 0);
        if (reply->ok)
                need(agx_buf_append_view(out, reply->value) == 0);
}

static void as_reply(agx_view body, bool accepted)
{
        agx_buf out = AGX_BUF_NULL(MAX);
        agx_call_reply reply, again;

        if (!agx_call_reply_get(body, accepted, &reply))
                return;
        put_reply(&out, &reply);
        need(agx_call_reply_get(agx_buf_view(&out), accepted, &again));
        need(reply.ok == again.ok && reply.accepted == again.accepted);
        same(reply.call_id, again.call_id);
        if (!accepted && reply.ok)
                same(reply.value, again.value);
        if (!accepted && !reply.ok) {
                same(reply.fault.type, again.fault.type);
                same(reply.fault.message, again.fault.message);
                same(reply.fault.traceback, again.fault.traceback);
                same(reply.fault.reason, again.fault.reason);
                need(reply.fault.has_returncode == again.fault.has_returncode &&
                     reply.fault.returncode == again.fault.returncode &&
                     reply.fault.cancelled == again.fault.cancelled);
        }
        agx_buf_deinit(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        agx_view body = agx_view_of(data, size);

        as_request(body);
        as_reply(body, false);
        as_reply(body, true);
        return 0;
}
