/* Maps of msgpack, key by key: each reader has a table's worth of keys and one function for all of them. */
#include "server/tunnel_words.h"

enum { DEPTH = 8, STATUS_MIN = 200, STATUS_MAX = 599, STATUS_ERROR = 502 };

static bool is(const agx_mp_token *key, agx_view name)
{
        return key->kind == AGX_MP_STR && agx_view_eq(key->v, name);
}

/* The bytes of the next value, whatever it is; absent on error. */
static agx_view raw(agx_mp_reader *r)
{
        const char *begin = r->rest.p;

        if (!agx_mp_skip(r, DEPTH))
                return AGX_VIEW_NULL;
        return agx_view_of(begin, (size_t)(r->rest.p - begin));
}

static agx_mp_kind kind_of(agx_view value)
{
        agx_mp_reader r = agx_mp_reader_on(value);

        return agx_mp_next(&r).kind;
}

static bool take_uint(agx_mp_reader *r, uint64_t *to)
{
        agx_mp_token t = agx_mp_next(r);

        *to = t.kind == AGX_MP_UINT ? t.u : 0;
        return t.kind == AGX_MP_UINT;
}

static bool take_bytes(agx_mp_reader *r, bool text_too, agx_view *to)
{
        agx_mp_token t = agx_mp_next(r);

        if (t.kind != AGX_MP_BIN && !(text_too && t.kind == AGX_MP_STR))
                return false;
        *to = t.v;
        return true;
}

static bool take_bool(agx_mp_reader *r, bool *to)
{
        agx_mp_token t = agx_mp_next(r);

        *to = t.kind == AGX_MP_BOOL && t.b;
        return t.kind == AGX_MP_BOOL;
}

static bool take_str(agx_mp_reader *r, agx_view *to)
{
        agx_mp_token t = agx_mp_next(r);

        *to = t.kind == AGX_MP_STR ? t.v : AGX_VIEW_NULL;
        return t.kind == AGX_MP_STR || t.kind == AGX_MP_NIL;
}

static bool take_map(agx_mp_reader *r, agx_view *to)
{
        agx_view value = raw(r);
        agx_mp_kind kind = value.p ? kind_of(value) : AGX_MP_ERROR;

        *to = kind == AGX_MP_MAP ? value : AGX_VIEW_NULL;
        return kind == AGX_MP_MAP || kind == AGX_MP_NIL;
}

static bool begin_map(agx_mp_reader *r, agx_view bytes, size_t *pairs)
{
        agx_mp_token t;

        *r = agx_mp_reader_on(bytes);
        t = agx_mp_next(r);
        *pairs = t.kind == AGX_MP_MAP ? t.count : 0;
        return t.kind == AGX_MP_MAP;
}

/* ---- an event ---- */

static bool take_id(agx_mp_reader *r, agx_tunnel_words *w)
{
        agx_view value = raw(r);
        agx_mp_reader one = agx_mp_reader_on(value);
        agx_mp_token t;

        if (!value.p || value.n > AGX_MAX_CALL_ID)
                return false;
        t = agx_mp_next(&one);
        w->request_id = value;
        w->has_id = t.kind == AGX_MP_UINT;
        w->id = w->has_id ? t.u : 0;
        return w->has_id || t.kind == AGX_MP_STR;
}

/* `data` is the bytes of a chunk, or what a question asks. */
static bool take_data(agx_mp_reader *r, agx_tunnel_words *w)
{
        agx_view value = raw(r);
        agx_mp_reader one = agx_mp_reader_on(value);

        if (!value.p)
                return false;
        if (kind_of(value) == AGX_MP_MAP) {
                w->asked = value;
                return true;
        }
        return take_bytes(&one, false, &w->data);
}

static bool take_word(agx_mp_reader *r, const agx_mp_token *key, agx_tunnel_words *w)
{
        if (is(key, AGX_VIEW("request_id")))
                return take_id(r, w);
        if (is(key, AGX_VIEW("seq")))
                return w->has_seq = take_uint(r, &w->seq);
        if (is(key, AGX_VIEW("last")))
                return take_bool(r, &w->last);
        if (is(key, AGX_VIEW("data")))
                return take_data(r, w);
        if (is(key, AGX_VIEW("value")))
                return take_map(r, &w->value);
        if (is(key, AGX_VIEW("error")))
                return take_map(r, &w->error);
        return agx_mp_skip(r, DEPTH);
}

bool agx_tunnel_words_read(agx_view payload, agx_tunnel_words *w)
{
        agx_mp_reader r;
        size_t pairs;

        *w = (agx_tunnel_words){.id = 0};
        if (!begin_map(&r, payload, &pairs))
                return false;
        while (pairs--) {
                agx_mp_token key = agx_mp_next(&r);

                if (!take_word(&r, &key, w))
                        return false;
        }
        return agx_mp_done(&r) && w->request_id.p;
}

/* ---- a question ---- */

