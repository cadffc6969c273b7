/*
 * Faults come from strangers in both directions: a target's text may be huge, the tail of a worker's output may be
 * anything. So the writer cuts what is too long and replaces what is not UTF-8, byte by byte with '?': a fault that
 * the other side would refuse to read is worse than an ugly one.
 */
#include "proto/fault.h"
#include "base/utf8.h"
#include "proto/fields.h"
#include "proto/limits.h"

enum { TYPE, MESSAGE, TRACEBACK, CANCELLED, RETURNCODE, REASON, ROWS };

static const agx_field rows[ROWS] = {
        [TYPE] = AGX_FIELD(agx_fault, type, "type", STR, "a str"),
        [MESSAGE] = AGX_FIELD(agx_fault, message, "message", STR, "a str"),
        [TRACEBACK] = AGX_FIELD(agx_fault, traceback, "traceback", STR, "a str"),
        [CANCELLED] = AGX_FIELD(agx_fault, cancelled, "cancelled", BOOL, "a bool"),
        [RETURNCODE] = AGX_FIELD(agx_fault, returncode, "returncode", INT, "an int"),
        [REASON] = AGX_FIELD(agx_fault, reason, "reason", STR, "a str"),
};

agx_view agx_fault_type_text(agx_fault_type type)
{
        static const agx_view texts[AGX_FAULT__COUNT] = {
#define X(name, text) [AGX_FAULT_##name] = {"" text, sizeof(text) - 1},
                AGX_FAULT_MAP(X)
#undef X
        };

        return texts[type];
}

bool agx_fault_is_not_taken(const agx_fault *fault)
{
        return agx_view_eq(fault->type, agx_fault_type_text(AGX_FAULT_BUSY)) && fault->reason.p &&
               agx_view_eq(fault->reason, AGX_FAULT_NOT_TAKEN);
}

/* At most `max` bytes, and no character cut through. */
static agx_view cut(agx_view v, size_t max)
{
        size_t n = max;

        if (v.n <= max)
                return v;
        while (n && max - n < 3 && ((unsigned char)v.p[n] & 0xc0) == 0x80)
                --n;
        return agx_view_of(v.p, n);
}

/* Replaces the bytes of the last `n` written ones that are not UTF-8. */
static void mend(agx_buf *out, size_t n)
{
        char *p = (char *)out->data + out->head + out->len - n;

        for (size_t good; n; p += good, n -= good) {
                good = agx_utf8_prefix(agx_view_of(p, n));
                if (good < n)
                        p[good++] = '?';
        }
}

static void put_text(agx_mp_writer *w, agx_view v, size_t max)
{
        v = cut(v, max);
        agx_mp_put_str(w, v);
        if (!w->error && v.n)
                mend(w->out, v.n);
}

void agx_fault_put(agx_mp_writer *w, const agx_fault *fault)
{
        agx_mp_put_map(w, fault->reason.p ? 6 : 5);
        agx_mp_put_str(w, AGX_VIEW("type"));
        put_text(w, fault->type, AGX_MAX_FAULT_TYPE);
        agx_mp_put_str(w, AGX_VIEW("message"));
        put_text(w, fault->message, AGX_MAX_FAULT_MESSAGE);
        agx_mp_put_str(w, AGX_VIEW("traceback"));
        if (fault->traceback.p)
                put_text(w, fault->traceback, AGX_MAX_FAULT_TRACEBACK);
        else
                agx_mp_put_nil(w);
        agx_mp_put_str(w, AGX_VIEW("cancelled"));
        agx_mp_put_bool(w, fault->cancelled);
        agx_mp_put_str(w, AGX_VIEW("returncode"));
        if (fault->has_returncode)
                agx_mp_put_int(w, fault->returncode);
        else
                agx_mp_put_nil(w);
        if (fault->reason.p) {
                agx_mp_put_str(w, AGX_VIEW("reason"));
                put_text(w, fault->reason, AGX_MAX_FAULT_TYPE);
        }
}

bool agx_fault_get(agx_mp_reader *r, agx_fault *fault)
{
        agx_fields fields = {rows, ROWS, UINT32_MAX};
        uint32_t present;

        *fault = (agx_fault){.cancelled = false};
        /* A fault lies in a message, which is a map: one level less is left. */
        if (!agx_fields_read(r, fields, AGX_MAX_NESTING - 1, fault, &present))
                return false;
        if (!(present >> TYPE & 1) || !(present >> MESSAGE & 1)) {
                r->error = "a fault without its type or message";
                return false;
        }
        fault->has_returncode = present >> RETURNCODE & 1;
        fault->type = cut(fault->type, AGX_MAX_FAULT_TYPE);
        fault->message = cut(fault->message, AGX_MAX_FAULT_MESSAGE);
        fault->traceback = cut(fault->traceback, AGX_MAX_FAULT_TRACEBACK);
        fault->reason = cut(fault->reason, AGX_MAX_FAULT_TYPE);
        return true;
}
