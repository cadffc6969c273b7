/* A shell of agx_sio_conn: does what server/sio_uv.c does, over doors instead of streams. */
#include "box.h"

#include "proto/limits.h"

#include <stdlib.h>

static void pump(sim_flush *flush);

static uint64_t now_of(const sim_lobby *l)
{
        return sim_now(l->box->s);
}

static void touch(sim_lobby *l)
{
        if (!l->ended)
                sim_flush_later(l->box->s, &l->flush);
}

/* ---- sessions ---- */

static void set_deadline(sim_lobby *l)
{
        sim_timer_set(&l->box->s->clock, &l->deadline, agx_sio_conn_timer(&l->conn));
}

static void on_deadline(sim_timer *t)
{
        sim_lobby *l = agx_container_of(t, sim_lobby, deadline);

        if (agx_sio_conn_tick(&l->conn, now_of(l)) == AGX_EIO_PROBE_ENDED && l->socket)
                sim_door_close(l->socket);
        touch(l);
        set_deadline(l);
}

static sim_lobby *find(sim_box *box, agx_view sid)
{
        agx_map_node *node = agx_map_find(&box->lobbies, sid);

        return node ? agx_container_of(node, sim_lobby, by_sid) : NULL;
}

static int make(sim_box *box, agx_eio_transport transport, sim_lobby **lobby)
{
        uint8_t random[AGX_SIO_CONN_RANDOM];
        sim_lobby *l;

        if (box->lobbies.count >= AGX_SIO_SESSIONS_MAX)
                return 503;
        sim_fill(&box->s->clock, random, sizeof(random));
        l = sim_alloc(sizeof(*l));
        l->box = box;
        if (agx_sio_conn_init(&l->conn, &box->site, &box->rpc, random, transport, now_of(l)))
                abort();
        l->by_sid.key = agx_eio_sid(l->conn.eio);
        if (agx_map_insert(&box->lobbies, &l->by_sid))
                abort();
        sim_flush_init(&l->flush, pump);
        l->deadline.fire = on_deadline;
        set_deadline(l);
        *lobby = l;
        return 0;
}

/* ---- the end ---- */

static void answer(sim_door *d, agx_view body)
{
        bool done = false;
        int r = agx_conn_reply_payload(&d->conn, sim_now(d->box->s), body.n);

        if (!r)
                r = sim_door_send(d, body, &done);
        if (r)
                sim_door_close(d);
}

static void end_poller(sim_lobby *l)
{
        sim_door *d = l->poller;

        if (!d)
                return;
        l->poller = NULL;
        d->lobby = NULL;
        if (!l->conn.broken)
                answer(d, AGX_VIEW("1"));
        else if (agx_conn_reply_refusal(&d->conn, now_of(l), 400, agx_eio_reason(l->conn.eio)))
                sim_door_close(d);
        sim_door_pump(d);
}

static void finish_socket(sim_door *d)
{
        int r;

        do
                r = agx_ws_pull(d->ws, NULL, &d->out);
        while (!r);
        if (r == AGX_WS_IDLE)
                sim_door_finish(d);
        else
                sim_door_close(d);
}

static void end_socket(sim_lobby *l)
{
        sim_door *d = l->socket;

        if (!d)
                return;
        l->socket = NULL;
        d->lobby = NULL;
        agx_ws_close(d->ws, l->conn.broken ? AGX_WS_POLICY : AGX_WS_NORMAL, agx_view_str(agx_eio_reason(l->conn.eio)));
        finish_socket(d);
}

static void on_gone(sim_flush *f)
{
        free(agx_container_of(f, sim_lobby, flush));
}

static void end(sim_lobby *l)
{
        if (l->ended)
                return;
        l->ended = true;
        sim_flush_cancel(&l->flush);
        agx_map_remove(&l->box->lobbies, &l->by_sid);
        end_poller(l);
        end_socket(l);
        agx_sio_conn_deinit(&l->conn);
        sim_timer_stop(&l->box->s->clock, &l->deadline);
        l->flush.run = on_gone;
        sim_flush_later(l->box->s, &l->flush);
}

/* ---- out ---- */

