/*
 * One walk over the tokens. How many items a container has is known only at its end, so each gets a head of the widest
 * form, whose number is filled in then. That an object was a placeholder is known only at its end, too: what was written
 * of it is taken back.
 */
#include "wire/sio_pack.h"
#include "wire/msgpack.h"

#include <math.h>
#include <stdlib.h>

enum { HEAD_BYTES = 5, MP_STR32 = 0xdb, MP_ARRAY32 = 0xdd, MP_MAP32 = 0xdf, NUMBER_MAX = 400 };

typedef struct level {
        size_t start; /* of its head in `out` */
        uint32_t count;
        bool mark, has_num;
        enum { KEY_OTHER, KEY_MARK, KEY_NUM } key; /* whose value comes next */
        uint64_t num;
} level;

typedef struct packing {
        const agx_sio_packet *packet;
        agx_buf *out;
        size_t depth;
        level levels[AGX_JSON_DEPTH_MAX + 1]; /* of open containers, from 1 on */
} packing;

/* ---- heads that are filled in later ---- */

static int put_head(agx_buf *out, uint8_t type)
{
        const uint8_t head[HEAD_BYTES] = {type};

        return agx_buf_append(out, head, sizeof(head));
}

static void fill_in(agx_buf *out, size_t start, size_t n)
{
        uint8_t *p = out->data + out->head + start + 1;

        for (int i = 3; i >= 0; --i, n >>= 8)
                p[i] = (uint8_t)n;
}

static int open_level(packing *p, bool object)
{
        size_t start = p->out->len; /* NOLINT(clang-analyzer-core.NullDereference): it is set once */

        p->levels[++p->depth] = (level){.start = start};
        return put_head(p->out, object ? MP_MAP32 : MP_ARRAY32);
}

static int put_attachment(packing *p, uint64_t num)
{
        agx_mp_writer w = agx_mp_writer_on(p->out);

        if (num >= p->packet->n_attachments)
                return AGX_SIO_E_BAD;
        agx_mp_put_bin(&w, p->packet->attachments[num]);
        return agx_mp_writer_end(&w);
}

static int close_level(packing *p)
{
        const level *l = &p->levels[p->depth--];

        if (!l->mark || !l->has_num || !p->packet->n_attachments) {
                fill_in(p->out, l->start, l->count);
                return 0;
        }
        agx_buf_truncate(p->out, l->start);
        return put_attachment(p, l->num);
}

/* ---- what stands for itself ---- */

static int put_text(packing *p, const agx_json_token *t)
{
        size_t start = p->out->len; /* NOLINT(clang-analyzer-core.NullDereference): it is set once */
        int r = put_head(p->out, MP_STR32);

        if (!r)
                r = t->escaped ? agx_json_text(t, p->out) : agx_buf_append_view(p->out, t->v);
        if (!r)
                fill_in(p->out, start, p->out->len - start - HEAD_BYTES);
        return r;
}

static int put_float(packing *p, agx_view digits)
{
        agx_mp_writer w = agx_mp_writer_on(p->out);
        char text[NUMBER_MAX + 1];
        double d;

        if (digits.n > NUMBER_MAX)
                return AGX_SIO_E_BAD;
        memcpy(text, digits.p, digits.n);
        text[digits.n] = '\0';
        d = strtod(text, NULL);
        if (!isfinite(d))
                return AGX_SIO_E_BAD;
        agx_mp_put_float(&w, d);
        return agx_mp_writer_end(&w);
}

static int put_number(packing *p, const agx_json_token *t)
{
        agx_mp_writer w = agx_mp_writer_on(p->out);
        agx_json_token magnitude = *t;
        uint64_t u;

        if (agx_json_u64(t, UINT64_MAX, &u)) {
                agx_mp_put_uint(&w, u);
                return agx_mp_writer_end(&w);
        }
        magnitude.v = agx_view_from(t->v, 1);
        if (t->v.p[0] != '-' || !agx_json_u64(&magnitude, INT64_MAX, &u) || !u)
                return put_float(p, t->v);
        agx_mp_put_int(&w, -(int64_t)u);
        return agx_mp_writer_end(&w);
}

static int put_plain(packing *p, const agx_json_token *t)
{
        agx_mp_writer w = agx_mp_writer_on(p->out);

        if (t->kind == AGX_JSON_STRING || t->kind == AGX_JSON_KEY)
                return put_text(p, t);
        if (t->kind == AGX_JSON_NUMBER)
                return put_number(p, t);
        if (t->kind == AGX_JSON_BOOL)
                agx_mp_put_bool(&w, t->b);
        else
                agx_mp_put_nil(&w);
        return agx_mp_writer_end(&w);
}

/* ---- the walk ---- */

static void note_key(level *l, const agx_json_token *t)
{
        l->key = agx_json_is(t, AGX_VIEW("_placeholder")) ? KEY_MARK
                 : agx_json_is(t, AGX_VIEW("num"))        ? KEY_NUM
                                                          : KEY_OTHER;
}

/* The same rules as the reader's, which has counted the placeholders. */
static void note_value(level *l, const agx_json_token *t)
{
        ++l->count;
        if (l->key == KEY_MARK)
                l->mark = t->kind == AGX_JSON_BOOL && t->b;
        if (l->key == KEY_NUM)
                l->has_num = agx_json_u64(t, AGX_SIO_ATTACHMENTS_MAX - 1, &l->num);
        l->key = KEY_OTHER;
}

static int put_token(packing *p, const agx_json_token *t)
{
        switch (t->kind) {
        case AGX_JSON_ARRAY_END:
        case AGX_JSON_OBJECT_END:
                return close_level(p);
        case AGX_JSON_KEY:
                note_key(&p->levels[p->depth], t);
                return put_plain(p, t);
        default:
                note_value(&p->levels[p->depth], t);
        }
        if (t->kind == AGX_JSON_ARRAY || t->kind == AGX_JSON_OBJECT)
                return open_level(p, t->kind == AGX_JSON_OBJECT);
        return put_plain(p, t);
}

int agx_sio_arg_pack(const agx_sio_packet *packet, agx_view json, agx_buf *out)
{
        packing p = {.packet = packet, .out = out};
        agx_json_reader reader = agx_json_reader_on(json, AGX_JSON_DEPTH_MAX);
        agx_json_token t;
        int r = 0;

        while (!r && (t = agx_json_next(&reader)).kind != AGX_JSON_END)
                r = t.kind == AGX_JSON_ERROR ? AGX_SIO_E_BAD : put_token(&p, &t);
        return r;
}
