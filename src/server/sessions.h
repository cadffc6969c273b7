#ifndef AGX_SERVER_SESSIONS_H
#define AGX_SERVER_SESSIONS_H
/*
 * The sessions a ledger knows, and which of their own ids, `<session>-<counter>`, have been seen.
 *
 * A session that holds calls stays. Of the others, those used last are kept; of one that had to go only its name's hash
 * and its newest counter are remembered. Should it come back, every id up to that counter counts as seen: an id that
 * may have run must not run again, and a client draws higher ones anyway. That memory is bounded too
 * (AGX_LEDGER_FORGOTTEN_MAX); beyond it a session is as good as new.
 *
 * The table may grow above its bound while all sessions hold calls, whose number is bounded elsewhere.
 */
#include "base/list.h"
#include "base/map.h"
#include "server/idring.h"
#include "server/idwindow.h"

typedef struct agx_session {
        agx_map_node by_name; /* key: the name, owned */
        agx_list unused;      /* while it holds no calls */
        size_t calls;
        agx_idwindow window;
} agx_session;

typedef struct agx_sessions {
        agx_map by_name;
        agx_session *last; /* the last used one: mostly it is asked for again; or NULL */
        agx_list unused;   /* the longest unused first */
        agx_idring forgotten;
        size_t max;
        uint32_t window;
} agx_sessions;

void agx_sessions_init(agx_sessions *s, const uint8_t seed[16], size_t max, uint32_t forgotten_max, uint32_t window);
/* No session may hold calls any more, or nobody may look at them again. */
void agx_sessions_deinit(agx_sessions *s);

/* The session, now the last used one, or NULL. */
agx_session *agx_sessions_use(agx_sessions *s, agx_view name);
/* The session, made if need be. Hold it before anything else is done with the table. 0 or -ENOMEM. */
int agx_sessions_make(agx_sessions *s, agx_view name, agx_session **session);
/* One call more, one call less. Letting go of the last one may free the session. */
void agx_sessions_hold(agx_sessions *s, agx_session *session);
void agx_sessions_release(agx_sessions *s, agx_session *session);

/* Whether a client may call its session so: 1 to AGX_MAX_SESSION visible ASCII characters. */
bool agx_sessions_name_ok(agx_view name);
/* Splits `<session>-<counter>`: a plain decimal without leading zeros. `*number` is the counter plus one, so that 0 is
 * below them all. */
bool agx_sessions_split(agx_view id, agx_view *name, uint64_t *number);
/* Whether an id of this form has been seen, as far as its session is known. */
bool agx_sessions_seen(const agx_sessions *s, agx_view id);

#endif
