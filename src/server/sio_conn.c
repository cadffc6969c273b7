/*
 * Results wait in the ledger until a connection can take them: fill() asks the road for the next one only while little
 * waits in eio. A small one is copied into its packet, a large one into memory of its own, since the ledger may drop it
 * before the peer has it.
 */
#include "server/sio_conn.h"
#include "base/err.h"
#include "wire/json.h"
#include "wire/sio_pack.h"

#include <stdio.h>
#include <stdlib.h>

enum { SMALL = 16 << 10 };

static const agx_view rpc_name = {"/rpc", 4};

/* ---- lifecycle ---- */

static void write_hex(char *to, const uint8_t *from, size_t n)
{
        static const char digits[] = "0123456789abcdef";

        for (size_t i = 0; i < n; i++) {
                to[2 * i] = digits[from[i] >> 4];
                to[2 * i + 1] = digits[from[i] & 15];
        }
}

int agx_sio_conn_init(agx_sio_conn *c, const agx_site *site, agx_rpc *rpc, const uint8_t random[AGX_SIO_CONN_RANDOM],
                      agx_eio_transport transport, uint64_t now)
{
        static const agx_eio_bounds eio = {.message_max = AGX_MAX_MESSAGE,
                                           .queue_max = (size_t)AGX_MAX_MESSAGE + 2 * AGX_SIO_OUT_LOW,
                                           .queue_packets = AGX_SIO_OUT_PACKETS,
                                           .payload_packets = AGX_SIO_PAYLOAD_PACKETS,
                                           .interval_ms = AGX_SIO_PING_MS,
                                           .timeout_ms = AGX_SIO_TIMEOUT_MS,
                                           .upgrade_ms = AGX_SIO_UPGRADE_MS,
                                           .upgrade = true};
        static const agx_sio_bounds sio = {.packet_max = (size_t)AGX_MAX_MESSAGE + AGX_SIO_TEXT_MAX,
                                           .attachments_max = AGX_SIO_BYTES_ARGS_MAX,
                                           .namespace_max = AGX_SIO_NAME_MAX,
                                           .event_max = AGX_SIO_NAME_MAX,
                                           .depth_max = AGX_SIO_DEPTH_MAX,
                                           .namespaces_max = AGX_SIO_NAMESPACES_MAX,
                                           .acks_max = 1};
        char sid[AGX_SIO_CONN_SID];
        int r;

        *c = (agx_sio_conn){.site = site,
                            .rpc = rpc,
                            .join_by = now + AGX_SIO_JOIN_MS,
                            .text = AGX_BUF_NULL(AGX_SIO_TEXT_MAX + SMALL),
                            .packed = AGX_BUF_NULL(AGX_MAX_MESSAGE)};
        write_hex(sid, random, 16);
        write_hex(c->name, random + 16, 16);
        r = agx_eio_new(&c->eio, AGX_EIO_SERVER, &eio, agx_view_of(sid, sizeof(sid)), transport, now);
        return r ? r : agx_sio_new(&c->sio, AGX_SIO_SERVER, &sio, random + 32);
}

void agx_sio_conn_serve(agx_sio_conn *c, agx_hub *hub)
{
        agx_hub_port_init(&c->port, hub);
}

/* Frees the large results that are through. */
void agx_sio_conn_reap(agx_sio_conn *c)
{
        void *bytes;

        while ((bytes = agx_eio_next_done(c->eio)))
                free(bytes);
}

static void give_back(agx_sio_conn *c)
{
        if (c->site)
                agx_gather_give(c->site->gather, c->gathered);
        c->gathered = 0;
}

void agx_sio_conn_deinit(agx_sio_conn *c)
{
        give_back(c);
        agx_rpc_detach(&c->link);
        agx_hub_detach(&c->port);
        if (c->eio) {
                agx_eio_lost(c->eio, "the connection is given up");
                agx_sio_conn_reap(c);
        }
        agx_eio_free(c->eio);
        agx_sio_free(c->sio);
        c->eio = NULL;
        c->sio = NULL;
        agx_buf_deinit(&c->text);
        agx_buf_deinit(&c->packed);
}

/* ---- the end ---- */

static void give_up(agx_sio_conn *c, const char *why)
{
        c->broken = true;
        agx_eio_lost(c->eio, why);
        agx_rpc_detach(&c->link);
        agx_hub_detach(&c->port);
}

/* Closes the session if `r` says that it cannot go on. */
static bool survived(agx_sio_conn *c, int r)
{
        if (r)
                give_up(c, r < 0 ? "the server is out of memory" : "more is asked for than taken");
        return !r;
}

