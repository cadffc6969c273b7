/*
 * Reading packets. The head is taken apart left to right, then one walk over the JSON checks it, finds the placeholders
 * and counts them. Only a text that is right and announces attachments is copied, and the views of its packet with it; of
 * the attachments all but the last are copied, one behind the other, the last is shown where it lies.
 */
#include "base/err.h"
#include "wire/sio_packet.h"

static const uint64_t id_max = (1ULL << 53) - 1; /* what every peer can count to */

static int bad(agx_sio_reader *r, const char *what)
{
        r->error = what;
        return AGX_SIO_E_BAD;
}

/* ---- placeholders ---- */

typedef enum key { KEY_OTHER, KEY_MARK, KEY_NUM } key;

/* What is known of an object that is open. */
typedef struct level {
        key key; /* whose value comes next */
        bool mark;
        bool has_num;
        uint64_t num;
} level;

typedef struct scan {
        size_t announced;
        uint64_t seen; /* a bit for each placeholder */
        size_t count;
        bool wrong;   /* a placeholder without a number of its own in range */
        bool is_one;  /* the value itself is a placeholder, */
        uint64_t num; /* of this number */
        level levels[AGX_JSON_DEPTH_MAX + 1];
} scan;

static key key_of(const agx_json_token *t)
{
        if (agx_json_is(t, AGX_VIEW("_placeholder")))
                return KEY_MARK;
        return agx_json_is(t, AGX_VIEW("num")) ? KEY_NUM : KEY_OTHER;
}

static void note_value(level *l, const agx_json_token *t)
{
        if (l->key == KEY_MARK)
                l->mark = t->kind == AGX_JSON_BOOL && t->b;
        if (l->key == KEY_NUM)
                l->has_num = agx_json_u64(t, AGX_SIO_ATTACHMENTS_MAX - 1, &l->num);
        l->key = KEY_OTHER;
}

static void end_object(scan *s, const level *l, bool outermost)
{
        s->is_one = outermost && l->mark;
        if (!l->mark)
                return;
        if (!l->has_num || l->num >= s->announced || s->seen >> l->num & 1) {
                s->wrong = true;
                return;
        }
        s->seen |= 1ULL << l->num;
        s->num = l->num;
        ++s->count;
}

/* Walks one value. */
static void scan_value(agx_json_reader *json, scan *s)
{
        unsigned base = json->depth;

        s->is_one = false;
        do {
                unsigned before = json->depth;
                agx_json_token t = agx_json_next(json);

                if (json->error || t.kind == AGX_JSON_END)
                        return;
                if (t.kind == AGX_JSON_KEY)
                        s->levels[before].key = key_of(&t);
                else if (t.kind == AGX_JSON_OBJECT_END)
                        end_object(s, &s->levels[before], json->depth == base);
                else if (t.kind != AGX_JSON_ARRAY_END)
                        note_value(&s->levels[before], &t);
                if (json->depth > before)
                        s->levels[json->depth] = (level){0};
        } while (json->depth > base);
}

/* ---- heads ---- */

static bool is_digit(agx_view v)
{
        return v.n && v.p[0] >= '0' && v.p[0] <= '9';
}

/* Splits a decimal off the front; false if it is above `max` or begins with a zero that says nothing. */
static bool take_number(agx_view *text, uint64_t max, uint64_t *number)
{
        agx_view digits = agx_view_first(*text, 0);

        while (is_digit(*text)) {
                ++digits.n;
                *text = agx_view_from(*text, 1);
        }
        return (digits.n == 1 || (digits.n && digits.p[0] != '0')) && agx_view_u64(digits, max, number);
}

static bool take_attachments(agx_sio_reader *r, agx_view *text)
{
        uint64_t n;

        if (!take_number(text, r->bounds.attachments_max, &n) || !n || !agx_view_starts(*text, AGX_VIEW("-")))
                return false;
        *text = agx_view_from(*text, 1);
        r->announced = (size_t)n;
        return true;
}

bool agx_sio_namespace_is_good(agx_view nsp)
{
        for (size_t i = 0; i < nsp.n; ++i)
                if ((unsigned char)nsp.p[i] < ' ' || nsp.p[i] == 0x7f || nsp.p[i] == ',')
                        return false;
        return nsp.n && nsp.p[0] == '/';
}

