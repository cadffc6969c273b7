/*
 * One walk over the map. A key is looked up by comparing it with the rows, which are few. The reader's error is sticky,
 * so the helpers may return as soon as something is wrong and the reason stands in the reader.
 */
#include "proto/fields.h"
#include "proto/fault.h"

static bool fail(agx_mp_reader *r, const char *why)
{
        if (!r->error)
                r->error = why;
        return false;
}

/* The row that counts for this key, or fields.n. */
static size_t row_of(agx_fields fields, agx_view key)
{
        for (uint32_t left = fields.known; left; left &= left - 1) {
                size_t at = (size_t)__builtin_ctz(left);

                if (at >= fields.n)
                        break;
                if (agx_view_eq(fields.rows[at].key, key))
                        return at;
        }
        return fields.n;
}

static agx_mp_kind token_kind(agx_field_kind kind)
{
        static const agx_mp_kind kinds[] = {
                [AGX_FIELD_STR] = AGX_MP_STR,     [AGX_FIELD_BIN] = AGX_MP_BIN,
                [AGX_FIELD_ARRAY] = AGX_MP_ARRAY, [AGX_FIELD_BOOL] = AGX_MP_BOOL,
                [AGX_FIELD_UINT] = AGX_MP_UINT,   [AGX_FIELD_INT] = AGX_MP_INT,
                [AGX_FIELD_FAULT] = AGX_MP_MAP,   [AGX_FIELD_LAX_STR] = AGX_MP_STR,
                [AGX_FIELD_LAX_BIN] = AGX_MP_BIN, [AGX_FIELD_LAX_NUMBER] = AGX_MP_FLOAT,
        };

        return kinds[kind];
}

/* A non-negative number that fits is an int too. */
static bool as_int(agx_mp_token *t)
{
        if (t->kind != AGX_MP_UINT || t->u > INT64_MAX)
                return t->kind == AGX_MP_INT;
        t->i = (int64_t)t->u;
        return true;
}

/* An int is a number too. */
static bool as_number(agx_mp_token *t)
{
        if (t->kind == AGX_MP_UINT)
                t->d = (double)t->u;
        else if (t->kind == AGX_MP_INT)
                t->d = (double)t->i;
        else
                return t->kind == AGX_MP_FLOAT;
        return true;
}

static bool is_of_kind(agx_mp_token *t, agx_field_kind kind)
{
        if (kind == AGX_FIELD_INT)
                return as_int(t);
        return kind == AGX_FIELD_LAX_NUMBER ? as_number(t) : t->kind == token_kind(kind);
}

static bool is_lax(agx_field_kind kind)
{
        return kind == AGX_FIELD_LAX_STR || kind == AGX_FIELD_LAX_BIN || kind == AGX_FIELD_LAX_NUMBER;
}

/* Stores a value of the right type. `start`: the reader before the value's first token `t`. */
static bool store(agx_mp_reader *r, agx_mp_reader start, const agx_mp_token *t, const agx_field *row, size_t depth,
                  void *place)
{
        switch (row->kind) {
        case AGX_FIELD_STR:
        case AGX_FIELD_BIN:
        case AGX_FIELD_LAX_STR:
        case AGX_FIELD_LAX_BIN:
                *(agx_view *)place = t->v;
                return true;
        case AGX_FIELD_BOOL:
                *(bool *)place = t->b;
                return true;
        case AGX_FIELD_UINT:
                *(uint64_t *)place = t->u;
                return true;
        case AGX_FIELD_INT:
                *(int64_t *)place = t->i;
                return true;
        case AGX_FIELD_LAX_NUMBER:
                *(double *)place = t->d;
                return true;
        case AGX_FIELD_ARRAY:
                *r = start;
                if (!agx_mp_skip(r, depth))
                        return false;
                *(agx_view *)place = agx_view_of(start.rest.p, start.rest.n - r->rest.n);
                return true;
        case AGX_FIELD_FAULT:
                *r = start;
                return agx_fault_get(r, place);
        }
        return false;
}

static bool read_value(agx_mp_reader *r, const agx_field *row, size_t depth, void *place, bool *present)
{
        agx_mp_reader start = *r;
        agx_mp_token t = agx_mp_next(r);

        *present = t.kind != AGX_MP_NIL;
        if (!*present)
                return true;
        if (t.kind == AGX_MP_END)
                return fail(r, "cut short");
        if (is_of_kind(&t, row->kind))
                return store(r, start, &t, row, depth, place);
        if (!is_lax(row->kind) || r->error)
                return fail(r, row->wrong);
        *present = false;
        *r = start;
        return agx_mp_skip(r, depth);
}

/* A key that is not a str cannot be known. `*row` gets fields.n for an unknown one. */
static bool read_key(agx_mp_reader *r, agx_fields fields, size_t depth, size_t *row)
{
        agx_mp_reader start = *r;
        agx_mp_token t = agx_mp_next(r);

        if (t.kind == AGX_MP_STR) {
                *row = row_of(fields, t.v);
                return true;
        }
        *row = fields.n;
        *r = start;
        return agx_mp_skip(r, depth);
}

bool agx_fields_read(agx_mp_reader *r, agx_fields fields, size_t depth, void *object, uint32_t *present)
{
        agx_mp_token map = agx_mp_next(r);
        uint32_t seen = 0;

        *present = 0;
        if (map.kind != AGX_MP_MAP)
                return fail(r, map.kind == AGX_MP_END ? "empty" : "not a map");
        for (size_t i = 0; i < map.count; ++i) {
                const agx_field *row;
                size_t at;
                bool given;

                if (!read_key(r, fields, depth - 1, &at))
                        return false;
                if (at == fields.n) {
                        if (!agx_mp_skip(r, depth - 1))
                                return false;
                        continue;
                }
                row = &fields.rows[at];
                if (seen >> at & 1)
                        return fail(r, row->twice);
                seen |= (uint32_t)1 << at;
                if (!read_value(r, row, depth - 1, (char *)object + row->offset, &given))
                        return false;
                *present |= (uint32_t)given << at;
        }
        return true;
}
