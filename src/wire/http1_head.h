#ifndef AGX_WIRE_HTTP1_HEAD_H
#define AGX_WIRE_HTTP1_HEAD_H
/*
 * Inside the HTTP/1.1 parser only: where the head of a message is gathered, and the rules a whole head must meet.
 *
 * The store copies the pieces it is given, which may come in any cuts, into one text and keeps the fields in one array.
 * Both grow with what came, are kept from message to message and die with agx_http1_store_deinit(). The views of
 * `head` move while the store grows; they rest once the head is complete, until agx_http1_store_clear().
 */
#include "wire/http1.h"

typedef struct agx_http1_store {
        char *text;
        size_t text_n;
        size_t text_cap;
        agx_http1_field *fields;
        size_t fields_cap;
        size_t fields_max;
        agx_http1_head head;
} agx_http1_store;

void agx_http1_store_init(agx_http1_store *store, size_t fields_max);
void agx_http1_store_deinit(agx_http1_store *store);
/* Forgets the last head, keeps the memory. */
void agx_http1_store_clear(agx_http1_store *store);
/* Adds bytes to the view `piece` of this store's head, which must be the last one added to, or a new one. 0, -ENOMEM. */
int agx_http1_store_add(agx_http1_store *store, agx_view *piece, const char *at, size_t n);
/* Opens a field. 0, -ENOMEM, or AGX_HTTP1_E_HEAD_SIZE when there are `fields_max`. */
int agx_http1_store_open_field(agx_http1_store *store);
/* The field opened last. */
agx_http1_field *agx_http1_store_field(agx_http1_store *store);

/* Looks at a complete head as a whole and fills in what follows from its fields: framing, connection, expectation. 0, or
 * AGX_HTTP1_E_BAD with a static `*reason`. */
int agx_http1_judge(agx_http1_head *head, agx_http1_role role, const char **reason);

#endif
