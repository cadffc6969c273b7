/* A cursor that only moves forward over bytes that are all there; every step says whether the text still fits. */
#include "client/health.h"
#include "proto/limits.h"

static void skip_blanks(agx_view *in)
{
        while (in->n && (in->p[0] == ' ' || in->p[0] == '\t' || in->p[0] == '\n' || in->p[0] == '\r'))
                *in = agx_view_from(*in, 1);
}

static bool take(agx_view *in, char c)
{
        skip_blanks(in);
        if (!in->n || in->p[0] != c)
                return false;
        *in = agx_view_from(*in, 1);
        return true;
}

static bool take_string(agx_view *in, agx_view *text)
{
        size_t n = 0;

        if (!take(in, '"'))
                return false;
        while (n < in->n && in->p[n] != '"') {
                if (in->p[n] < ' ' || in->p[n] > '~' || in->p[n] == '\\')
                        return false;
                ++n;
        }
        if (n == in->n || n > AGX_CLIENT_HEALTH_TEXT)
                return false;
        *text = agx_view_first(*in, n);
        *in = agx_view_from(*in, n + 1);
        return true;
}

/* The place of a key's value; one of no interest to us goes to `other`. */
static agx_view *place_of(agx_health *health, agx_view key, agx_view *other)
{
        if (agx_view_eq(key, AGX_VIEW("status")))
                return &health->status;
        if (agx_view_eq(key, AGX_VIEW("version")))
                return &health->version;
        if (agx_view_eq(key, AGX_VIEW("instance")))
                return &health->instance;
        return other;
}

static bool take_pair(agx_view *in, agx_health *health)
{
        agx_view key, value, other = AGX_VIEW_NULL, *place;

        if (!take_string(in, &key) || !take(in, ':') || !take_string(in, &value))
                return false;
        place = place_of(health, key, &other);
        if (place->p)
                return false;
        *place = value;
        return true;
}

bool agx_health_read(agx_view body, agx_health *health)
{
        *health = (agx_health){.status = AGX_VIEW_NULL};
        if (!take(&body, '{'))
                return false;
        do {
                if (!take_pair(&body, health))
                        return false;
        } while (take(&body, ','));
        if (!take(&body, '}'))
                return false;
        skip_blanks(&body);
        return !body.n && health->status.n && health->version.n && health->instance.n;
}
