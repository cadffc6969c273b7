/*
 * An exchange keeps its records for the host, encoded, until they are consumed; `unsaid` is the first that this link has not
 * heard, so a new link hears all of them again by setting it back. Exchanges with something to say stand in their
 * tunnel's `due` and say one record each in turn.
 *
 * Small answers wait in a list of the port. They go when it goes: whoever attaches anew asks anew, and is told then of each
 * exchange it names that is over.
 */
#include "server/tunnel.h"
#include "base/err.h"
#include "server/tunnel_words.h"

#include <stdlib.h>

enum { BEGIN_MAX = AGX_TUNNEL_CHUNK + AGX_HTTP_HEAD_MAX * 2 + 4096, SMALL_MAX = 2048, ID_BYTES = 8, UNREADABLE = 502 };

typedef struct record {
        agx_list node;
        uint64_t seq;
        size_t body; /* bytes of a body in it */
        agx_buf payload;
} record;

typedef struct answer {
        agx_list node;
        agx_view event; /* static */
        agx_buf payload;
} answer;

/* ---- lifecycle ---- */

void agx_tunnels_init(agx_tunnels *a, const uint8_t seed[16])
{
        *a = (agx_tunnels){.said = AGX_BUF_NULL(SMALL_MAX)};
        agx_list_init(&a->all);
        agx_map_init(&a->exchanges, seed);
}

static void answer_free(answer *x)
{
        if (!x)
                return;
        agx_buf_deinit(&x->payload);
        free(x);
}

void agx_tunnels_deinit(agx_tunnels *a)
{
        answer_free(a->last);
        a->last = NULL;
        agx_buf_deinit(&a->said);
        agx_map_deinit(&a->exchanges);
}

void agx_tunnel_port_init(agx_tunnel_port *p)
{
        *p = (agx_tunnel_port){.n_answers = 0};
        agx_list_init(&p->tunnels);
        agx_list_init(&p->answers);
}

static void unbind(agx_tunnel *t)
{
        agx_list_unlink(&t->of_port);
        t->port = NULL;
        t->away = 0;
}

void agx_tunnel_port_detach(agx_tunnel_port *p)
{
        if (!p->tunnels.next)
                return;
        agx_list_foreach_safe(node, &p->tunnels) unbind(agx_container_of(node, agx_tunnel, of_port));
        agx_list_foreach_safe(node, &p->answers)
        {
                agx_list_unlink(node);
                answer_free(agx_container_of(node, answer, node));
        }
        p->n_answers = 0;
}

bool agx_tunnel_port_pending(const agx_tunnel_port *p)
{
        if (!p->tunnels.next)
                return false;
        if (!agx_list_empty(&p->answers))
                return true;
        for (agx_list *node = p->tunnels.next; node != &p->tunnels; node = node->next)
                if (!agx_list_empty(&agx_container_of(node, agx_tunnel, of_port)->due))
                        return true;
        return false;
}

/* ---- small answers ---- */

static answer *answer_new(agx_view event)
{
        answer *x = malloc(sizeof(*x));

        if (!x)
                return NULL;
        x->event = event;
        x->payload = AGX_BUF_NULL(SMALL_MAX);
        return x;
}

/* `r`: of writing it. */
static int queue(agx_tunnel_port *p, answer *x, int r)
{
        if (r || p->n_answers >= AGX_TUNNEL_ANSWERS_MAX) {
                answer_free(x);
                return r < 0 ? r : 0;
        }
        agx_list_push_back(&p->answers, &x->node);
        p->n_answers++;
        return 0;
}

static int say_result(agx_tunnel_port *p, agx_view event, agx_view request_id, const agx_tunnel *t)
{
        answer *x = answer_new(event);

        return x ? queue(p, x, agx_tunnel_put_result(&x->payload, request_id, t)) : agx_trace(-ENOMEM);
}

static int say_error(agx_tunnel_port *p, agx_view event, agx_view request_id, const char *type, const char *message)
{
        answer *x = answer_new(event);

        return x ? queue(p, x, agx_tunnel_put_error(&x->payload, request_id, type, message)) : agx_trace(-ENOMEM);
}

