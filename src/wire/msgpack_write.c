/*
 * Writing msgpack: msgpack-c's packing templates, told to append to our buffer. The templates are static inline
 * functions that return what the append returned, so they take part in the sticky error without any state of their own.
 */
#include "base/err.h"
#include "wire/msgpack.h"

static int append(agx_mp_writer *w, const void *p, size_t n)
{
        return agx_buf_append(w->out, p, n);
}

#include <msgpack/pack_define.h>
#include <msgpack/timestamp.h>
#define msgpack_pack_inline_func(name) static inline int msgpack_pack##name
#define msgpack_pack_inline_func_cint(name) static inline int msgpack_pack##name
#define msgpack_pack_inline_func_fixint(name) static inline int msgpack_pack_fix##name
#define msgpack_pack_user agx_mp_writer *
#define msgpack_pack_append_buffer(user, bytes, n) return append(user, bytes, n)
#include <msgpack/pack_template.h>

/* The format counts with 32 bits; more than that is beyond any ceiling. */
static bool too_long(agx_mp_writer *w, size_t n)
{
        if (!w->error && n > UINT32_MAX)
                w->error = AGX_BUF_E_FULL;
        return w->error != 0;
}

agx_mp_writer agx_mp_writer_on(agx_buf *out)
{
        return (agx_mp_writer){.out = out};
}

void agx_mp_put_map(agx_mp_writer *w, size_t pairs)
{
        if (!too_long(w, pairs))
                w->error = msgpack_pack_map(w, pairs);
}

void agx_mp_put_array(agx_mp_writer *w, size_t items)
{
        if (!too_long(w, items))
                w->error = msgpack_pack_array(w, items);
}

void agx_mp_put_str(agx_mp_writer *w, agx_view v)
{
        if (!too_long(w, v.n))
                w->error = msgpack_pack_str(w, v.n);
        if (!w->error)
                w->error = msgpack_pack_str_body(w, v.p, v.n);
}

void agx_mp_put_bin_head(agx_mp_writer *w, size_t n)
{
        if (!too_long(w, n))
                w->error = msgpack_pack_bin(w, n);
}

void agx_mp_put_bin(agx_mp_writer *w, agx_view v)
{
        agx_mp_put_bin_head(w, v.n);
        if (!w->error)
                w->error = msgpack_pack_bin_body(w, v.p, v.n);
}

void agx_mp_put_int(agx_mp_writer *w, int64_t i)
{
        if (!w->error)
                w->error = msgpack_pack_int64(w, i);
}

void agx_mp_put_uint(agx_mp_writer *w, uint64_t u)
{
        if (!w->error)
                w->error = msgpack_pack_uint64(w, u);
}

void agx_mp_put_float(agx_mp_writer *w, double d)
{
        if (!w->error)
                w->error = msgpack_pack_double(w, d);
}

void agx_mp_put_bool(agx_mp_writer *w, bool b)
{
        if (!w->error)
                w->error = b ? msgpack_pack_true(w) : msgpack_pack_false(w);
}

void agx_mp_put_nil(agx_mp_writer *w)
{
        if (!w->error)
                w->error = msgpack_pack_nil(w);
}

int agx_mp_writer_end(const agx_mp_writer *w)
{
        return agx_trace(w->error);
}