/* ---- joining ---- */

/* Sends the packet in `text`. */
static int send_text(agx_sio_conn *c)
{
        agx_eio_message message = {.head = agx_buf_view(&c->text), .body = AGX_VIEW("")};
        int r = agx_eio_send(c->eio, &message, 1);

        agx_buf_clear(&c->text);
        return r;
}

/* What a host says when it joins /rpc: {session: str}. */
typedef struct introduction {
        agx_buf session;
        bool named;
} introduction;

/* 0, AGX_RPC_E_SESSION or -ENOMEM. */
static int read_introduction(agx_view json, introduction *intro)
{
        agx_json_reader r = agx_json_reader_on(json, AGX_SIO_DEPTH_MAX);
        agx_json_token t;
        int e = 0;

        if (!json.p)
                return 0;
        if (agx_json_next(&r).kind != AGX_JSON_OBJECT)
                return AGX_RPC_E_SESSION;
        while (!e && (t = agx_json_next(&r)).kind == AGX_JSON_KEY) {
                if (!agx_json_is(&t, AGX_VIEW("session"))) {
                        agx_json_skip(&r);
                        continue;
                }
                t = agx_json_next(&r);
                if (t.kind == AGX_JSON_NULL)
                        continue;
                if (t.kind != AGX_JSON_STRING || intro->named)
                        return AGX_RPC_E_SESSION;
                intro->named = true;
                e = agx_json_text(&t, &intro->session);
        }
        return e ? e : agx_json_done(&r) ? 0 : AGX_RPC_E_SESSION;
}

static int put_welcome(agx_sio_conn *c, agx_view nsp, bool rpc)
{
        char json[256];
        int n = rpc ? snprintf(json, sizeof(json), "{\"sid\":\"%.*s\",\"instance\":\"%.*s\"}", (int)sizeof(c->name),
                               c->name, (int)c->site->instance.n, c->site->instance.p)
                    : snprintf(json, sizeof(json), "{\"sid\":\"%.*s\"}", (int)sizeof(c->name), c->name);
        int r = agx_sio_accept(c->sio, nsp, agx_view_of(json, (size_t)n), &c->text);

        return r ? r : send_text(c);
}

static int refuse(agx_sio_conn *c, agx_view nsp, const char *why)
{
        int r = agx_sio_refuse(c->sio, nsp, agx_view_str(why), &c->text);

        return r ? r : send_text(c);
}

static int join_rpc(agx_sio_conn *c, agx_view json, agx_rpc_link **replaced)
{
        introduction intro = {.session = AGX_BUF_NULL(AGX_MAX_SESSION)};
        int r = read_introduction(json, &intro);

        if (!r)
                r = agx_rpc_attach(c->rpc, &c->link, intro.named ? agx_buf_view(&intro.session) : AGX_VIEW_NULL,
                                   replaced);
        agx_buf_deinit(&intro.session);
        if (r > 0)
                return refuse(c, rpc_name, "a malformed session");
        return r ? r : put_welcome(c, rpc_name, true);
}

/* The welcome goes first: what waited for the join comes behind it. */
static int join_side(agx_sio_conn *c, const agx_sio_packet *packet)
{
        int r = agx_hub_join(&c->port, packet->nsp, packet->data);

        if (r == AGX_HUB_E_FULL)
                return refuse(c, packet->nsp, "the server has too many namespaces");
        return r ? r : put_welcome(c, packet->nsp, false);
}

static int join(agx_sio_conn *c, const agx_sio_packet *packet, agx_sio_conn_said *said)
{
        int r;

        c->join_by = UINT64_MAX;
        if (!agx_view_eq(packet->nsp, rpc_name))
                return join_side(c, packet);
        r = join_rpc(c, packet->data, &said->replaced);
        if (said->replaced) {
                said->kind = AGX_SIO_SAID_REPLACES;
                /* What waits for it is for the one that took over. */
                agx_hub_detach(&agx_container_of(said->replaced, agx_sio_conn, link)->port);
        }
        return r;
}

static int turn_away(agx_sio_conn *c, agx_view nsp)
{
        int r = agx_sio_put_connect_error(&c->text, nsp, AGX_VIEW("too many namespaces"));

        return r ? r : send_text(c);
}

/* ---- events ---- */

/* The one argument as msgpack: bytes as they are, JSON as what it says. What cannot be said so says nothing, and the road
 * answers accordingly. */