static bool take_array(agx_mp_reader *r, agx_mp_kind of, agx_view *items, size_t *n)
{
        agx_mp_token t = agx_mp_next(r);
        const char *begin = r->rest.p;

        if (t.kind != AGX_MP_ARRAY)
                return false;
        *n = t.count;
        for (size_t i = 0; i < *n; ++i)
                if (agx_mp_next(r).kind != of)
                        return false;
        *items = agx_view_of(begin, (size_t)(r->rest.p - begin));
        return true;
}

bool agx_tunnel_question_read(agx_view map, agx_tunnel_question *q)
{
        agx_mp_reader r;
        size_t pairs;

        *q = (agx_tunnel_question){.tunnel = 0};
        if (!map.p || !begin_map(&r, map, &pairs))
                return false;
        while (pairs--) {
                agx_mp_token key = agx_mp_next(&r);
                bool ok = is(&key, AGX_VIEW("tunnel"))   ? take_uint(&r, &q->tunnel)
                          : is(&key, AGX_VIEW("window")) ? take_uint(&r, &q->window)
                          : is(&key, AGX_VIEW("paths"))  ? take_array(&r, AGX_MP_STR, &q->paths, &q->n_paths)
                          : is(&key, AGX_VIEW("live"))   ? take_array(&r, AGX_MP_UINT, &q->live, &q->n_live)
                                                         : agx_mp_skip(&r, DEPTH);

                if (!ok)
                        return false;
        }
        return agx_mp_done(&r);
}

/* ---- a reply ---- */

bool agx_tunnel_next_header(agx_view *headers, agx_view *name, agx_view *value)
{
        agx_mp_reader r = agx_mp_reader_on(*headers);
        agx_mp_token t;

        if (!headers->p || !headers->n)
                return false;
        t = agx_mp_next(&r);
        if (t.kind == AGX_MP_ARRAY) /* a pair */
                t = agx_mp_next(&r);
        *name = t.v;
        *value = agx_mp_next(&r).v;
        *headers = r.rest;
        return true;
}

/* A map of str to str, or an array of pairs: kept are its items. */
static bool take_headers(agx_mp_reader *r, agx_view *headers)
{
        agx_mp_token t = agx_mp_next(r);
        const char *begin = r->rest.p;

        if (t.kind == AGX_MP_NIL)
                return true;
        if ((t.kind != AGX_MP_MAP && t.kind != AGX_MP_ARRAY) || t.count > AGX_TUNNEL_REPLY_FIELDS_MAX)
                return false;
        for (size_t i = 0; i < t.count; ++i) {
                agx_mp_token pair = t.kind == AGX_MP_ARRAY ? agx_mp_next(r) : t;

                if (t.kind == AGX_MP_ARRAY && (pair.kind != AGX_MP_ARRAY || pair.count != 2))
                        return false;
                for (int part = 0; part < 2; ++part) /* name and value */
                        if (agx_mp_next(r).kind != AGX_MP_STR)
                                return false;
        }
        *headers = agx_view_of(begin, (size_t)(r->rest.p - begin));
        return true;
}

static bool take_status(agx_mp_reader *r, unsigned *status)
{
        uint64_t n;

        if (!take_uint(r, &n) || n < STATUS_MIN || n > STATUS_MAX)
                return false;
        *status = (unsigned)n;
        return true;
}

bool agx_tunnel_reply_read(agx_view map, agx_tunnel_reply *reply)
{
        agx_mp_reader r;
        size_t pairs;

        *reply = (agx_tunnel_reply){.status = STATUS_MIN, .body = AGX_VIEW("")};
        if (!map.p || !begin_map(&r, map, &pairs))
                return false;
        while (pairs--) {
                agx_mp_token key = agx_mp_next(&r);
                bool ok = is(&key, AGX_VIEW("status_code"))  ? take_status(&r, &reply->status)
                          : is(&key, AGX_VIEW("media_type")) ? take_str(&r, &reply->media_type)
                          : is(&key, AGX_VIEW("headers"))    ? take_headers(&r, &reply->headers)
                          : is(&key, AGX_VIEW("body"))       ? take_bytes(&r, true, &reply->body)
                                                             : agx_mp_skip(&r, DEPTH);

                if (!ok)
                        return false;
        }
        return agx_mp_done(&r);
}

bool agx_tunnel_error_read(agx_view map, agx_tunnel_reply *reply)
{
        agx_mp_reader r;
        size_t pairs;

        *reply = (agx_tunnel_reply){.status = STATUS_ERROR, .body = AGX_VIEW("")};
        if (!map.p || !begin_map(&r, map, &pairs))
                return false;
        while (pairs--) {
                agx_mp_token key = agx_mp_next(&r);
                bool ok = is(&key, AGX_VIEW("status_code")) ? take_status(&r, &reply->status)
                          : is(&key, AGX_VIEW("type"))      ? take_str(&r, &reply->error_type)
                          : is(&key, AGX_VIEW("message"))   ? take_str(&r, &reply->body)
                          : is(&key, AGX_VIEW("headers"))   ? take_headers(&r, &reply->headers)
                                                            : agx_mp_skip(&r, DEPTH);

                if (!ok)
                        return false;
        }
        return agx_mp_done(&r);
}

