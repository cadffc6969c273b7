/* A table-free validator: the lead byte decides how many bytes follow and the range of the first of them. */
#include "base/utf8.h"

/* Length of the sequence at `p` (of `n` > 0 bytes), or 0 if it is not well formed. */
static size_t sequence(const unsigned char *p, size_t n)
{
        size_t more = p[0] >= 0xf0 ? 3 : p[0] >= 0xe0 ? 2 : 1;
        unsigned char low = 0x80, high = 0xbf;

        if (p[0] < 0x80)
                return 1;
        if (p[0] < 0xc2 || p[0] > 0xf4 || n <= more)
                return 0;
        if (p[0] == 0xe0)
                low = 0xa0;
        else if (p[0] == 0xed)
                high = 0x9f;
        else if (p[0] == 0xf0)
                low = 0x90;
        else if (p[0] == 0xf4)
                high = 0x8f;
        if (p[1] < low || p[1] > high)
                return 0;
        for (size_t i = 2; i <= more; ++i)
                if ((p[i] & 0xc0) != 0x80)
                        return 0;
        return more + 1;
}

size_t agx_utf8_prefix(agx_view v)
{
        agx_view rest = v;

        while (rest.n) {
                size_t n = sequence((const unsigned char *)rest.p, rest.n);

                if (!n)
                        break;
                rest = agx_view_from(rest, n);
        }
        return v.n - rest.n;
}

bool agx_utf8_valid(agx_view v)
{
        return agx_utf8_prefix(v) == v.n;
}