static bool take_namespace(agx_sio_reader *r, agx_view *text)
{
        agx_view rest = *text, nsp;

        r->packet.nsp = AGX_VIEW("/");
        if (!agx_view_starts(*text, AGX_VIEW("/")))
                return true;
        agx_view_split(&rest, ',', &nsp);
        if (nsp.n > 1)
                r->packet.nsp = nsp;
        *text = rest.p ? rest : AGX_VIEW("");
        return nsp.n <= r->bounds.namespace_max && agx_sio_namespace_is_good(nsp);
}

/* ---- what each type carries ---- */

static bool is_reserved(const agx_json_token *name)
{
        static const agx_view names[] = {
                {"connect", 7},        {"connect_error", 13}, {"disconnect", 10},
                {"disconnecting", 13}, {"newListener", 11},   {"removeListener", 14},
        };

        for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); ++i)
                if (agx_json_is(name, names[i]))
                        return true;
        return false;
}

static int read_name(agx_sio_reader *r, agx_json_reader *json)
{
        agx_json_token t = agx_json_next(json);
        int error;

        if (t.kind != AGX_JSON_STRING || is_reserved(&t))
                return bad(r, "an event without a name of its own");
        r->packet.name = t.v;
        if (t.escaped) {
                error = agx_json_text(&t, &r->name);
                if (error)
                        return error < 0 ? error : bad(r, "an event's name above the limit");
                r->packet.name = agx_buf_view(&r->name);
        }
        return r->packet.name.n <= r->bounds.event_max ? 0 : bad(r, "an event's name above the limit");
}

/* The array of an event or answer: for an event its name, then arguments with the announced placeholders. */
static int read_array(agx_sio_reader *r, agx_view text)
{
        agx_json_reader json = agx_json_reader_on(text, r->bounds.depth_max);
        scan s = {.announced = r->announced};
        int error;

        if (agx_json_next(&json).kind != AGX_JSON_ARRAY)
                return bad(r, "not an array of arguments");
        error = r->packet.type == AGX_SIO_EVENT ? read_name(r, &json) : 0;
        if (error)
                return error;
        while (json.depth && !json.error)
                scan_value(&json, &s);
        if (json.error || !agx_json_done(&json))
                return bad(r, json.error);
        if (r->announced && (s.wrong || s.count != r->announced))
                return bad(r, "placeholders that do not match the attachments");
        return 0;
}

/* CONNECT: an object or nothing; CONNECT_ERROR: anything or nothing; DISCONNECT: nothing. */
static int read_value(agx_sio_reader *r, agx_view text)
{
        agx_json_reader json = agx_json_reader_on(text, r->bounds.depth_max);

        if (!text.n) {
                r->packet.data = AGX_VIEW_NULL;
                return 0;
        }
        if (r->packet.type == AGX_SIO_DISCONNECT || (r->packet.type == AGX_SIO_CONNECT && text.p[0] != '{'))
                return bad(r, "a packet with data it may not have");
        agx_json_skip(&json);
        return agx_json_done(&json) ? 0 : bad(r, json.error);
}

static int read_head(agx_sio_reader *r, agx_view *text)
{
        static const agx_sio_type types[] = {AGX_SIO_CONNECT,       AGX_SIO_DISCONNECT, AGX_SIO_EVENT, AGX_SIO_ACK,
                                             AGX_SIO_CONNECT_ERROR, AGX_SIO_EVENT,      AGX_SIO_ACK};
        unsigned type = (unsigned char)text->p[0] - (unsigned)'0';

        if (type > 6)
                return bad(r, "an unknown type of packet");
        r->packet = (agx_sio_packet){.type = types[type]};
        *text = agx_view_from(*text, 1);
        if (type > 4 && !take_attachments(r, text))
                return bad(r, "a malformed or too large number of attachments");
        if (!take_namespace(r, text))
                return bad(r, "a malformed namespace");
        r->packet.has_id = is_digit(*text);
        if (r->packet.has_id && !take_number(text, id_max, &r->packet.id))
                return bad(r, "a malformed id");
        return 0;
}

static int parse(agx_sio_reader *r, agx_view text)
{
        int error = read_head(r, &text);
        agx_sio_type type = r->packet.type;

        if (error)
                return error;
        if (type == AGX_SIO_ACK ? !r->packet.has_id : r->packet.has_id && type != AGX_SIO_EVENT)
                return bad(r, "an id where none may be, or none where one must");
        r->packet.data = text;
        return type == AGX_SIO_EVENT || type == AGX_SIO_ACK ? read_array(r, text) : read_value(r, text);
}

/* ---- messages ---- */