static int say_gone(agx_tunnel_port *p, uint64_t id)
{
        answer *x = answer_new(AGX_VIEW("gone"));

        return x ? queue(p, x, agx_tunnel_put_gone(&x->payload, id)) : agx_trace(-ENOMEM);
}

/* ---- exchanges ---- */

void agx_exchange_init(agx_exchange *x)
{
        *x = (agx_exchange){.id = 0};
        agx_list_init(&x->node);
        agx_list_init(&x->due);
        agx_list_init(&x->up);
}

static void want_say(agx_exchange *x)
{
        if (x->tunnel && agx_list_empty(&x->due))
                agx_list_push_back(&x->tunnel->due, &x->due);
}

static record *record_of(agx_list *node)
{
        return agx_container_of(node, record, node);
}

static void record_free(record *r)
{
        agx_list_unlink(&r->node);
        agx_buf_deinit(&r->payload);
        free(r);
}

/* Takes over the record, whose payload was written with the outcome `r`. */
static int keep(agx_exchange *x, record *rec, int r, size_t body, bool last)
{
        if (r) {
                agx_buf_deinit(&rec->payload);
                free(rec);
                return agx_trace(r < 0 ? r : -EMSGSIZE);
        }
        rec->body = body;
        rec->seq = x->up_seq++;
        agx_list_push_back(&x->up, &rec->node);
        if (!x->unsaid)
                x->unsaid = &rec->node;
        x->up_bytes += body;
        x->up_ended = last;
        want_say(x);
        return 0;
}

static record *record_new(void)
{
        record *rec = calloc(1, sizeof(*rec));

        if (rec)
                rec->payload = AGX_BUF_NULL(BEGIN_MAX);
        return rec;
}

static agx_view key_of(const uint64_t *id)
{
        return agx_view_of(id, ID_BYTES);
}

int agx_exchange_begin(agx_exchange *x, agx_tunnel *t, agx_view path, const agx_http1_head *head, agx_view query,
                       agx_view body, bool last)
{
        record *rec = record_new();
        int r;

        if (!rec)
                return agx_trace(-ENOMEM);
        agx_exchange_init(x);
        x->id = ++t->all->last_exchange;
        x->path = path;
        x->by_id.key = key_of(&x->id);
        r = agx_map_insert(&t->all->exchanges, &x->by_id);
        if (r)
                return keep(x, rec, r, 0, false);
        x->tunnel = t;
        agx_list_push_back(&t->exchanges, &x->node);
        r = agx_tunnel_put_begin(&rec->payload, t->id, x->id, path, head, query, body, last);
        r = keep(x, rec, r, body.n, last);
        if (r)
                agx_exchange_over(x);
        return r;
}

int agx_exchange_more(agx_exchange *x, agx_view body, bool last)
{
        record *rec = record_new();

        if (!rec)
                return agx_trace(-ENOMEM);
        return keep(x, rec, agx_tunnel_put_chunk(&rec->payload, x->id, x->up_seq, body, last), body.n, last);
}

/* A host that has attached anew may know of records that this link has not heard yet. */
static void drop_consumed(agx_exchange *x, uint64_t below)
{
        if (below > x->up_said)
                below = x->up_said;
        agx_list_foreach_safe(node, &x->up)
        {
                record *rec = record_of(node);

                if (rec->seq >= below)
                        return;
                if (x->unsaid == node)
                        x->unsaid = node->next == &x->up ? NULL : node->next;
                x->up_bytes -= rec->body;
                record_free(rec);
        }
}

void agx_exchange_over(agx_exchange *x)
{
        agx_tunnel *t = x->tunnel;

        if (!t)
                return;
        x->tunnel = NULL;
        agx_map_remove(&t->all->exchanges, &x->by_id);
        agx_list_unlink(&x->node);
        agx_list_unlink(&x->due);
        agx_list_foreach_safe(node, &x->up) record_free(record_of(node));
        x->unsaid = NULL;
        x->up_bytes = 0;
        if (x->known && t->port)
                say_gone(t->port, x->id); /* without memory the host learns it when it next says something of it */
}

