/*
 * The session's life, its queue and its clock. What comes in is in eio_read.c, what goes out in eio_write.c.
 *
 * Messages wait in one list, packets of the protocol's own as bits: there is at most one of each kind, so no peer can make
 * them pile up. An item that is through moves to a second list, from which the shell takes its `user`.
 */
#include "base/err.h"
#include "wire/eio_state.h"

static void free_list(agx_list *head)
{
        agx_list *next;

        for (agx_list *node = head->next; node != head; node = next) {
                next = node->next;
                free(agx_container_of(node, agx_eio_item, node));
        }
        agx_list_init(head);
}

bool agx_eio_sid_is_good(agx_view sid)
{
        for (size_t i = 0; i < sid.n; ++i) {
                char c = sid.p[i];
                bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');

                if (!letter && (!c || !strchr("-_.~", c)))
                        return false;
        }
        return sid.n && sid.n <= AGX_EIO_SID_MAX;
}

static agx_eio *alloc(agx_eio_role role, const agx_eio_bounds *bounds, agx_eio_transport transport)
{
        agx_eio *e = calloc(1, sizeof(*e));

        if (!e)
                return NULL;
        e->role = role;
        e->bounds = *bounds;
        e->transport = transport;
        e->interval_ms = bounds->interval_ms;
        e->timeout_ms = bounds->timeout_ms;
        e->peer_max = SIZE_MAX;
        e->ping_at = e->deadline = e->upgrade_at = UINT64_MAX;
        e->decoded = AGX_BUF_NULL(bounds->message_max + 4); /* of base64, rounded up */
        agx_list_init(&e->out);
        agx_list_init(&e->done);
        return e;
}

int agx_eio_new(agx_eio **eio, agx_eio_role role, const agx_eio_bounds *bounds, agx_view sid,
                agx_eio_transport transport, uint64_t now_ms)
{
        _cleanup_(agx_eio_freep) agx_eio *e = NULL;
        int r;

        if (!bounds->payload_packets || (role == AGX_EIO_SERVER) != agx_eio_sid_is_good(sid))
                return agx_trace(-EINVAL);
        e = alloc(role, bounds, transport);
        if (!e)
                return agx_trace(-ENOMEM);
        if (role == AGX_EIO_SERVER) {
                memcpy(e->sid, sid.p, sid.n);
                e->n_sid = sid.n;
                r = agx_eio_open_write(e);
                if (r)
                        return r < 0 ? r : agx_trace(-EINVAL);
                e->state = AGX_EIO_STATE_OPEN;
                e->notes = AGX_EIO_NOTE_OPEN;
                e->ping_at = now_ms + e->interval_ms;
        }
        *eio = e;
        e = NULL;
        return 0;
}

void agx_eio_free(agx_eio *eio)
{
        if (!eio)
                return;
        free_list(&eio->out);
        free_list(&eio->done);
        agx_buf_deinit(&eio->hello);
        agx_buf_deinit(&eio->decoded);
        free(eio);
}

agx_view agx_eio_sid(const agx_eio *eio)
{
        return agx_view_of(eio->sid, eio->n_sid);
}

agx_eio_transport agx_eio_over(const agx_eio *eio)
{
        return eio->transport;
}

bool agx_eio_is_closed(const agx_eio *eio)
{
        return eio->state == AGX_EIO_STATE_CLOSED;
}

const char *agx_eio_reason(const agx_eio *eio)
{
        return eio->why ? eio->why : "not closed";
}

/* ---- the end ---- */

void agx_eio_item_done(agx_eio *e, agx_eio_item *item)
{
        agx_list_unlink(&item->node);
        e->out_bytes -= item->n_head + item->body.n;
        --e->out_packets;
        if (item->user || e->state == AGX_EIO_STATE_CLOSED)
                agx_list_push_back(&e->done, &item->node);
        else
                free(item);
}

void agx_eio_end(agx_eio *e, const char *why)
{
        agx_eio_item *item;

        if (e->state == AGX_EIO_STATE_CLOSED)
                return;
        e->state = AGX_EIO_STATE_CLOSED;
        e->why = why;
        e->notes = 0;
        e->showing = false;
        e->ping_at = e->deadline = e->upgrade_at = UINT64_MAX;
        while ((item = agx_eio_first_item(e)))
                agx_eio_item_done(e, item);
}

void agx_eio_lost(agx_eio *eio, const char *why)
{
        agx_eio_end(eio, why);
}

void agx_eio_close(agx_eio *eio)
{
        if (eio->state == AGX_EIO_STATE_OPENING)
                agx_eio_end(eio, "closed before it was open");
        if (eio->state != AGX_EIO_STATE_OPEN)
                return;
        eio->state = AGX_EIO_STATE_CLOSING;
        eio->notes |= AGX_EIO_NOTE_CLOSE;
}

