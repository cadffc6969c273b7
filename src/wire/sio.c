/*
 * The namespaces of a connection, in a map by name. One that was asked for counts from then on, so that a peer cannot ask
 * for more than there may be. The ids of awaited answers are a short array: in this wire they are rare.
 */
#include "wire/sio.h"
#include "base/err.h"
#include "base/list.h"

typedef struct space {
        agx_map_node node;
        bool joined;
        uint64_t next_id;
        uint64_t *awaited;
        size_t n_awaited;
        char name[];
} space;

struct agx_sio {
        agx_sio_role role;
        agx_sio_bounds bounds;
        agx_sio_reader reader;
        agx_map spaces;
};

typedef int (*packet_fn)(agx_sio *sio, space *s, agx_sio_event *event);

/* ---- namespaces ---- */

static space *find(const agx_sio *sio, agx_view nsp)
{
        agx_map_node *node = agx_map_find(&sio->spaces, nsp);

        return node ? agx_container_of(node, space, node) : NULL;
}

static void space_free(space *s)
{
        free(s->awaited);
        free(s);
}

static void drop(agx_sio *sio, space *s)
{
        agx_map_remove(&sio->spaces, &s->node);
        space_free(s);
}

/* 0, AGX_SIO_E_FULL or -ENOMEM. */
static int add(agx_sio *sio, agx_view nsp)
{
        space *s;
        int r;

        if (sio->spaces.count == sio->bounds.namespaces_max)
                return AGX_SIO_E_FULL;
        s = calloc(1, sizeof(*s) + nsp.n);
        if (!s)
                return agx_trace(-ENOMEM);
        memcpy(s->name, nsp.p, nsp.n);
        s->node.key = agx_view_of(s->name, nsp.n);
        r = agx_map_insert(&sio->spaces, &s->node);
        if (r)
                space_free(s);
        return r;
}

int agx_sio_new(agx_sio **sio, agx_sio_role role, const agx_sio_bounds *bounds, const uint8_t seed[16])
{
        agx_sio *s = calloc(1, sizeof(*s));

        if (!s)
                return agx_trace(-ENOMEM);
        s->role = role;
        s->bounds = *bounds;
        agx_sio_reader_init(&s->reader, bounds);
        agx_map_init(&s->spaces, seed);
        *sio = s;
        return 0;
}

void agx_sio_free(agx_sio *sio)
{
        agx_map_node *node;

        if (!sio)
                return;
        while ((node = agx_map_any(&sio->spaces)))
                drop(sio, agx_container_of(node, space, node));
        agx_map_deinit(&sio->spaces);
        agx_sio_reader_deinit(&sio->reader);
        free(sio);
}

bool agx_sio_joined(const agx_sio *sio, agx_view nsp)
{
        const space *s = find(sio, nsp);

        return s && s->joined;
}

size_t agx_sio_namespaces(const agx_sio *sio)
{
        return sio->spaces.count;
}

size_t agx_sio_gathered(const agx_sio *sio)
{
        return sio->reader.came < sio->reader.announced ? sio->reader.bytes.len : 0;
}

const char *agx_sio_reason(const agx_sio *sio)
{
        return sio->reader.error ? sio->reader.error : "no error";
}

/* ---- reading ---- */

static int bad(agx_sio *sio, const char *what)
{
        sio->reader.error = what;
        return AGX_SIO_E_BAD;
}

static int on_join(agx_sio *sio, space *s, agx_sio_event *event)
{
        int r;

        if (s)
                return bad(sio, "a namespace asked for twice");
        r = add(sio, event->packet.nsp);
        if (r < 0) {
                sio->reader.error = "out of memory";
                return r;
        }
        event->kind = r ? AGX_SIO_CROWDED : AGX_SIO_JOIN;
        return 0;
}

static int on_connected(agx_sio *sio, space *s, agx_sio_event *event)
{
        if (!event->packet.data.p)
                return bad(sio, "a namespace joined without a name for us");
        if (s && s->joined)
                return bad(sio, "a namespace joined twice");
        if (!s)
                return 0;
        s->joined = true;
        event->kind = AGX_SIO_CONNECTED;
        return 0;
}

static int on_refused(agx_sio *sio, space *s, agx_sio_event *event)
{
        if (!s || s->joined)
                return 0;
        drop(sio, s);
        event->kind = AGX_SIO_REFUSED;
        return 0;
}

static int on_left(agx_sio *sio, space *s, agx_sio_event *event)
{
        if (!s)
                return 0;
        drop(sio, s);
        event->kind = AGX_SIO_LEFT;
        return 0;
}

static int on_event(agx_sio *sio, space *s, agx_sio_event *event)
{
        (void)sio;
        if (s && s->joined)
                event->kind = AGX_SIO_GOT;
        return 0;
}

