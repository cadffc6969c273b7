/*
 * The reply's map is read up to its value, a bin of 32 bits' length; the value up to the opcode of which not all has come.
 * Both by who knows them, so what is malformed does not land here, and is found to be so where it always is. The bin's length
 * is then made that of the shorter pickle. So nobody has to know two forms of a reply, and one that is wrong behind its
 * value is wrong in its shorter form, too.
 */
#include "client/landing.h"
#include "base/err.h"
#include "wire/msgpack.h"
#include "wire/pickle.h"

#include <endian.h>

enum {
        LOOK_BYTES = 4 << 10, /* of a body, before it is looked at */
        NESTING = 8,
        BIN32 = 0xc6,
        BIN32_HEAD = 5,
        BINBYTES = 'B',
        BINBYTES8 = 0x8e,
        BYTEARRAY8 = 0x96,
        NEXT_BUFFER = 0x97,
};

void agx_landing_empty(agx_landing *l)
{
        if (l->object)
                l->memory->drop(l->object);
        *l = (agx_landing){.memory = NULL};
}

/* ---- the beginning ---- */

static size_t long_bin(agx_view at)
{
        uint32_t n;

        if (at.n < BIN32_HEAD || (uint8_t)at.p[0] != BIN32)
                return 0;
        memcpy(&n, at.p + 1, sizeof(n));
        return be32toh(n);
}

/* Where in `begun` the bytes of the value begin, and how many they are to be; 0: it is another reply, or written otherwise. */
static size_t find_value(agx_view begun, size_t *n)
{
        agx_mp_reader r = agx_mp_reader_on(begun);
        agx_mp_token map = agx_mp_next(&r);

        for (size_t i = 0; map.kind == AGX_MP_MAP && i < map.count; ++i) {
                agx_mp_token key = agx_mp_next(&r);

                if (key.kind != AGX_MP_STR)
                        return 0;
                if (agx_view_eq(key.v, AGX_VIEW("value"))) {
                        *n = long_bin(r.rest);
                        return *n ? (size_t)(r.rest.p - begun.p) + BIN32_HEAD : 0;
                }
                if (!agx_mp_skip(&r, NESTING))
                        return 0;
        }
        return 0;
}

static size_t width_of(uint8_t code)
{
        return code == BINBYTES ? 4 : code == BINBYTES8 || code == BYTEARRAY8 ? 8 : 0;
}

/* The opcode of which not all has come, if it is one of bytes, outside of any frame: where it is. `n`: of all the pickle. */
static bool find_bytes(agx_landing *l, agx_view begun, size_t n, size_t *at)
{
        agx_pickle_op op = {.kind = AGX_PICKLE_STOP};
        uint64_t size = 0;
        agx_pickle p;
        size_t width;

        agx_pickle_init(&p, begun.p, begun.n < LOOK_BYTES ? begun.n : LOOK_BYTES,
                        (agx_pickle_limits){.int_bytes = LOOK_BYTES, .int_digits = LOOK_BYTES});
        while (!agx_pickle_next(&p, &op))
                ;
        *at = agx_pickle_err_pos(&p);
        width = *at < begun.n ? width_of((uint8_t)begun.p[*at]) : 0;
        if (p.err != AGX_PICKLE_E_TRUNCATED || p.framed || !width || begun.n - *at < 1 + width)
                return false;
        l->n_head = 1 + width;
        memcpy(l->head, begun.p + *at, l->n_head);
        for (size_t i = width; i > 0; --i)
                size = size << 8 | l->head[i];
        if (size < AGX_LANDING_MIN || size > n - *at - l->n_head || size <= begun.n - *at - l->n_head)
                return false;
        l->size = (size_t)size;
        l->kind = l->head[0] == BYTEARRAY8 ? AGX_LANDING_BYTEARRAY : AGX_LANDING_BYTES;
        return true;
}

/* Room for `n` more bytes. */
static int make_room(agx_landing *l, size_t n)
{
        size_t need = l->got + n, room = l->room ? l->room : AGX_LANDING_ROOM;

        if (need <= l->room)
                return 0;
        while (room < need)
                room *= 2;
        l->room = room < l->size ? room : l->size;
        l->object = l->memory->resize(l->object, l->kind, l->room, &l->data);
        l->failed = !l->object;
        return l->failed ? agx_trace(-ENOMEM) : 0;
}

/* Takes the bytes out of `body`, from `at` on, where the opcode is; `bin`: where the length of the value is. */
static int move_out(agx_landing *l, agx_buf *body, size_t bin, size_t n)
{
        uint32_t rest = htobe32((uint32_t)(n - l->size - l->n_head + 1));
        agx_view bytes = agx_view_from(agx_buf_view(body), l->at + l->n_head);
        uint8_t *data = body->data + body->head;
        int r = agx_landing_take(l, &bytes);

        if (r)
                return r;
        data[l->at] = NEXT_BUFFER;
        memcpy(data + bin, &rest, sizeof(rest));
        agx_buf_truncate(body, l->at + 1);
        body->max -= l->size + l->n_head - 1;
        return 0;
}

int agx_landing_look(agx_landing *l, const agx_landing_memory *memory, agx_buf *body)
{
        agx_view begun = agx_buf_view(body);
        size_t n = 0, value, at;

        if (l->looked || !memory || begun.n < LOOK_BYTES)
                return 0;
        l->looked = true;
        l->memory = memory;
        value = find_value(begun, &n);
        if (!value || n > body->max - value || !find_bytes(l, agx_view_from(begun, value), n, &at))
                return 0;
        l->at = value + at;
        if (!make_room(l, 2 * (begun.n - l->at)))
                return move_out(l, body, value - sizeof(uint32_t), n);
        *l = (agx_landing){.looked = true};
        return 0;
}

/* ---- the bytes ---- */

int agx_landing_take(agx_landing *l, agx_view *bytes)
{
        size_t left = l->object ? l->size - l->got : 0;
        agx_view mine = agx_view_first(*bytes, left);
        int r;

        if (l->failed)
                return agx_trace(-ENOMEM);
        if (!mine.n)
                return 0;
        if (mine.p != l->data + l->got || mine.n > l->room - l->got) {
                r = make_room(l, mine.n);
                if (r)
                        return r;
                memcpy(l->data + l->got, mine.p, mine.n);
        }
        l->got += mine.n;
        *bytes = agx_view_from(*bytes, mine.n);
        return 0;
}

agx_view agx_landing_place(agx_landing *l, size_t n)
{
        size_t left = l->size - l->got;

        n = n < left ? n : left;
        if (make_room(l, n))
                return AGX_VIEW_NULL;
        return agx_view_of(l->data + l->got, n);
}