void agx_exchange_taken(agx_exchange *x)
{
        x->down_taken = x->down_seq;
        if (!x->tunnel || x->down_bytes < AGX_TUNNEL_CREDIT / 4)
                return;
        x->down_acked = x->down_seq;
        x->down_bytes = 0;
        x->ack_due = true;
        want_say(x);
}

static agx_exchange *find(const agx_tunnels *a, uint64_t id)
{
        agx_map_node *node = agx_map_find(&a->exchanges, key_of(&id));

        return node ? agx_container_of(node, agx_exchange, by_id) : NULL;
}

/* ---- saying ---- */

static int say_answer(agx_tunnels *a, agx_tunnel_port *p, agx_tunnel_saying *saying)
{
        answer *x = agx_container_of(agx_list_first(&p->answers), answer, node);

        agx_list_unlink(&x->node);
        p->n_answers--;
        a->last = x;
        *saying = (agx_tunnel_saying){x->event, agx_buf_view(&x->payload)};
        return 0;
}

static int say_ack(agx_tunnels *a, agx_exchange *x, agx_tunnel_saying *saying)
{
        int r;

        agx_buf_clear(&a->said);
        r = agx_tunnel_put_ack(&a->said, x->id, x->down_acked);
        if (r)
                return r;
        x->ack_due = false;
        *saying = (agx_tunnel_saying){AGX_VIEW("ack"), agx_buf_view(&a->said)};
        return 0;
}

static void say_record(agx_exchange *x, agx_tunnel_saying *saying)
{
        record *rec = record_of(x->unsaid);

        *saying = (agx_tunnel_saying){rec->seq ? AGX_VIEW("chunk") : x->path, agx_buf_view(&rec->payload)};
        x->unsaid = rec->node.next == &x->up ? NULL : rec->node.next;
        x->known = true;
        if (rec->seq >= x->up_said)
                x->up_said = rec->seq + 1;
}

/* An exchange of the tunnel that has something to say, or NULL. */
static agx_exchange *next_due(agx_tunnel *t)
{
        agx_list_foreach_safe(node, &t->due)
        {
                agx_exchange *x = agx_container_of(node, agx_exchange, due);

                agx_list_unlink(node);
                if (x->ack_due || x->unsaid)
                        return x;
        }
        return NULL;
}

int agx_tunnels_say(agx_tunnels *a, agx_tunnel_port *p, agx_tunnel_saying *saying)
{
        answer_free(a->last);
        a->last = NULL;
        if (!p->tunnels.next)
                return AGX_TUNNEL_E_NONE;
        if (!agx_list_empty(&p->answers))
                return say_answer(a, p, saying);
        agx_list_foreach_safe(node, &p->tunnels)
        {
                agx_tunnel *t = agx_container_of(node, agx_tunnel, of_port);
                agx_exchange *x = next_due(t);
                int r = 0;

                if (!x)
                        continue;
                if (x->ack_due)
                        r = say_ack(a, x, saying);
                else
                        say_record(x, saying);
                if (x->ack_due || x->unsaid)
                        want_say(x);
                return r;
        }
        return AGX_TUNNEL_E_NONE;
}

/* ---- tunnels ---- */

agx_view agx_tunnel_path(const agx_tunnel *t, agx_view path)
{
        agx_view rest = agx_buf_view(&t->paths), one;

        while (rest.n && agx_view_split(&rest, '\0', &one))
                if (agx_view_eq(one, path))
                        return one;
        return AGX_VIEW_NULL;
}

static void bind(agx_tunnel *t, agx_tunnel_port *p)
{
        agx_list_unlink(&t->of_port);
        agx_list_push_back(&p->tunnels, &t->of_port);
        t->port = p;
}

static agx_tunnel *find_tunnel(const agx_tunnels *a, uint64_t id)
{
        for (agx_list *node = a->all.next; node != &a->all; node = node->next)
                if (agx_container_of(node, agx_tunnel, node)->id == id)
                        return agx_container_of(node, agx_tunnel, node);
        return NULL;
}

