#ifndef AGX_SERVER_ANSWER_H
#define AGX_SERVER_ANSWER_H
/* The head of a response: which fields, in which order. Bodies follow from the caller. */
#include "wire/http1.h"

typedef struct agx_answer {
        unsigned status;
        agx_view type;   /* of the body; absent: no body */
        uint64_t length; /* of the body */
        bool close;      /* the connection ends after it */
        bool keep;       /* HTTP/1.0 is told that it does not */
        bool has_wait;   /* Preference-Applied: wait=N */
        uint64_t wait_ms;
        agx_view location; /* a call id: Location: /call/<id> */
        agx_view allow;
        agx_view proof;
        agx_view wires; /* what else is spoken here: Agentix-Wires */
} agx_answer;

/* Appends the head up to the blank line. Errors of agx_buf_append. */
int agx_answer_put(agx_buf *out, const agx_answer *a);

#endif
