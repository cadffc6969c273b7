/* Fields are written in a fixed order; an absent one is not written. A call id goes into Location percent-encoded. */
#include "server/answer.h"
#include "wire/prefer.h"

static bool is_plain(unsigned char c)
{
        return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '-' || c == '.' ||
               c == '_' || c == '~';
}

static int put_location(agx_buf *out, agx_view id)
{
        static const char hex[] = "0123456789ABCDEF";
        int r = agx_buf_append_view(out, AGX_VIEW("Location: /call/"));

        for (size_t i = 0; !r && i < id.n; i++) {
                unsigned char c = (unsigned char)id.p[i];
                char code[3] = {'%', hex[c >> 4], hex[c & 15]};

                r = is_plain(c) ? agx_buf_append(out, &id.p[i], 1) : agx_buf_append(out, code, 3);
        }
        return r ? r : agx_buf_append_view(out, AGX_VIEW("\r\n"));
}

static int put_wait(agx_buf *out, uint64_t wait_ms)
{
        int r = agx_buf_append_view(out, AGX_VIEW("Preference-Applied: "));

        if (!r)
                r = agx_prefer_put_wait(out, wait_ms);
        return r ? r : agx_buf_append_view(out, AGX_VIEW("\r\n"));
}

static int put_optional(agx_buf *out, const agx_answer *a)
{
        int r = 0;

        if (a->has_wait)
                r = put_wait(out, a->wait_ms);
        if (!r && a->location.p)
                r = put_location(out, a->location);
        if (!r && a->allow.p)
                r = agx_http1_put_field(out, AGX_VIEW("Allow"), a->allow);
        if (!r && a->proof.p)
                r = agx_http1_put_field(out, AGX_VIEW("Agentix-Proof"), a->proof);
        if (!r && a->wires.p)
                r = agx_http1_put_field(out, AGX_VIEW("Agentix-Wires"), a->wires);
        if (!r && a->status == 401)
                r = agx_http1_put_field(out, AGX_VIEW("WWW-Authenticate"), AGX_VIEW("Bearer"));
        return r;
}

int agx_answer_put(agx_buf *out, const agx_answer *a)
{
        int r = agx_http1_put_status(out, a->status);

        if (!r && a->type.p)
                r = agx_http1_put_field(out, AGX_VIEW("Content-Type"), a->type);
        if (!r)
                r = agx_http1_put_length(out, a->length);
        if (!r && a->close)
                r = agx_http1_put_field(out, AGX_VIEW("Connection"), AGX_VIEW("close"));
        else if (!r && a->keep)
                r = agx_http1_put_field(out, AGX_VIEW("Connection"), AGX_VIEW("keep-alive"));
        if (!r)
                r = put_optional(out, a);
        return r ? r : agx_http1_put_end(out);
}