int agx_tunnel_opened(agx_tunnel *t, agx_view request_id, unsigned number)
{
        t->number = number;
        return t->port ? say_result(t->port, AGX_VIEW("open:result"), request_id, t) : 0;
}

void agx_tunnel_failed(agx_tunnel *t, agx_view request_id, const char *why)
{
        if (t->port)
                say_error(t->port, AGX_VIEW("open:error"), request_id, "OSError", why);
        agx_tunnel_free(t);
}

void agx_tunnel_free(agx_tunnel *t)
{
        agx_list_foreach_safe(node, &t->exchanges) agx_exchange_over(agx_container_of(node, agx_exchange, node));
        agx_list_unlink(&t->of_port);
        agx_list_unlink(&t->node);
        t->all->n--;
        agx_buf_deinit(&t->paths);
        free(t);
}

/* ---- questions ---- */

static bool path_ok(agx_view path)
{
        if (!path.n || path.p[0] != '/' || path.n > AGX_TUNNEL_PATH_MAX)
                return false;
        for (size_t i = 0; i < path.n; ++i)
                if (path.p[i] <= ' ' || path.p[i] == 0x7f || path.p[i] == '?' || path.p[i] == '#')
                        return false;
        return true;
}

/* NULL, or what is wrong; *r is -ENOMEM if that is it. */
static const char *take_paths(agx_tunnel *t, const agx_tunnel_question *q, int *r)
{
        agx_mp_reader reader = agx_mp_reader_on(q->paths);

        if (!q->n_paths || q->n_paths > AGX_TUNNEL_PATHS_MAX)
                return "a tunnel has between 1 and 256 paths";
        for (size_t i = 0; i < q->n_paths && !*r; ++i) {
                agx_view path = agx_mp_next(&reader).v;

                if (!path_ok(path))
                        return "a path begins with / and has up to 240 visible characters, without ? and #";
                *r = agx_buf_append_view(&t->paths, path);
                if (!*r)
                        *r = agx_buf_append(&t->paths, "", 1);
        }
        return NULL;
}

static agx_tunnel *tunnel_new(agx_tunnels *a)
{
        agx_tunnel *t = calloc(1, sizeof(*t));

        if (!t)
                return NULL;
        t->all = a;
        t->paths = AGX_BUF_NULL(AGX_TUNNEL_PATHS_MAX * (AGX_TUNNEL_PATH_MAX + 1));
        agx_list_init(&t->of_port);
        agx_list_init(&t->due);
        agx_list_init(&t->exchanges);
        agx_list_push_back(&a->all, &t->node);
        a->n++;
        return t;
}

static int refuse(agx_tunnel_port *p, agx_view event, const agx_tunnel_words *w, const char *why)
{
        return say_error(p, event, w->request_id, "ValueError", why);
}

static int take_open(agx_tunnels *a, agx_tunnel_port *p, const agx_tunnel_words *w, agx_tunnel_outcome *outcome)
{
        agx_view event = AGX_VIEW("open:error");
        agx_tunnel_question q;
        const char *why;
        agx_tunnel *t;
        int r = 0;

        if (!agx_tunnel_question_read(w->asked, &q) || !q.window)
                return refuse(p, event, w, "open asks for paths and a window of at least 1 ms");
        if (a->n >= AGX_TUNNELS_MAX)
                return refuse(p, event, w, "there are too many tunnels into this sandbox; close one");
        t = tunnel_new(a);
        if (!t)
                return agx_trace(-ENOMEM);
        why = take_paths(t, &q, &r);
        if (why || r) {
                agx_tunnel_free(t);
                return r ? agx_trace(-ENOMEM) : refuse(p, event, w, why);
        }
        t->id = ++a->last_tunnel;
        t->window_ms = q.window < AGX_TUNNEL_WINDOW_MAX_MS ? q.window : AGX_TUNNEL_WINDOW_MAX_MS;
        bind(t, p);
        *outcome = (agx_tunnel_outcome){.todo = AGX_TUNNEL_TODO_LISTEN, .tunnel = t, .request_id = w->request_id};
        return 0;
}