static void pump_poller(sim_lobby *l)
{
        agx_buf body = AGX_BUF_NULL((size_t)AGX_MAX_MESSAGE + AGX_HTTP_OUT);
        sim_door *d = l->poller;

        if (!d || !agx_eio_payload_due(l->conn.eio))
                return;
        if (agx_eio_payload_write(l->conn.eio, &body)) {
                agx_eio_lost(l->conn.eio, "the server is out of memory");
                return;
        }
        if (!l->socket)
                agx_sio_conn_reap(&l->conn);
        l->poller = NULL;
        d->lobby = NULL;
        answer(d, agx_buf_view(&body));
        agx_buf_deinit(&body);
        sim_door_pump(d);
}

static bool pump_frame(sim_lobby *l, sim_door *d)
{
        agx_eio_frame frame;
        int r = agx_ws_pull(d->ws, NULL, &d->out);

        if (d->framed && !agx_ws_sending(d->ws)) {
                d->framed = false;
                agx_eio_ws_sent(l->conn.eio);
        }
        if (r == AGX_WS_IDLE) {
                agx_sio_conn_fill(&l->conn, now_of(l));
                if (!agx_eio_ws_next(l->conn.eio, &frame) || agx_ws_send(d->ws, !frame.binary, frame.head, frame.body))
                        return false;
                d->framed = true;
                return true;
        }
        if (r)
                agx_eio_lost(l->conn.eio, "the server is out of memory");
        return !r;
}

static void pump_socket(sim_lobby *l)
{
        sim_door *d = l->socket;

        if (!d)
                return;
        while (sim_door_queued(d) < AGX_SIO_OUT_LOW && pump_frame(l, d))
                ;
        sim_door_touch(d);
        sim_door_read(d, !agx_sio_conn_crowded(&l->conn));
}

static void pump(sim_flush *flush)
{
        sim_lobby *l = agx_container_of(flush, sim_lobby, flush);

        if (!agx_eio_is_closed(l->conn.eio)) {
                agx_sio_conn_fill(&l->conn, now_of(l));
                pump_poller(l);
                pump_socket(l);
        }
        sim_box_touched(l->box); /* what was said may have made another result go */
        if (agx_eio_is_closed(l->conn.eio))
                end(l);
        else
                set_deadline(l);
}

void sim_lobby_speak(agx_rpc_link *link)
{
        touch(agx_container_of(link, sim_lobby, conn.link));
}

/* ---- in ---- */

static void on_message(sim_lobby *l, const agx_eio_event *message)
{
        agx_sio_conn_said said;

        agx_sio_conn_read(&l->conn, message->binary, message->data, &said);
        if (said.kind == AGX_SIO_SAID_EVENT) {
                agx_sio_conn_taken(&l->conn, sim_box_event(l->box, &l->conn.link, said.name, said.payload));
        } else if (said.kind == AGX_SIO_SAID_REPLACES) {
                sim_lobby *other = agx_container_of(said.replaced, sim_lobby, conn.link);

                agx_eio_lost(other->conn.eio, "another connection of its session took over");
                touch(other);
        }
}

static int refuse(sim_door *d, unsigned status, const char *words)
{
        return agx_conn_reply_refusal(&d->conn, sim_now(d->box->s), status, words);
}

static int on_get(sim_door *d, sim_lobby *l)
{
        int r = agx_eio_poll(l->conn.eio);

        touch(l);
        if (r)
                return refuse(d, 400, r == AGX_EIO_E_BAD ? "two polls at once" : "no poll now");
        l->poller = d;
        d->lobby = l;
        return 0;
}

static int on_post(sim_door *d, sim_lobby *l)
{
        agx_view in = d->conn.sio.body;
        agx_eio_event event;
        int r = 0;

        while (in.p && !r) {
                r = agx_eio_payload_read(l->conn.eio, &in, now_of(l), &event);
                if (!r && event.kind == AGX_EIO_GOT)
                        on_message(l, &event);
        }
        if (r == AGX_EIO_E_BAD)
                l->conn.broken = true;
        touch(l);
        if (r == AGX_EIO_E_TRANSPORT)
                return refuse(d, 400, "the session has moved to a WebSocket");
        if (r < 0)
                return r;
        if (l->conn.broken)
                return refuse(d, 400, agx_eio_reason(l->conn.eio));
        answer(d, AGX_VIEW("ok"));
        return 0;
}

