/*
 * A stream is not queued at a port: its reader knows how far it has been told, and the journal what there is. A flush is
 * answered behind the last item that there was when everything had been gathered.
 */
#include "server/hubstream.h"
#include "base/err.h"
#include "proto/fields.h"
#include "wire/json.h"

enum { JSON_DEPTH = 8 };

static const agx_view stream_names[AGX_HUB_STREAMS] = {{"/log", 4}, {"/trace", 6}};

int agx_hub_stream_of(agx_view nsp)
{
        for (int i = 0; i < AGX_HUB_STREAMS; ++i)
                if (agx_view_eq(nsp, stream_names[i]))
                        return i;
        return -1;
}

/* ---- joining ---- */

/* {window?: int, after?: int, instance?: str}; what cannot be read counts as not said. */
void agx_hub_stream_join(agx_hub_port *p, int stream, agx_view json)
{
        agx_json_reader r = agx_json_reader_on(json.p ? json : AGX_VIEW("{}"), JSON_DEPTH);
        uint64_t window = 0, after = UINT64_MAX;
        bool same = false;
        agx_json_token t = agx_json_next(&r), key;

        while (t.kind == AGX_JSON_OBJECT && (key = agx_json_next(&r)).kind == AGX_JSON_KEY) {
                agx_view value = agx_json_skip(&r);
                agx_json_reader inner = agx_json_reader_on(value, JSON_DEPTH);
                agx_json_token v = agx_json_next(&inner);

                if (agx_json_is(&key, AGX_VIEW("window")) && v.kind == AGX_JSON_NUMBER)
                        agx_json_u64(&v, AGX_STREAM_WINDOW_MAX, &window);
                else if (agx_json_is(&key, AGX_VIEW("events")) && v.kind == AGX_JSON_NUMBER && stream == AGX_HUB_LOG)
                        agx_json_u64(&v, AGX_STREAM_WINDOW_MAX, &p->window);
                else if (agx_json_is(&key, AGX_VIEW("after")) && v.kind == AGX_JSON_NUMBER)
                        agx_json_u64(&v, UINT64_MAX - 1, &after);
                else if (agx_json_is(&key, AGX_VIEW("instance")) && v.kind == AGX_JSON_STRING)
                        same = agx_json_is(&v, p->hub->instance);
        }
        agx_journal_detach(&p->readers[stream]);
        agx_journal_attach(&p->hub->streams[stream], &p->readers[stream], window, same ? after : UINT64_MAX);
        agx_hub_touch(p);
}

/* ---- what hosts say ---- */

typedef struct stream_words {
        uint64_t seq, token, n;
} stream_words;

void agx_hub_stream_take(agx_hub_port *p, int stream, agx_view name, agx_view payload, agx_hub_outcome *outcome)
{
        static const agx_field rows[] = {AGX_FIELD(stream_words, seq, "seq", UINT, "a non-negative int"),
                                         AGX_FIELD(stream_words, token, "token", UINT, "a non-negative int"),
                                         AGX_FIELD(stream_words, n, "n", UINT, "a non-negative int")};
        agx_mp_reader r = agx_mp_reader_on(payload);
        stream_words words = {0};
        uint32_t present;

        *outcome = (agx_hub_outcome){.todo = AGX_HUB_TODO_NOTE, .why = "an event of a stream that cannot be read"};
        if (!p->readers[stream].journal || !agx_fields_read(&r, (agx_fields){rows, 3, 7}, JSON_DEPTH, &words, &present))
                return;
        if (agx_view_eq(name, AGX_VIEW("ack"))) {
                agx_journal_ack(&p->readers[stream], words.seq);
                outcome->todo = AGX_HUB_TODO_NOTHING;
                agx_hub_touch(p);
        } else if (agx_view_eq(name, AGX_VIEW("taken"))) {
                p->in_flight -= words.n < p->in_flight ? words.n : p->in_flight;
                outcome->todo = AGX_HUB_TODO_NOTHING;
                agx_hub_touch(p);
        } else if (agx_view_eq(name, AGX_VIEW("flush"))) {
                outcome->todo = AGX_HUB_TODO_FLUSH;
                p->flushes[stream] = (struct agx_hub_flush){.asked = true, .token = words.token};
                agx_list_unlink(&p->flushing);
                agx_list_push_back(&p->hub->flushing, &p->flushing);
        }
}

void agx_hub_flushed(agx_hub *h)
{
        agx_list_foreach_safe(node, &h->flushing)
        {
                agx_hub_port *p = agx_container_of(node, agx_hub_port, flushing);

                agx_list_unlink(node);
                for (size_t i = 0; i < AGX_HUB_STREAMS; ++i) {
                        struct agx_hub_flush *flush = &p->flushes[i];

                        flush->due = flush->due || flush->asked;
                        flush->asked = false;
                        flush->seq = agx_journal_last(&h->streams[i]);
                }
                agx_hub_touch(p);
        }
}

/* ---- what they are told ---- */

static int say_flushed(agx_hub_port *p, size_t stream, agx_hub_saying *saying)
{
        agx_mp_writer w = agx_mp_writer_on(&p->said);

        agx_mp_put_map(&w, 2);
        agx_mp_put_str(&w, AGX_VIEW("token"));
        agx_mp_put_uint(&w, p->flushes[stream].token);
        agx_mp_put_str(&w, AGX_VIEW("seq"));
        agx_mp_put_uint(&w, p->flushes[stream].seq);
        p->flushes[stream].due = false;
        *saying = (agx_hub_saying){stream_names[stream], AGX_VIEW("flushed"), agx_buf_view(&p->said)};
        return agx_mp_writer_end(&w);
}

int agx_hub_stream_say(agx_hub_port *p, agx_hub_saying *saying)
{
        int r;

        for (size_t i = 0; i < AGX_HUB_STREAMS; ++i) {
                agx_journal_reader *reader = &p->readers[i];

                if (p->flushes[i].due && reader->next > p->flushes[i].seq)
                        return say_flushed(p, i, saying);
                if (!agx_journal_ready(reader))
                        continue;
                r = agx_journal_next(reader, &p->said);
                *saying = (agx_hub_saying){stream_names[i], AGX_VIEW("batch"), agx_buf_view(&p->said)};
                return r > 0 ? -ENOMEM : r;
        }
        return AGX_HUB_E_NONE;
}

void agx_hub_append(agx_hub *h, agx_hub_stream stream, agx_view item)
{
        agx_journal *j = &h->streams[stream];

        agx_journal_append(j, item);
        agx_list_foreach_safe(node, &j->readers)
        {
                agx_journal_reader *r = agx_container_of(node, agx_journal_reader, link);

                agx_hub_touch((agx_hub_port *)(void *)((char *)(r - stream) - offsetof(agx_hub_port, readers)));
        }
}