static void forget(agx_sio_reader *r)
{
        agx_buf_clear(&r->text);
        agx_buf_clear(&r->bytes);
        agx_buf_clear(&r->name);
        r->announced = r->came = 0;
}

/* Makes a view of the message one of our copy. */
static void move_view(agx_sio_reader *r, agx_view message, agx_view *v)
{
        if (v->p)
                v->p = agx_buf_view(&r->text).p + (v->p - message.p);
}

/* Keeps a text until its attachments have come. */
static int keep(agx_sio_reader *r, agx_view message)
{
        int error = agx_buf_append_view(&r->text, message);

        if (error)
                return error;
        move_view(r, message, &r->packet.data);
        if (r->packet.nsp.n > 1)
                move_view(r, message, &r->packet.nsp);
        if (!r->name.len)
                move_view(r, message, &r->packet.name);
        return AGX_SIO_MORE;
}

static int read_text(agx_sio_reader *r, agx_view message)
{
        int error;

        forget(r);
        if (!message.n)
                return bad(r, "an empty packet");
        if (message.n > r->bounds.packet_max)
                return bad(r, "a packet above the limit");
        error = parse(r, message);
        return !error && r->announced ? keep(r, message) : error;
}

/* All attachments are here, the last of them in `last`. */
static void show_attachments(agx_sio_reader *r, agx_view last)
{
        agx_view kept = agx_buf_view(&r->bytes);

        for (size_t i = 0; i + 1 < r->announced; ++i) {
                r->views[i] = agx_view_first(kept, r->sizes[i]);
                kept = agx_view_from(kept, r->sizes[i]);
        }
        r->views[r->announced - 1] = last;
        r->packet.attachments = r->views;
        r->packet.n_attachments = r->announced;
}

static int read_binary(agx_sio_reader *r, agx_view message)
{
        int error;

        if (r->came == r->announced)
                return bad(r, "bytes that nothing announced");
        if (message.n > r->bounds.packet_max - r->text.len - r->bytes.len)
                return bad(r, "a packet above the limit");
        r->sizes[r->came++] = message.n;
        if (r->came == r->announced) {
                show_attachments(r, message);
                return 0;
        }
        error = agx_buf_append_view(&r->bytes, message);
        return error < 0 ? error : AGX_SIO_MORE;
}

void agx_sio_reader_init(agx_sio_reader *r, const agx_sio_bounds *bounds)
{
        *r = (agx_sio_reader){
                .bounds = *bounds,
                .text = AGX_BUF_NULL(bounds->packet_max),
                .bytes = AGX_BUF_NULL(bounds->packet_max),
                .name = AGX_BUF_NULL(bounds->event_max),
        };
        if (r->bounds.attachments_max > AGX_SIO_ATTACHMENTS_MAX)
                r->bounds.attachments_max = AGX_SIO_ATTACHMENTS_MAX;
}

void agx_sio_reader_deinit(agx_sio_reader *r)
{
        agx_buf_deinit(&r->text);
        agx_buf_deinit(&r->bytes);
        agx_buf_deinit(&r->name);
}

int agx_sio_packet_read(agx_sio_reader *r, bool binary, agx_view message, agx_sio_packet *packet)
{
        int error;

        if (r->error)
                return AGX_SIO_E_BAD;
        if (binary)
                error = read_binary(r, message);
        else if (r->came < r->announced)
                error = bad(r, "a text where attachments were announced");
        else
                error = read_text(r, message);
        if (error < 0)
                r->error = "out of memory";
        if (!error)
                *packet = r->packet;
        return error;
}

/* ---- arguments ---- */

agx_sio_args agx_sio_args_on(const agx_sio_packet *packet)
{
        agx_sio_args a = {.packet = packet, .json = agx_json_reader_on(packet->data, AGX_JSON_DEPTH_MAX)};

        agx_json_next(&a.json);
        if (packet->type == AGX_SIO_EVENT)
                agx_json_next(&a.json);
        return a;
}

bool agx_sio_args_next(agx_sio_args *a, agx_sio_arg *arg)
{
        scan s = {.announced = a->packet->n_attachments};
        agx_json_reader again = a->json;

        *arg = (agx_sio_arg){.v = agx_json_skip(&a->json)};
        if (!arg->v.p)
                return false;
        if (arg->v.p[0] != '{' || !a->packet->n_attachments)
                return true;
        scan_value(&again, &s);
        if (s.is_one && !s.wrong)
                *arg = (agx_sio_arg){.binary = true, .v = a->packet->attachments[s.num]};
        return true;
}