/* ---- writing ---- */

static void put_key(agx_mp_writer *w, const char *key)
{
        agx_mp_put_str(w, agx_view_str(key));
}

/* A value that is msgpack already. */
static void put_raw(agx_mp_writer *w, agx_view value)
{
        if (!w->error)
                w->error = agx_buf_append_view(w->out, value);
}

/* Field values are bytes: what is not ASCII travels as such, for the host to decode. */
static bool is_ascii(agx_view v)
{
        for (size_t i = 0; i < v.n; ++i)
                if ((unsigned char)v.p[i] >= 0x80)
                        return false;
        return true;
}

static void put_text(agx_mp_writer *w, agx_view v)
{
        if (is_ascii(v))
                agx_mp_put_str(w, v);
        else
                agx_mp_put_bin(w, v);
}

static void put_fields(agx_mp_writer *w, const agx_http1_head *head)
{
        agx_mp_put_array(w, head->n_fields);
        for (size_t i = 0; i < head->n_fields; ++i) {
                agx_mp_put_array(w, 2);
                put_text(w, head->fields[i].name);
                put_text(w, head->fields[i].value);
        }
}

int agx_tunnel_put_begin(agx_buf *out, uint64_t tunnel, uint64_t id, agx_view path, const agx_http1_head *head,
                         agx_view query, agx_view body, bool last)
{
        agx_mp_writer w = agx_mp_writer_on(out);

        agx_mp_put_map(&w, 2);
        put_key(&w, "request_id");
        agx_mp_put_uint(&w, id);
        put_key(&w, "data");
        agx_mp_put_map(&w, 7);
        put_key(&w, "tunnel");
        agx_mp_put_uint(&w, tunnel);
        put_key(&w, "path");
        agx_mp_put_str(&w, path);
        put_key(&w, "method");
        put_text(&w, head->method);
        put_key(&w, "query");
        put_text(&w, query);
        put_key(&w, "headers");
        put_fields(&w, head);
        put_key(&w, "body");
        agx_mp_put_bin(&w, body);
        put_key(&w, "last");
        agx_mp_put_bool(&w, last);
        return agx_mp_writer_end(&w);
}

int agx_tunnel_put_chunk(agx_buf *out, uint64_t id, uint64_t seq, agx_view body, bool last)
{
        agx_mp_writer w = agx_mp_writer_on(out);

        agx_mp_put_map(&w, 4);
        put_key(&w, "request_id");
        agx_mp_put_uint(&w, id);
        put_key(&w, "seq");
        agx_mp_put_uint(&w, seq);
        put_key(&w, "data");
        agx_mp_put_bin(&w, body);
        put_key(&w, "last");
        agx_mp_put_bool(&w, last);
        return agx_mp_writer_end(&w);
}

int agx_tunnel_put_ack(agx_buf *out, uint64_t id, uint64_t seq)
{
        agx_mp_writer w = agx_mp_writer_on(out);

        agx_mp_put_map(&w, 2);
        put_key(&w, "request_id");
        agx_mp_put_uint(&w, id);
        put_key(&w, "seq");
        agx_mp_put_uint(&w, seq);
        return agx_mp_writer_end(&w);
}

int agx_tunnel_put_gone(agx_buf *out, uint64_t id)
{
        agx_mp_writer w = agx_mp_writer_on(out);

        agx_mp_put_map(&w, 1);
        put_key(&w, "request_id");
        agx_mp_put_uint(&w, id);
        return agx_mp_writer_end(&w);
}

int agx_tunnel_put_result(agx_buf *out, agx_view request_id, const agx_tunnel *t)
{
        agx_mp_writer w = agx_mp_writer_on(out);

        agx_mp_put_map(&w, 2);
        put_key(&w, "request_id");
        put_raw(&w, request_id);
        put_key(&w, "value");
        if (!t) {
                agx_mp_put_nil(&w);
                return agx_mp_writer_end(&w);
        }
        agx_mp_put_map(&w, 4);
        put_key(&w, "tunnel");
        agx_mp_put_uint(&w, t->id);
        put_key(&w, "port");
        agx_mp_put_uint(&w, t->number);
        put_key(&w, "chunk");
        agx_mp_put_uint(&w, AGX_TUNNEL_CHUNK);
        put_key(&w, "credit");
        agx_mp_put_uint(&w, AGX_TUNNEL_CREDIT);
        return agx_mp_writer_end(&w);
}

int agx_tunnel_put_error(agx_buf *out, agx_view request_id, const char *type, const char *message)
{
        agx_mp_writer w = agx_mp_writer_on(out);

        agx_mp_put_map(&w, 2);
        put_key(&w, "request_id");
        put_raw(&w, request_id);
        put_key(&w, "error");
        agx_mp_put_map(&w, 2);
        put_key(&w, "type");
        put_key(&w, type);
        put_key(&w, "message");
        put_key(&w, message);
        return agx_mp_writer_end(&w);
}
