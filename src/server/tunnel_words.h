#ifndef AGX_SERVER_TUNNEL_WORDS_H
#define AGX_SERVER_TUNNEL_WORDS_H
/*
 * The payloads of the events on /abridge, read and written. For the files behind tunnel.h alone. Reading is strict: a
 * value of another type makes the whole event unreadable; unknown keys are passed over.
 */
#include "server/tunnel.h"
#include "wire/msgpack.h"

/* What any event of a host may say. Views lie in the payload. */
typedef struct agx_tunnel_words {
        agx_view request_id; /* as written: a str or an int, of at most AGX_MAX_CALL_ID bytes; absent: none */
        bool has_id;         /* it is an int, .id */
        uint64_t id;
        bool has_seq;
        uint64_t seq;
        bool last;
        agx_view data;  /* of a chunk: the bytes; absent: none */
        agx_view asked; /* data of a question: msgpack, a map */
        agx_view value; /* msgpack, a map */
        agx_view error; /* msgpack, a map */
} agx_tunnel_words;

bool agx_tunnel_words_read(agx_view payload, agx_tunnel_words *words);

/* The data of a question: `open`, `attach`, `close`. */
typedef struct agx_tunnel_question {
        uint64_t tunnel;
        uint64_t window;
        agx_view paths; /* msgpack: the items of the array, .n_paths str */
        size_t n_paths;
        agx_view live; /* likewise: ints */
        size_t n_live;
} agx_tunnel_question;

bool agx_tunnel_question_read(agx_view map, agx_tunnel_question *q);
bool agx_tunnel_reply_read(agx_view map, agx_tunnel_reply *reply);
bool agx_tunnel_error_read(agx_view map, agx_tunnel_reply *reply);

/* Each appends one payload. 0 or an error of the buffer. */
int agx_tunnel_put_begin(agx_buf *out, uint64_t tunnel, uint64_t id, agx_view path, const agx_http1_head *head,
                         agx_view query, agx_view body, bool last);
int agx_tunnel_put_chunk(agx_buf *out, uint64_t id, uint64_t seq, agx_view body, bool last);
int agx_tunnel_put_ack(agx_buf *out, uint64_t id, uint64_t seq);
int agx_tunnel_put_gone(agx_buf *out, uint64_t id);
/* `t`: what the value says; NULL: nil. */
int agx_tunnel_put_result(agx_buf *out, agx_view request_id, const agx_tunnel *t);
int agx_tunnel_put_error(agx_buf *out, agx_view request_id, const char *type, const char *message);

#endif
