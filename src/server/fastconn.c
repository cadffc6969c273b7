/*
 * A request is gathered as it comes, unless it lies whole in the input. Its stream leaves the table when its reply has been
 * taken, and with that its id's place is free: so pieces of a stream that nobody knows are those of one that was answered
 * early or reset, and are dropped.
 *
 * All that one connection makes us gather is bounded, and what all do (gather.h). It cannot be slowed down instead: what would complete a request comes
 * on the same connection. Our own peer never reaches the bound, since it lets large values begin only as others end.
 */
#include "server/fastconn.h"
#include "base/err.h"
#include "wire/ws.h"

enum { PLACE_MIN = 16 * 1024, HEAD_MAX = AGX_MAX_FAULT_MESSAGE + AGX_MAX_FAULT_TRACEBACK + 4096 };
static const char crowded_here[] = "the requests that came on this connection at once had more than 1 GiB together "
                                   "(AGX_FAST_GATHER_BYTES), so this one "
                                   "was not taken: send fewer large ones at a time";
enum { STATUS_OK = 200, STATUS_ACCEPTED = 202, STATUS_BAD = 400, STATUS_LARGE = 413, STATUS_UNAVAILABLE = 503 };

int agx_fastconn_init(agx_fastconn *c, agx_view session, const uint8_t seed[16], uint64_t now)
{
        *c = (agx_fastconn){.heard = now, .n_session = session.n, .gather_max = AGX_FAST_GATHER_BYTES};
        memcpy(c->session, session.p, session.n);
        agx_list_init(&c->late);
        return agx_fast_new(&c->fast, false, false, seed);
}

agx_view agx_fastconn_session(const agx_fastconn *c)
{
        return agx_view_of(c->session, c->n_session);
}

static void drop_body(agx_fast_stream *s)
{
        s->conn->gathered -= s->gathered;
        agx_gather_give(s->conn->shared, s->gathered);
        s->gathered = 0;
        agx_buf_deinit(&s->body);
}

void agx_fastconn_free(agx_fast_stream *s)
{
        agx_list_unlink(&s->late);
        agx_list_unlink(&s->gone);
        drop_body(s);
        agx_buf_deinit(&s->head);
        free(s);
}

static agx_fast_stream **place_of(agx_fastconn *c, uint32_t id)
{
        return &c->streams[id % AGX_FAST_STREAMS_MAX];
}

static void leave(agx_fast_stream *s)
{
        *place_of(s->conn, s->id) = NULL;
        --s->conn->n_streams;
        s->conn->n_asked -= s->asked;
        agx_list_unlink(&s->late);
}

void agx_fastconn_deinit(agx_fastconn *c)
{
        for (size_t i = 0; i < AGX_FAST_STREAMS_MAX; ++i) {
                if (!c->streams[i])
                        continue;
                agx_fast_withdraw(c->fast, &c->streams[i]->value);
                agx_fastconn_free(c->streams[i]);
        }
        agx_fast_free(c->fast);
        *c = (agx_fastconn){.fast = NULL};
}

/* ---- replies ---- */

/* Its head has been written by `w`; `payload` follows it. */
static int reply(agx_fast_stream *s, unsigned status, const agx_mp_writer *w, agx_view payload)
{
        int r = w ? agx_mp_writer_end(w) : 0;

        if (r)
                return agx_trace(-ENOMEM);
        s->replied = true;
        agx_list_unlink(&s->late);
        drop_body(s);
        s->value = (agx_fast_value){.kind = AGX_FAST_REPLY,
                                    .stream = s->id,
                                    .word = status,
                                    .parts = {agx_buf_view(&s->head), payload},
                                    .owner = s};
        agx_fast_send(s->conn->fast, &s->value);
        return 0;
}

int agx_fastconn_reply_result(agx_fast_stream *s, bool ok, agx_view payload, bool copy)
{
        agx_mp_writer w = agx_mp_writer_on(&s->head);

        if (copy)
                s->head.max += payload.n;
        if (ok)
                agx_call_reply_put_value_head(&w, payload.n);
        else
                agx_call_reply_put_fault_head(&w);
        if (!copy)
                return reply(s, STATUS_OK, &w, payload);
        if (agx_mp_writer_end(&w) || agx_buf_append_view(&s->head, payload))
                return agx_trace(-ENOMEM);
        return reply(s, STATUS_OK, NULL, AGX_VIEW(""));
}