static int read_payload(agx_sio_conn *c, const agx_sio_packet *packet, agx_view *payload)
{
        agx_sio_args args = agx_sio_args_on(packet);
        agx_sio_arg arg;
        int r;

        *payload = AGX_VIEW("");
        if (!agx_sio_args_next(&args, &arg))
                return 0;
        if (arg.binary) {
                *payload = arg.v;
                return 0;
        }
        r = agx_sio_arg_pack(packet, arg.v, &c->packed);
        if (!r)
                *payload = agx_buf_view(&c->packed);
        return r < 0 ? r : 0;
}

static int show_event(agx_sio_conn *c, const agx_sio_packet *packet, agx_sio_conn_said *said)
{
        bool rpc = agx_view_eq(packet->nsp, rpc_name);
        int r;

        said->kind = rpc ? AGX_SIO_SAID_EVENT : c->port.hub ? AGX_SIO_SAID_SIDE : AGX_SIO_SAID_STRAY;
        said->nsp = packet->nsp;
        said->name = packet->name;
        if (said->kind == AGX_SIO_SAID_STRAY)
                return 0;
        r = read_payload(c, packet, &said->payload);
        if (!rpc && !said->payload.n)
                said->payload = AGX_VIEW("\xc0"); /* an event without an argument says nil */
        return r;
}

static int see_to(agx_sio_conn *c, const agx_sio_event *event, agx_sio_conn_said *said)
{
        switch (event->kind) {
        case AGX_SIO_JOIN:
                return join(c, &event->packet, said);
        case AGX_SIO_CROWDED:
                return turn_away(c, event->packet.nsp);
        case AGX_SIO_LEFT:
                if (agx_view_eq(event->packet.nsp, rpc_name))
                        agx_rpc_detach(&c->link);
                else
                        agx_hub_leave(&c->port, event->packet.nsp);
                return 0;
        case AGX_SIO_GOT:
                return show_event(c, &event->packet, said);
        default:
                return 0;
        }
}

void agx_sio_conn_read(agx_sio_conn *c, bool binary, agx_view message, agx_sio_conn_said *said)
{
        agx_sio_event event;
        int r;

        *said = (agx_sio_conn_said){.kind = AGX_SIO_SAID_NOTHING};
        agx_buf_clear(&c->packed);
        r = agx_sio_read(c->sio, binary, message, &event);
        if (r > 0)
                give_up(c, agx_sio_reason(c->sio));
        else
                survived(c, r ? r : see_to(c, &event, said));
}

/* Of a message that is not whole it is not known which call it is: so there is nobody to be told but the connection. */
void agx_sio_conn_gathers(agx_sio_conn *c, size_t n)
{
        n += agx_sio_gathered(c->sio);
        if (n < c->gathered) {
                agx_gather_give(c->site->gather, c->gathered - n);
                c->gathered = n;
        } else if (agx_gather_take(c->site->gather, n - c->gathered)) {
                c->gathered = n;
        } else if (!agx_eio_is_closed(c->eio)) {
                give_up(c, "too much comes to this server at once");
        }
}

void agx_sio_conn_taken(agx_sio_conn *c, int r)
{
        if (r == AGX_RPC_E_GONE)
                return; /* what a replaced link still says is passed over */
        if (survived(c, r) && c->link.rpc && agx_rpc_queued(&c->link) > AGX_SIO_ANSWERS_MAX)
                give_up(c, "more is asked for than taken");
}

bool agx_sio_conn_crowded(const agx_sio_conn *c)
{
        return c->link.rpc && agx_rpc_queued(&c->link) > AGX_SIO_ANSWERS_LOW;
}

/* ---- what the road has to say ---- */

/* Queues an event and its one argument. */
static int say_on(agx_sio_conn *c, agx_view nsp, const agx_rpc_saying *saying)
{
        size_t n_text;
        bool large = saying->body.n > SMALL;
        void *copy = NULL;
        agx_sio_arg arg = {.binary = true};
        int r = agx_sio_emit(c->sio, nsp, saying->name, &arg, 1, NULL, &c->text);

        if (r)
                return r;
        n_text = c->text.len;
        r = agx_buf_append_view(&c->text, saying->head);
        if (!r && !large)
                r = agx_buf_append_view(&c->text, saying->body);
        if (!r && large) {
                copy = malloc(saying->body.n);
                r = copy ? 0 : agx_trace(-ENOMEM);
                if (copy)
                        memcpy(copy, saying->body.p, saying->body.n);
        }
        if (!r) {
                agx_view all = agx_buf_view(&c->text);
                agx_eio_message messages[] = {
                        {.head = agx_view_first(all, n_text), .body = AGX_VIEW("")},
                        {.binary = true,
                         .head = agx_view_from(all, n_text),
                         .body = large ? agx_view_of(copy, saying->body.n) : AGX_VIEW(""),
                         .user = copy},
                };

                r = agx_eio_send(c->eio, messages, 2);
        }
        if (r)
                free(copy);
        agx_buf_clear(&c->text);
        return r;
}