static int on_answer(agx_sio *sio, space *s, agx_sio_event *event)
{
        (void)sio;
        for (size_t i = 0; s && i < s->n_awaited; ++i)
                if (s->awaited[i] == event->packet.id) {
                        s->awaited[i] = s->awaited[--s->n_awaited];
                        event->kind = AGX_SIO_ANSWERED;
                        return 0;
                }
        return 0;
}

static const packet_fn handlers[2][AGX_SIO_CONNECT_ERROR + 1] = {
        [AGX_SIO_SERVER] =
                {
                        [AGX_SIO_CONNECT] = on_join,
                        [AGX_SIO_DISCONNECT] = on_left,
                        [AGX_SIO_EVENT] = on_event,
                        [AGX_SIO_ACK] = on_answer,
                },
        [AGX_SIO_CLIENT] =
                {
                        [AGX_SIO_CONNECT] = on_connected,
                        [AGX_SIO_DISCONNECT] = on_left,
                        [AGX_SIO_EVENT] = on_event,
                        [AGX_SIO_ACK] = on_answer,
                        [AGX_SIO_CONNECT_ERROR] = on_refused,
                },
};

int agx_sio_read(agx_sio *sio, bool binary, agx_view message, agx_sio_event *event)
{
        packet_fn handle;
        int r;

        *event = (agx_sio_event){.kind = AGX_SIO_NOTHING};
        r = agx_sio_packet_read(&sio->reader, binary, message, &event->packet);
        if (r == AGX_SIO_MORE)
                return 0;
        if (r)
                return r;
        handle = handlers[sio->role][event->packet.type];
        return handle ? handle(sio, find(sio, event->packet.nsp), event) : bad(sio, "a packet that only servers send");
}

/* ---- writing ---- */

int agx_sio_connect(agx_sio *sio, agx_view nsp, agx_view json, agx_buf *out)
{
        size_t before = out->len;
        int r;

        if (sio->role != AGX_SIO_CLIENT || find(sio, nsp))
                return AGX_SIO_E_STATE;
        r = agx_sio_put_connect(out, nsp, json);
        r = r ? r : add(sio, nsp);
        if (r)
                agx_buf_truncate(out, before);
        return r;
}

int agx_sio_accept(agx_sio *sio, agx_view nsp, agx_view json, agx_buf *out)
{
        space *s = find(sio, nsp);
        int r;

        if (sio->role != AGX_SIO_SERVER || !s || s->joined)
                return AGX_SIO_E_STATE;
        r = agx_sio_put_connect(out, nsp, json);
        s->joined = !r;
        return r;
}

int agx_sio_refuse(agx_sio *sio, agx_view nsp, agx_view message, agx_buf *out)
{
        space *s = find(sio, nsp);
        int r;

        if (sio->role != AGX_SIO_SERVER || !s || s->joined)
                return AGX_SIO_E_STATE;
        r = agx_sio_put_connect_error(out, nsp, message);
        if (!r)
                drop(sio, s);
        return r;
}

int agx_sio_leave(agx_sio *sio, agx_view nsp, agx_buf *out)
{
        space *s = find(sio, nsp);
        int r;

        if (!s)
                return AGX_SIO_E_STATE;
        r = agx_sio_put_disconnect(out, nsp);
        if (!r)
                drop(sio, s);
        return r;
}

/* Makes room for one more awaited answer. */
static int reserve_answer(agx_sio *sio, space *s)
{
        uint64_t *more;

        if (s->n_awaited == sio->bounds.acks_max)
                return AGX_SIO_E_FULL;
        more = realloc(s->awaited, (s->n_awaited + 1) * sizeof(*more));
        if (!more)
                return agx_trace(-ENOMEM);
        s->awaited = more;
        return 0;
}

int agx_sio_emit(agx_sio *sio, agx_view nsp, agx_view name, const agx_sio_arg *args, size_t n, uint64_t *id,
                 agx_buf *out)
{
        space *s = find(sio, nsp);
        int r;

        if (!s || !s->joined)
                return AGX_SIO_E_STATE;
        r = id ? reserve_answer(sio, s) : 0;
        r = r ? r : agx_sio_put_event(out, nsp, id ? &s->next_id : NULL, name, args, n);
        if (!r && id)
                *id = s->awaited[s->n_awaited++] = s->next_id++;
        return r;
}

int agx_sio_answer(agx_sio *sio, agx_view nsp, uint64_t id, const agx_sio_arg *args, size_t n, agx_buf *out)
{
        return agx_sio_joined(sio, nsp) ? agx_sio_put_ack(out, nsp, id, args, n) : AGX_SIO_E_STATE;
}