static int reply_fault(agx_fast_stream *s, unsigned status, const agx_fault *fault)
{
        agx_mp_writer w = agx_mp_writer_on(&s->head);

        agx_call_reply_put_fault(&w, fault);
        return reply(s, status, &w, AGX_VIEW(""));
}

int agx_fastconn_reply_fault(agx_fast_stream *s, const agx_fault *fault)
{
        return reply_fault(s, STATUS_OK, fault);
}

int agx_fastconn_reply_accepted(agx_fast_stream *s, agx_view call_id)
{
        agx_mp_writer w = agx_mp_writer_on(&s->head);

        agx_call_reply_put_accepted(&w, call_id);
        return reply(s, STATUS_ACCEPTED, &w, AGX_VIEW(""));
}

int agx_fastconn_reply_unavailable(agx_fast_stream *s)
{
        return reply(s, STATUS_UNAVAILABLE, NULL, AGX_VIEW(""));
}

static int refuse(agx_fast_stream *s, const char *why)
{
        agx_fault fault = {.type = agx_fault_type_text(AGX_FAULT_BAD_REQUEST),
                           .message = agx_view_str(why ? why : "malformed")};

        return reply_fault(s, STATUS_BAD, &fault);
}

void agx_fastconn_take_back(agx_fast_stream *s)
{
        agx_fast *fast = s->conn->fast;
        bool begun = s->value.begun;

        agx_fast_withdraw(fast, &s->value);
        if (!begun)
                agx_fast_reset(fast, s->id);
        leave(s);
}

agx_fast_stream *agx_fastconn_next_gone(agx_fastconn *c, uint64_t now)
{
        agx_fast_value *v = agx_fast_next_written(c->fast);
        agx_fast_stream *s = v ? v->owner : NULL;

        if (s) {
                leave(s);
                c->heard = now;
        }
        return s;
}

/* ---- requests ---- */

static int begin(agx_fastconn *c, const agx_fast_piece *piece, agx_fast_stream **stream)
{
        agx_fast_stream *s = calloc(1, sizeof(*s));

        if (!s)
                return agx_trace(-ENOMEM);
        s->id = piece->stream;
        s->conn = c;
        s->wait_ms = piece->word < AGX_HTTP_WAIT_MAX_S * 1000u ? piece->word : AGX_HTTP_WAIT_MAX_S * 1000u;
        s->body = AGX_BUF_NULL(AGX_MAX_MESSAGE);
        if (piece->size <= AGX_MAX_MESSAGE)
                agx_buf_expect(&s->body, (size_t)piece->size);
        s->head = AGX_BUF_NULL(HEAD_MAX);
        agx_list_init(&s->late);
        agx_list_init(&s->gone);
        *place_of(c, s->id) = s;
        ++c->n_streams;
        *stream = s;
        return 0;
}

static void wait_until(agx_fastconn *c, agx_fast_stream *s, uint64_t deadline)
{
        agx_list *at = c->late.prev;

        s->deadline = deadline;
        while (at != &c->late && agx_container_of(at, agx_fast_stream, late)->deadline > deadline)
                at = at->prev;
        agx_list_push_back(at->next, &s->late);
}

/* Bytes that were read into the place the body gave lie there already. */
static int gather(agx_fastconn *c, agx_fast_stream *s, agx_view data)
{
        int r = 0;

        if (!s->crowded && data.n > c->gather_max - c->gathered)
                s->crowded = crowded_here;
        if (!s->crowded && !agx_gather_take(c->shared, data.n))
                s->crowded = AGX_GATHER_FULL;
        if (s->crowded) {
                drop_body(s);
                return 0;
        }
        if (agx_buf_ends_at(&s->body, data))
                agx_buf_commit(&s->body, data.n);
        else
                r = agx_buf_append_view(&s->body, data);
        if (r) {
                agx_gather_give(c->shared, data.n);
                return r;
        }
        s->gathered += data.n;
        c->gathered += data.n;
        return 0;
}

static int refuse_crowded(agx_fast_stream *s)
{
        agx_fault fault = agx_gather_fault(s->crowded);

        return reply_fault(s, STATUS_OK, &fault);
}

/* The request is complete: `body` is all of it. */
static int ask(agx_fastconn *c, agx_fast_stream *s, agx_view body, uint64_t now, agx_fastconn_wish *wish)
{
        const char *why;

        s->asked = true;
        ++c->n_asked;
        if (s->crowded)
                return refuse_crowded(s);
        if (!agx_call_request_get(body, &s->request, &why))
                return refuse(s, why);
        if (s->body.len)
                s->request.backing = &s->body;
        wait_until(c, s, now + s->wait_ms);
        *wish = AGX_FASTCONN_SUBMIT;
        return 0;
}