static int say(agx_sio_conn *c, const agx_rpc_saying *saying)
{
        return say_on(c, rpc_name, saying);
}

/* The result does not fit into one message of this transport. */
static int say_too_large(agx_sio_conn *c, const agx_rpc_saying *saying)
{
        static const agx_view words = {"the result is too large for long-polling", 40};
        agx_buf argument = AGX_BUF_NULL(AGX_MAX_CALL_ID + 1024);
        agx_mp_writer w = agx_mp_writer_on(&argument);
        agx_mp_reader r = agx_mp_reader_on(saying->head);
        agx_rpc_event event = {.kind = AGX_RPC_ERROR,
                               .fault = {.type = agx_fault_type_text(AGX_FAULT_FRAME_TOO_LARGE), .message = words}};
        int result;

        agx_mp_next(&r); /* the map */
        agx_mp_next(&r); /* "call_id" */
        event.call_id = agx_mp_next(&r).v;
        agx_rpc_event_put(&w, &event, NULL, 0);
        result = agx_mp_writer_end(&w);
        if (!result)
                result = say(c, &(agx_rpc_saying){agx_rpc_kind_text(AGX_RPC_ERROR), agx_buf_view(&argument),
                                                  AGX_VIEW("")});
        agx_buf_deinit(&argument);
        return result;
}

static bool fits(const agx_sio_conn *c, const agx_rpc_saying *saying)
{
        size_t max = agx_eio_message_max(c->eio, true);

        return saying->body.n <= max && saying->head.n <= max - saying->body.n;
}

/* Results go first: of side channels little waits in eio at any time. */
static void fill_side(agx_sio_conn *c)
{
        agx_hub_saying saying;
        int r = 0;

        while (!r && c->port.hub && !agx_eio_is_closed(c->eio) && agx_eio_queued(c->eio) < AGX_HUB_OUT_LOW) {
                agx_rpc_saying event;

                if (agx_hub_next(&c->port, &saying))
                        return;
                event = (agx_rpc_saying){.name = saying.event, .head = AGX_VIEW(""), .body = saying.data};
                if (!fits(c, &event))
                        continue; /* of this transport: long-polling carries less */
                r = say_on(c, saying.nsp, &event);
                if (r == AGX_SIO_E_STATE)
                        r = 0; /* it has left meanwhile */
        }
        if (!agx_eio_is_closed(c->eio))
                survived(c, r);
}

static void fill_results(agx_sio_conn *c, uint64_t now)
{
        agx_rpc_saying saying;
        int r = 0;

        while (!r && c->link.rpc && !agx_eio_is_closed(c->eio) && agx_eio_queued(c->eio) < AGX_SIO_OUT_LOW) {
                r = agx_rpc_next(&c->link, now, &saying);
                if (!r)
                        r = fits(c, &saying) ? say(c, &saying) : say_too_large(c, &saying);
                else if (r == AGX_RPC_E_NONE)
                        return;
        }
        if (!agx_eio_is_closed(c->eio))
                survived(c, r);
}

void agx_sio_conn_fill(agx_sio_conn *c, uint64_t now)
{
        if (agx_eio_is_closed(c->eio))
                return; /* a WebSocket may still hold what is in it */
        agx_sio_conn_reap(c);
        fill_results(c, now);
        if (!agx_eio_is_closed(c->eio))
                fill_side(c);
}

/* ---- time ---- */

uint64_t agx_sio_conn_timer(const agx_sio_conn *c)
{
        uint64_t at = agx_eio_timer(c->eio);

        return at < c->join_by ? at : c->join_by;
}

agx_eio_kind agx_sio_conn_tick(agx_sio_conn *c, uint64_t now)
{
        agx_eio_event event;

        if (now >= c->join_by) {
                c->join_by = UINT64_MAX;
                give_up(c, "it joined no namespace");
                return AGX_EIO_CLOSED;
        }
        agx_eio_tick(c->eio, now, &event);
        return event.kind;
}
