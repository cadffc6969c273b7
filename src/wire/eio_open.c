/* The opening: {"sid", "upgrades", "pingInterval", "pingTimeout", "maxPayload"}. Unknown keys are passed over; one that is
 * repeated is an error. maxPayload may be missing: older servers do not send it. */
#include "wire/eio_state.h"
#include "wire/json.h"

enum { OPEN_BYTES = 1024, NESTING = 8 };

int agx_eio_open_write(agx_eio *e)
{
        agx_json_writer w = agx_json_writer_on(&e->hello);

        e->hello.max = OPEN_BYTES;
        agx_json_put_object(&w);
        agx_json_put_key(&w, AGX_VIEW("sid"));
        agx_json_put_string(&w, agx_view_of(e->sid, e->n_sid));
        agx_json_put_key(&w, AGX_VIEW("upgrades"));
        agx_json_put_array(&w);
        if (e->transport == AGX_EIO_POLLING && e->bounds.upgrade)
                agx_json_put_string(&w, AGX_VIEW("websocket"));
        agx_json_put_array_end(&w);
        agx_json_put_key(&w, AGX_VIEW("pingInterval"));
        agx_json_put_u64(&w, e->interval_ms);
        agx_json_put_key(&w, AGX_VIEW("pingTimeout"));
        agx_json_put_u64(&w, e->timeout_ms);
        agx_json_put_key(&w, AGX_VIEW("maxPayload"));
        agx_json_put_u64(&w, e->bounds.message_max);
        agx_json_put_object_end(&w);
        return agx_json_writer_end(&w);
}

/* ---- reading ---- */

typedef bool (*read_fn)(agx_eio *e, agx_json_reader *r);

static bool read_sid(agx_eio *e, agx_json_reader *r)
{
        agx_json_token t = agx_json_next(r);

        if (t.kind != AGX_JSON_STRING || t.escaped || !agx_eio_sid_is_good(t.v))
                return false;
        memcpy(e->sid, t.v.p, t.v.n);
        e->n_sid = t.v.n;
        return true;
}

static bool read_upgrades(agx_eio *e, agx_json_reader *r)
{
        agx_json_token t = agx_json_next(r);
        bool offered = false;

        if (t.kind != AGX_JSON_ARRAY)
                return false;
        for (t = agx_json_next(r); t.kind == AGX_JSON_STRING; t = agx_json_next(r))
                offered = offered || agx_json_is(&t, AGX_VIEW("websocket"));
        if (offered && e->bounds.upgrade && e->transport == AGX_EIO_POLLING)
                e->probe = AGX_EIO_PROBE_WANTED;
        return t.kind == AGX_JSON_ARRAY_END;
}

static bool read_number(agx_json_reader *r, uint64_t max, uint64_t *to)
{
        agx_json_token t = agx_json_next(r);

        return agx_json_u64(&t, max, to);
}

static bool read_interval(agx_eio *e, agx_json_reader *r)
{
        return read_number(r, e->bounds.interval_ms, &e->interval_ms);
}

static bool read_timeout(agx_eio *e, agx_json_reader *r)
{
        return read_number(r, e->bounds.timeout_ms, &e->timeout_ms);
}

static bool read_max(agx_eio *e, agx_json_reader *r)
{
        uint64_t max;

        if (!read_number(r, UINT64_MAX, &max) || !max)
                return false;
        e->peer_max = max < e->peer_max ? (size_t)max : e->peer_max;
        return true;
}

static const struct {
        agx_view key;
        read_fn read;
        bool needed;
} keys[] = {
        {{"sid", 3}, read_sid, true},
        {{"upgrades", 8}, read_upgrades, true},
        {{"pingInterval", 12}, read_interval, true},
        {{"pingTimeout", 11}, read_timeout, true},
        {{"maxPayload", 10}, read_max, false},
};

enum { KEYS = sizeof(keys) / sizeof(keys[0]) };

/* Reads the value of `key`; `seen` has a bit for each row of the table. */
static bool read_value(agx_eio *e, agx_json_reader *r, const agx_json_token *key, unsigned *seen)
{
        for (unsigned i = 0; i < KEYS; ++i)
                if (agx_json_is(key, keys[i].key)) {
                        if (*seen & 1u << i)
                                return false;
                        *seen |= 1u << i;
                        return keys[i].read(e, r);
                }
        return agx_json_skip(r).p != NULL;
}

bool agx_eio_open_read(agx_eio *e, agx_view json)
{
        agx_json_reader r = agx_json_reader_on(json, NESTING);
        agx_json_token t = agx_json_next(&r);
        unsigned seen = 0;

        if (t.kind != AGX_JSON_OBJECT)
                return false;
        for (t = agx_json_next(&r); t.kind == AGX_JSON_KEY; t = agx_json_next(&r))
                if (!read_value(e, &r, &t, &seen))
                        return false;
        for (unsigned i = 0; i < KEYS; ++i)
                if (keys[i].needed && !(seen & 1u << i))
                        return false;
        return t.kind == AGX_JSON_OBJECT_END && agx_json_done(&r);
}
