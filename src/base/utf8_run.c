/* The lead byte says how many bytes follow and what the first of them may be; the others may be 80 to BF. Plain ASCII is
 * passed over eight bytes at a time. */
#include "base/utf8_run.h"

static bool begin(agx_utf8_run *u, unsigned char lead)
{
        if (lead < 0xc2 || lead > 0xf4)
                return false;
        u->need = lead >= 0xf0 ? 3 : lead >= 0xe0 ? 2 : 1;
        u->low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
        u->high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
        return true;
}

static bool go_on(agx_utf8_run *u, unsigned char byte)
{
        if (byte < u->low || byte > u->high)
                return false;
        --u->need;
        u->low = 0x80;
        u->high = 0xbf;
        return true;
}

static size_t ascii_words(agx_view v)
{
        size_t n = 0;
        uint64_t word;

        for (; v.n - n >= sizeof(word); n += sizeof(word)) {
                memcpy(&word, v.p + n, sizeof(word));
                if (word & 0x8080808080808080u)
                        break;
        }
        return n;
}

bool agx_utf8_run_feed(agx_utf8_run *u, agx_view v)
{
        for (size_t i = 0; i < v.n; ++i) {
                unsigned char byte;

                if (!u->need)
                        i += ascii_words(agx_view_from(v, i));
                if (i == v.n)
                        break;
                byte = (unsigned char)v.p[i];
                if (u->need ? !go_on(u, byte) : byte >= 0x80 && !begin(u, byte))
                        return false;
        }
        return true;
}
