#ifndef AGX_CLIENT_HEALTH_H
#define AGX_CLIENT_HEALTH_H
/*
 * The body of GET /health: one flat JSON object of strings, with `status`, `version` and `instance`, each exactly once.
 *
 * The scanner knows this shape and nothing else of JSON: no numbers, no nesting, no escapes, printable ASCII only, so
 * that what a stranger says of itself can be shown and hashed as it stands. Other keys with string values are passed
 * over. The texts are bounded by AGX_CLIENT_HEALTH_TEXT.
 */
#include "base/view.h"

typedef struct agx_health {
        agx_view status;
        agx_view version;
        agx_view instance;
} agx_health;

/* Views point into `body`. */
bool agx_health_read(agx_view body, agx_health *health);

#endif
