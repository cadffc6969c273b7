#ifndef AGX_CLIENT_CONDUIT_H
#define AGX_CLIENT_CONDUIT_H
/*
 * The opening of a conduit: a connection of its own that the server gives to its worker (wire.md, section 2). The server
 * proves itself first, as on every connection; then the request, with the token; then the 101, after which the
 * connection is the caller's. Nothing may come behind the 101 before the caller has spoken.
 *
 * Sans-IO: write what agx_conduit_pending() shows, give what comes to agx_conduit_input(). After any result but 0 only
 * deinit is left.
 */
#include "client/httpconn.h"
#include "client/session.h"

enum {
        AGX_CONDUIT_E_OPEN = 1, /* the connection is the caller's */
        AGX_CONDUIT_E_REFUSED,  /* answered with another status: .status */
        AGX_CONDUIT_E_BROKEN    /* no proof, or what came is not what was asked for: .why */
};

typedef struct agx_conduit {
        agx_httpconn health;
        agx_http1 *parser; /* of the answer to the request itself */
        agx_buf out;
        agx_buf request; /* waits for the proof; holds the token */
        agx_buf token;   /* empty: no proof is asked for */
        uint8_t nonce[AGX_CLIENT_NONCE_BYTES];
        bool asked; /* the request has gone into `out` */
        unsigned status;
        const char *why;
} agx_conduit;

#define AGX_CONDUIT_NULL ((agx_conduit){.out = {.max = 0}})

/* Of `config`: host, prefix, headers, token, secure. `name` has AGX_CONDUIT_NAME hexadecimal digits, `nonce` is random.
 * 0, -ENOMEM, or -EINVAL for texts that cannot be sent. Deinit in any case. */
int agx_conduit_init(agx_conduit *c, const agx_client_config *config, agx_view name,
                     const uint8_t nonce[AGX_CLIENT_NONCE_BYTES]);
/* Forgets the token. Safe twice, and on a null one. */
void agx_conduit_deinit(agx_conduit *c);

agx_view agx_conduit_pending(const agx_conduit *c);
void agx_conduit_sent(agx_conduit *c, size_t n);
/* 0: more is needed; one of the conditions above; -ENOMEM. Takes all of `in`. */
int agx_conduit_input(agx_conduit *c, agx_view in);

#endif