/* Says anew what this exchange's host has not consumed, unless it knows it no more. */
static void begin_anew(agx_exchange *x)
{
        x->unsaid = agx_list_first(&x->up);
        agx_list_unlink(&x->due);
        x->down_acked = x->down_taken;
        x->ack_due = x->known && x->down_taken;
        if (x->unsaid || x->ack_due)
                want_say(x);
}

static bool consumed_first(agx_exchange *x)
{
        agx_list *first = agx_list_first(&x->up);

        return x->replied || !first || record_of(first)->seq;
}

static int take_attach(agx_tunnels *a, agx_tunnel_port *p, const agx_tunnel_words *w, agx_tunnel_outcome *outcome)
{
        agx_tunnel_question q;
        agx_mp_reader live;
        agx_tunnel *t;
        int r;

        if (!agx_tunnel_question_read(w->asked, &q))
                return refuse(p, AGX_VIEW("attach:error"), w, "attach asks for a tunnel");
        t = find_tunnel(a, q.tunnel);
        if (!t)
                return say_error(p, AGX_VIEW("attach:error"), w->request_id, "KeyError", "there is no such tunnel");
        bind(t, p);
        agx_list_foreach_safe(node, &t->exchanges) agx_container_of(node, agx_exchange, node)->known = false;
        r = say_result(p, AGX_VIEW("attach:result"), w->request_id, t);
        live = agx_mp_reader_on(q.live);
        for (size_t i = 0; i < q.n_live && !r; ++i) {
                uint64_t id = agx_mp_next(&live).u;
                agx_exchange *x = find(a, id);

                if (x && x->tunnel == t)
                        x->known = true;
                else
                        r = say_gone(p, id);
        }
        agx_list_foreach_safe(node, &t->exchanges) begin_anew(agx_container_of(node, agx_exchange, node));
        *outcome = (agx_tunnel_outcome){.todo = AGX_TUNNEL_TODO_LOST, .tunnel = t};
        return r;
}

agx_exchange *agx_tunnel_next_lost(agx_tunnel *t)
{
        agx_list_foreach_safe(node, &t->exchanges)
        {
                agx_exchange *x = agx_container_of(node, agx_exchange, node);

                if (!x->known && consumed_first(x))
                        return x;
        }
        return NULL;
}

static int take_close(agx_tunnels *a, agx_tunnel_port *p, const agx_tunnel_words *w, agx_tunnel_outcome *outcome)
{
        agx_tunnel_question q;
        agx_tunnel *t;

        if (!agx_tunnel_question_read(w->asked, &q))
                return refuse(p, AGX_VIEW("close:error"), w, "close asks for a tunnel");
        t = find_tunnel(a, q.tunnel);
        if (t)
                *outcome = (agx_tunnel_outcome){.todo = AGX_TUNNEL_TODO_CLOSE, .tunnel = t};
        return say_result(p, AGX_VIEW("close:result"), w->request_id, NULL);
}

/* ---- answers of a host ---- */

static int note(agx_tunnel_outcome *outcome, const char *why)
{
        *outcome = (agx_tunnel_outcome){.todo = AGX_TUNNEL_TODO_NOTE, .why = why};
        return 0;
}

static int take_ack(agx_exchange *x, const agx_tunnel_words *w, agx_tunnel_outcome *outcome)
{
        drop_consumed(x, w->seq);
        *outcome = (agx_tunnel_outcome){.todo = AGX_TUNNEL_TODO_READ, .exchange = x};
        return 0;
}

/* The next record from the host, and none that was seen or is ahead of its turn. */
static bool in_turn(agx_exchange *x, const agx_tunnel_words *w)
{
        if (x->ended || (w->has_seq && w->seq != x->down_seq))
                return false;
        ++x->down_seq;
        drop_consumed(x, 1);
        return true;
}

/* The exchange ends with it: nobody should wait for more of an answer that cannot be read. */
static int unreadable(agx_exchange *x, const agx_tunnel_words *w, const char *why, agx_tunnel_outcome *outcome)
{
        if (!in_turn(x, w))
                return note(outcome, why);
        x->ended = true;
        *outcome = (agx_tunnel_outcome){.todo = AGX_TUNNEL_TODO_ERROR,
                                        .exchange = x,
                                        .reply = {.status = UNREADABLE,
                                                  .body = AGX_VIEW("the host's answer cannot be read")},
                                        .last = true,
                                        .why = why};
        return 0;
}