void agx_eio_end_probe(agx_eio *e)
{
        e->probe = AGX_EIO_PROBE_NONE;
        e->ws = false;
        e->showing = false;
        e->notes &= ~(unsigned)(AGX_EIO_NOTE_ASK | AGX_EIO_NOTE_ANSWER | AGX_EIO_NOTE_UPGRADE);
        e->upgrade_at = UINT64_MAX;
}

/* ---- the queue ---- */

size_t agx_eio_message_max(const agx_eio *eio, bool binary)
{
        size_t max = eio->peer_max < eio->bounds.message_max ? eio->peer_max : eio->bounds.message_max;

        if (binary && eio->transport == AGX_EIO_WEBSOCKET)
                return max;
        return binary ? (max - 1) / 4 * 3 : max - 1;
}

static bool has_room(const agx_eio *e, size_t bytes, size_t packets)
{
        if (!e->out_packets)
                return true;
        return packets <= e->bounds.queue_packets && e->out_packets <= e->bounds.queue_packets - packets &&
               bytes <= e->bounds.queue_max && e->out_bytes <= e->bounds.queue_max - bytes;
}

/* Whether the messages may be queued, each by its own size and all of them together. */
static int check(const agx_eio *e, const agx_eio_message *messages, size_t n)
{
        size_t total = 0;

        if (e->state != AGX_EIO_STATE_OPEN)
                return AGX_EIO_E_CLOSED;
        for (size_t i = 0; i < n; ++i) {
                const agx_eio_message *m = &messages[i];
                size_t max = agx_eio_message_max(e, m->binary);

                if (m->head.n > max || m->body.n > max - m->head.n)
                        return AGX_EIO_E_TOO_LARGE;
                total += m->head.n + m->body.n + !m->binary;
        }
        return has_room(e, total, n) ? 0 : AGX_EIO_E_FULL;
}

static agx_eio_item *new_item(const agx_eio_message *m)
{
        size_t n = m->head.n + !m->binary;
        agx_eio_item *item = malloc(sizeof(*item) + n);

        if (!item)
                return NULL;
        *item = (agx_eio_item){.binary = m->binary, .user = m->user, .body = m->body, .n_head = n};
        if (!m->binary)
                item->head[0] = '4';
        if (m->head.n)
                memcpy(item->head + !m->binary, m->head.p, m->head.n);
        return item;
}

static void queue(agx_eio *e, agx_eio_item *item)
{
        agx_list_unlink(&item->node);
        agx_list_push_back(&e->out, &item->node);
        e->out_bytes += item->n_head + item->body.n;
        ++e->out_packets;
}

int agx_eio_send(agx_eio *eio, const agx_eio_message *messages, size_t n)
{
        int r = check(eio, messages, n);
        agx_list fresh;

        agx_list_init(&fresh);
        for (size_t i = 0; i < n && !r; ++i) {
                agx_eio_item *item = new_item(&messages[i]);

                if (item)
                        agx_list_push_back(&fresh, &item->node);
                else
                        r = agx_trace(-ENOMEM);
        }
        if (r) {
                free_list(&fresh);
                return r;
        }
        agx_list_foreach_safe(node, &fresh)
        {
                queue(eio, agx_container_of(node, agx_eio_item, node));
        }
        return 0;
}

void *agx_eio_next_done(agx_eio *eio)
{
        agx_list_foreach_safe(node, &eio->done)
        {
                agx_eio_item *item = agx_container_of(node, agx_eio_item, node);
                void *user = item->user;

                agx_list_unlink(node);
                free(item);
                if (user)
                        return user;
        }
        return NULL;
}

size_t agx_eio_queued(const agx_eio *eio)
{
        return eio->out_bytes;
}

/* ---- time ---- */

uint64_t agx_eio_timer(const agx_eio *eio)
{
        uint64_t at = eio->deadline < eio->upgrade_at ? eio->deadline : eio->upgrade_at;

        return eio->pinged || at < eio->ping_at ? at : eio->ping_at;
}

static void ping(agx_eio *e, uint64_t now_ms)
{
        e->notes |= AGX_EIO_NOTE_PING;
        e->pinged = true;
        e->deadline = now_ms + e->timeout_ms;
}

void agx_eio_tick(agx_eio *eio, uint64_t now_ms, agx_eio_event *event)
{
        *event = (agx_eio_event){.kind = AGX_EIO_NOTHING};
        if (now_ms >= eio->deadline) {
                agx_eio_end(eio, "the peer gave no sign of life");
                event->kind = AGX_EIO_CLOSED;
                return;
        }
        if (now_ms >= eio->upgrade_at) {
                agx_eio_end_probe(eio);
                event->kind = AGX_EIO_PROBE_ENDED;
        }
        if (now_ms >= eio->ping_at && !eio->pinged)
                ping(eio, now_ms);
}