static int on_upgrade(sim_door *d, sim_lobby *l)
{
        static const agx_ws_bounds bounds = {.message_max = AGX_MAX_MESSAGE,
                                             .fragments_max = AGX_SIO_FRAGMENTS_MAX,
                                             .frame_out = AGX_SIO_FRAME_OUT};
        int r;

        touch(l);
        if (agx_eio_ws_opened(l->conn.eio, now_of(l)))
                return refuse(d, 400, "no WebSocket now");
        l->socket = d;
        d->lobby = l;
        r = agx_ws_new(&d->ws, AGX_WS_SERVER, &bounds);
        if (!r)
                r = agx_conn_reply_upgrade(&d->conn);
        set_deadline(l);
        return r;
}

int sim_lobby_request(sim_door *d)
{
        const agx_conn_sio *request = &d->conn.sio;
        sim_lobby *l = request->sid.p ? find(d->box, request->sid) : NULL;
        int r = 0;

        if (request->websocket && d->box->s->plan.no_websocket) /* as a proxy may do */
                return refuse(d, 400, "no WebSocket here");
        if (request->sid.p && (!l || agx_eio_is_closed(l->conn.eio)))
                return refuse(d, 400, "no such session");
        if (!l)
                r = make(d->box, request->websocket ? AGX_EIO_WEBSOCKET : AGX_EIO_POLLING, &l);
        if (r)
                return refuse(d, 503, "too many sessions");
        if (request->websocket)
                return on_upgrade(d, l);
        return request->post ? on_post(d, l) : on_get(d, l);
}

static bool on_ws_message(sim_door *d, const agx_ws_event *message)
{
        sim_lobby *l = d->lobby;
        agx_eio_event event;
        int r = agx_eio_ws_read(l->conn.eio, message->kind == AGX_WS_BINARY, message->data, now_of(l), &event);

        if (!r && event.kind == AGX_EIO_GOT)
                on_message(l, &event);
        if (r == AGX_EIO_E_BAD)
                l->conn.broken = true;
        if (r < 0)
                agx_eio_lost(l->conn.eio, "the server is out of memory");
        if (r == AGX_EIO_E_PROBE)
                agx_ws_close(d->ws, AGX_WS_POLICY, AGX_VIEW("not an upgrade"));
        return !r && !agx_eio_is_closed(l->conn.eio);
}

void sim_lobby_feed(sim_door *d, agx_view in)
{
        sim_lobby *l = d->lobby;
        agx_ws_event event;
        bool more = l != NULL;
        int r = 0;

        while (more && !r && d->lobby) {
                r = agx_ws_next(d->ws, &in, &event);
                if (r || event.kind == AGX_WS_MORE)
                        break;
                if (event.kind == AGX_WS_TEXT || event.kind == AGX_WS_BINARY)
                        more = on_ws_message(d, &event);
                if (event.kind == AGX_WS_CLOSE)
                        more = false;
        }
        if (!d->lobby)
                return;
        if (r || (!more && !agx_eio_is_closed(l->conn.eio))) {
                sim_lobby_lost(d);
                finish_socket(d);
        }
        touch(l);
}

void sim_lobby_drained(sim_door *d)
{
        if (d->lobby)
                touch(d->lobby);
}

void sim_lobby_lost(sim_door *d)
{
        sim_lobby *l = d->lobby;

        if (!l)
                return;
        d->lobby = NULL;
        if (l->poller == d) {
                l->poller = NULL;
                agx_eio_poll_lost(l->conn.eio);
        }
        if (l->socket == d) {
                l->socket = NULL;
                agx_eio_ws_lost(l->conn.eio);
        }
        touch(l);
}

/* ---- all of them ---- */

void sim_lobby_drain(sim_box *box)
{
        agx_list_foreach_safe(node, &box->doors)
        {
                sim_door *d = agx_container_of(node, sim_door, node);

                if (d->lobby) {
                        agx_eio_close(d->lobby->conn.eio);
                        touch(d->lobby);
                }
        }
}

void sim_lobby_close_all(sim_box *box)
{
        agx_map_node *node;

        while ((node = agx_map_any(&box->lobbies)))
                end(agx_container_of(node, sim_lobby, by_sid));
        agx_map_deinit(&box->lobbies);
}
