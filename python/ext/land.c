/*
 * A frame's payload is a map that ends with its arguments, a bin whose length is the rest of the frame; the arguments are a
 * pickle. Both are read up to the large bytes by who knows them; what is found wrong, or not looked for, stays in the
 * deframer and goes the usual way. The object is made at once: the server has all of a frame before it sends the beginning, so
 * its length is no stranger's word (docs/internals/large-values.md). If what comes behind the bytes is not plain after
 * all, the pickle is put together again, for a reader that knows more.
 */
#include "land.h"

#include "large.h"

#include "base/huge.h"
#include "wire/msgpack.h"

enum {
        LOOK_BYTES = 8 << 10, /* of a frame, before it is looked at */
        LAND_MIN = 256 << 10, /* of its large bytes */
        BIN32 = 0xc6,
        BIN32_HEAD = 5,
};

void agx_land_init(agx_land *l)
{
        *l = (agx_land){.head = AGX_BUF_NULL(SIZE_MAX)};
}

/* The frame's payload stays until the next one: who has it looks at it still. */
static void close_it(agx_land *l)
{
        Py_CLEAR(l->bytes);
        agx_scalars_drop(&l->reader);
}

void agx_land_deinit(agx_land *l)
{
        close_it(l);
        agx_buf_deinit(&l->head);
}

/* ---- the beginning ---- */

static size_t long_bin(agx_view at)
{
        const unsigned char *p = (const unsigned char *)at.p;

        if (at.n < BIN32_HEAD || p[0] != BIN32)
                return 0;
        return (size_t)p[1] << 24 | (size_t)p[2] << 16 | (size_t)p[3] << 8 | (size_t)p[4];
}

static bool is_call(agx_mp_reader *r, agx_view key)
{
        agx_mp_token type = agx_mp_next(r);

        return agx_view_eq(key, AGX_VIEW("type")) && type.kind == AGX_MP_STR && agx_view_eq(type.v, AGX_VIEW("call"));
}

/* Where in `begun` the arguments begin, if they end the frame; 0: it is another frame, or written otherwise. */
static size_t find_arguments(agx_view begun, size_t total)
{
        agx_mp_reader r = agx_mp_reader_on(begun);
        agx_mp_token map = agx_mp_next(&r);

        for (size_t i = 0; map.kind == AGX_MP_MAP && i < map.count; ++i) {
                agx_mp_token key = agx_mp_next(&r);
                size_t at = (size_t)(r.rest.p - begun.p) + BIN32_HEAD, n = long_bin(r.rest);

                if (key.kind != AGX_MP_STR)
                        return 0;
                if (agx_view_eq(key.v, AGX_VIEW("arguments")))
                        return n && n == total - at && i + 1 == map.count ? at : 0;
                if (!i && !is_call(&r, key.v))
                        return 0;
                if (i && !agx_mp_skip(&r, 1))
                        return 0;
        }
        return 0;
}

static bool keep_head(agx_land *l, agx_view begun, size_t arguments, size_t from)
{
        static const char empty_bin[] = {(char)0xc4, 0};
        bool ok;

        agx_buf_clear(&l->head);
        ok = !agx_buf_append(&l->head, begun.p, arguments - BIN32_HEAD) &&
             !agx_buf_append(&l->head, empty_bin, sizeof(empty_bin));
        l->n_head = l->head.len;
        return ok && !agx_buf_append(&l->head, begun.p + arguments, from);
}

/* `more`: what has come of the bytes. */
static bool make_bytes(agx_land *l, agx_view more)
{
        l->got = more.n;
        l->got_tail = 0;
        l->bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)l->size);
        if (!l->bytes) {
                PyErr_Clear();
                return false;
        }
        l->data = PyBytes_AsString(l->bytes);
        agx_huge(l->data, l->size);
        memcpy(l->data, more.p, more.n);
        return true;
}

static bool begin(agx_land *l, agx_view begun, size_t total)
{
        size_t arguments = find_arguments(begun, total), from;
        agx_view pickle;

        if (!arguments)
                return false;
        pickle = agx_view_from(begun, arguments);
        if (!agx_scalars_begin(&l->reader, pickle, total - arguments, &from, &l->size))
                return false;
        l->n_tail = total - arguments - from - l->size;
        if (l->size >= LAND_MIN && l->n_tail <= AGX_LAND_TAIL && keep_head(l, begun, arguments, from) &&
            make_bytes(l, agx_view_from(pickle, from)))
                return true;
        close_it(l);
        return false;
}

void agx_land_begin(agx_land *l, agx_deframer *d)
{
        PyGILState_STATE state;
        agx_view begun;
        unsigned number;
        uint64_t total;

        if (!agx_deframer_begun(d, &begun, &total, &number) || number == l->looked || begun.n < LOOK_BYTES ||
            total < LAND_MIN)
                return;
        l->looked = number;
        state = PyGILState_Ensure();
        if (begin(l, begun, (size_t)total))
                agx_deframer_divert(d);
        PyGILState_Release(state);
}

/* ---- the bytes ---- */

bool agx_land_place(const agx_land *l, size_t max, struct iovec *place)
{
        size_t left = l->bytes ? l->size - l->got : 0;

        *place = (struct iovec){l->data + l->got, left < max ? left : max};
        return place->iov_len > 0;
}

/* Bytes that were read to their place are there already. */
static void put(char *to, size_t *got, size_t size, agx_view *part)
{
        agx_view first = agx_view_first(*part, size - *got);

        if (first.p != to + *got)
                memcpy(to + *got, first.p, first.n);
        *got += first.n;
        *part = agx_view_from(*part, first.n);
}

void agx_land_put(agx_land *l, agx_view part)
{
        put(l->data, &l->got, l->size, &part);
        put(l->tail, &l->got_tail, l->n_tail, &part);
}

bool agx_land_is_whole(const agx_land *l, agx_view *payload)
{
        *payload = agx_view_first(agx_buf_view(&l->head), l->n_head);
        return l->bytes && l->got == l->size && l->got_tail == l->n_tail;
}

/* ---- the end ---- */

static PyObject *put_together(const agx_land *l)
{
        agx_view before = agx_view_from(agx_buf_view(&l->head), l->n_head);
        PyObject *pickle = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(before.n + l->size + l->n_tail));
        char *to = pickle ? PyBytes_AsString(pickle) : NULL;

        if (!to)
                return NULL;
        memcpy(to, before.p, before.n);
        agx_ext_copy(to + before.n, agx_view_of(l->data, l->size));
        memcpy(to + before.n + l->size, l->tail, l->n_tail);
        return pickle;
}

PyObject *agx_land_take(agx_land *l)
{
        PyObject *value = agx_scalars_finish(&l->reader, l->bytes, agx_view_of(l->tail, l->n_tail));

        if (!value || !PyTuple_CheckExact(value)) {
                Py_XDECREF(value);
                value = put_together(l);
        }
        close_it(l);
        return value;
}