static int take_reply(agx_exchange *x, const agx_tunnel_words *w, bool whole, agx_tunnel_outcome *outcome)
{
        agx_tunnel_reply reply;

        if (!agx_tunnel_reply_read(w->value, &reply))
                return unreadable(x, w, "a reply of a tunnel's host that cannot be read", outcome);
        if (x->replied || !in_turn(x, w))
                return 0;
        x->replied = true;
        x->ended = whole;
        *outcome = (agx_tunnel_outcome){.todo = whole ? AGX_TUNNEL_TODO_WHOLE : AGX_TUNNEL_TODO_HEAD,
                                        .exchange = x,
                                        .reply = reply,
                                        .last = whole};
        return 0;
}

static int take_chunk(agx_exchange *x, const agx_tunnel_words *w, agx_tunnel_outcome *outcome)
{
        if (!w->data.p)
                return unreadable(x, w, "a piece of a reply without bytes", outcome);
        if (!x->replied || !in_turn(x, w))
                return 0;
        x->ended = w->last;
        x->down_bytes += w->data.n;
        *outcome = (agx_tunnel_outcome){
                .todo = AGX_TUNNEL_TODO_BODY, .exchange = x, .reply = {.body = w->data}, .last = w->last};
        return 0;
}

static int take_error(agx_exchange *x, const agx_tunnel_words *w, agx_tunnel_outcome *outcome)
{
        agx_tunnel_reply reply;

        if (!agx_tunnel_error_read(w->error, &reply))
                return unreadable(x, w, "an error of a tunnel's host that cannot be read", outcome);
        if (!in_turn(x, w))
                return 0;
        x->ended = true;
        *outcome = (agx_tunnel_outcome){.todo = AGX_TUNNEL_TODO_ERROR, .exchange = x, .reply = reply, .last = true};
        return 0;
}

static bool ends_with(agx_view text, agx_view end)
{
        return text.n >= end.n && agx_view_eq(agx_view_from(text, text.n - end.n), end);
}

static int take_answer(agx_tunnels *a, agx_tunnel_port *p, agx_view name, const agx_tunnel_words *w,
                       agx_tunnel_outcome *outcome)
{
        agx_exchange *x = w->has_id ? find(a, w->id) : NULL;

        if (!w->has_id)
                return note(outcome, "an answer of a tunnel's host whose request_id is no number");
        if (!x)
                return say_gone(p, w->id);
        if (agx_view_eq(name, AGX_VIEW("ack")))
                return take_ack(x, w, outcome);
        if (agx_view_eq(name, AGX_VIEW("chunk")))
                return take_chunk(x, w, outcome);
        if (agx_view_eq(name, AGX_VIEW("head")))
                return take_reply(x, w, false, outcome);
        if (ends_with(name, AGX_VIEW(":result")))
                return take_reply(x, w, true, outcome);
        if (ends_with(name, AGX_VIEW(":error")))
                return take_error(x, w, outcome);
        return note(outcome, "an event that tunnels do not know");
}

int agx_tunnels_take(agx_tunnels *a, agx_tunnel_port *p, agx_view name, agx_view payload, agx_tunnel_outcome *outcome)
{
        agx_tunnel_words w;

        *outcome = (agx_tunnel_outcome){.todo = AGX_TUNNEL_TODO_NOTHING};
        if (!p->tunnels.next)
                return 0;
        if (!agx_tunnel_words_read(payload, &w))
                return note(outcome, "an event for tunnels that cannot be read");
        if (agx_view_eq(name, AGX_VIEW("open")))
                return take_open(a, p, &w, outcome);
        if (agx_view_eq(name, AGX_VIEW("attach")))
                return take_attach(a, p, &w, outcome);
        if (agx_view_eq(name, AGX_VIEW("close")))
                return take_close(a, p, &w, outcome);
        return take_answer(a, p, name, &w, outcome);
}
