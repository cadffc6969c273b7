#ifndef AGX_SERVER_AUTH_H
#define AGX_SERVER_AUTH_H
/*
 * Who may come in: the token, and for requests without a valid one the names a browser cannot fake (Host, Origin).
 * Everything is fixed at start; the token is wiped at the end.
 */
#include "base/buf.h"
#include "proto/limits.h"

typedef struct agx_auth {
        agx_buf token; /* empty: none is asked for */
        agx_buf hosts; /* the list as given, lower case */
        agx_buf origins;
} agx_auth;

void agx_auth_init(agx_auth *a);
void agx_auth_deinit(agx_auth *a);

enum { AGX_AUTH_E_BAD = 1 }; /* an unusable token, or a list too long */

/* Takes the text of the token file, blanks around it trimmed. 0, AGX_AUTH_E_BAD (empty, too long, or not visible ASCII),
 * -ENOMEM. */
int agx_auth_set_token(agx_auth *a, agx_view text);
/* Lists separated by commas or blanks: hosts with or without a port ("*": any), origins as a browser sends them. */
int agx_auth_set_hosts(agx_auth *a, agx_view list);
int agx_auth_set_origins(agx_auth *a, agx_view list);

static inline bool agx_auth_has_token(const agx_auth *a)
{
        return a->token.len != 0;
}

/* The value of an Authorization field (absent: none). Constant time for equal lengths. False if no token is set. */
bool agx_auth_token_ok(const agx_auth *a, agx_view authorization);
/* The value of a Host field: loopback names and addresses, and the list. */
bool agx_auth_host_ok(const agx_auth *a, agx_view host);
bool agx_auth_origin_ok(const agx_auth *a, agx_view origin);

#endif