static int on_call(agx_fastconn *c, const agx_fast_piece *piece, uint64_t now, agx_fastconn_wish *wish,
                   agx_fast_stream **stream)
{
        agx_fast_stream *s = *place_of(c, piece->stream);
        int r = 0;

        if (piece->first && s) {
                c->why = "a stream in the place of another";
                *wish = AGX_FASTCONN_CLOSE;
                agx_fast_close(c->fast, AGX_WS_PROTOCOL);
                return 0;
        }
        if (piece->first)
                r = begin(c, piece, &s);
        if (r || !s || s->id != piece->stream || s->replied || s->asked)
                return r;
        *stream = s;
        if (piece->first && piece->last)
                return ask(c, s, piece->data, now, wish);
        r = gather(c, s, piece->data);
        if (r == AGX_BUF_E_FULL)
                return reply(s, STATUS_LARGE, NULL, AGX_VIEW(""));
        return r || !piece->last ? r : ask(c, s, agx_buf_view(&s->body), now, wish);
}

void agx_fastconn_submitted(agx_fast_stream *s)
{
        s->request = (agx_call_request){.has_stream = false};
        drop_body(s);
}

/* Its caller does not go on with it. One that is complete goes its way. */
static void on_reset(agx_fastconn *c, uint32_t id)
{
        agx_fast_stream *s = *place_of(c, id);

        if (!s || s->id != id || s->asked || s->replied)
                return;
        leave(s);
        agx_fastconn_free(s);
}

int agx_fastconn_next(agx_fastconn *c, uint64_t now, agx_view *in, agx_fastconn_wish *wish, agx_fast_stream **stream)
{
        agx_fast_piece piece;
        int r = 0;

        *wish = AGX_FASTCONN_INPUT;
        if (in->n)
                c->heard = now;
        while (!r && *wish == AGX_FASTCONN_INPUT) {
                r = agx_fast_next(c->fast, in, &piece);
                if (r == AGX_FAST_E_MORE)
                        return 0;
                if (r > 0) {
                        c->why = r == AGX_FAST_E_BROKEN ? agx_fast_reason(c->fast) : NULL;
                        *wish = AGX_FASTCONN_CLOSE;
                        return 0;
                }
                if (!r && piece.kind == AGX_FAST_CALL)
                        r = on_call(c, &piece, now, wish, stream);
                else if (!r && piece.kind == AGX_FAST_RESET)
                        on_reset(c, piece.stream);
        }
        return r > 0 ? agx_trace(-ENOMEM) : r;
}

bool agx_fastconn_place(agx_fastconn *c, char **place, size_t *n)
{
        uint32_t id = agx_fast_goes_on(c->fast, n);
        agx_fast_stream *s = id ? *place_of(c, id) : NULL;
        agx_view between = AGX_VIEW_NULL;
        uint8_t *at;

        if (!id)
                between = agx_fast_between(c->fast);
        if (between.n) {
                *place = (char *)(uintptr_t)between.p;
                *n = between.n;
                return true;
        }
        if (!s || s->id != id || s->asked || s->replied || s->crowded || *n < PLACE_MIN ||
            agx_buf_reserve(&s->body, *n, &at))
                return false;
        *place = (char *)at;
        return true;
}

/* ---- time ---- */

uint64_t agx_fastconn_deadline(const agx_fastconn *c)
{
        agx_list *node = agx_list_first(&c->late);
        uint64_t late = node ? agx_container_of(node, agx_fast_stream, late)->deadline : UINT64_MAX;
        uint64_t idle = c->n_asked ? UINT64_MAX : c->heard + AGX_HTTP_IDLE_MS;

        return late < idle ? late : idle;
}

agx_fast_stream *agx_fastconn_late(agx_fastconn *c, uint64_t now)
{
        agx_list *node = agx_list_first(&c->late);
        agx_fast_stream *s = node ? agx_container_of(node, agx_fast_stream, late) : NULL;

        if (!s || s->deadline > now)
                return NULL;
        agx_list_unlink(node);
        return s;
}

bool agx_fastconn_is_idle(const agx_fastconn *c, uint64_t now)
{
        return !c->n_asked && now >= c->heard + AGX_HTTP_IDLE_MS;
}
