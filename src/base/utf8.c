/* A table-free validator: the lead byte decides how many bytes follow and the range of the first of them. Nearly all that is
 * looked at are ids and names, in ASCII and short: those are told by a few words. */
#include "base/utf8.h"

#define HIGH 0x8080808080808080u

static uint64_t word_at(const char *p)
{
        uint64_t word;

        memcpy(&word, p, sizeof(word));
        return word;
}

static uint32_t half_at(const char *p)
{
        uint32_t half;

        memcpy(&half, p, sizeof(half));
        return half;
}

/* The last word of a longer run, or half of a shorter one, is looked at even if it overlaps the one before. */
static bool is_ascii(agx_view v)
{
        uint64_t any = 0;

        if (v.n >= 8) {
                for (size_t i = 0; i + 8 < v.n; i += 8)
                        any |= word_at(v.p + i);
                any |= word_at(v.p + v.n - 8);
        } else if (v.n >= 4) {
                any = half_at(v.p) | half_at(v.p + v.n - 4);
        } else {
                for (size_t i = 0; i < v.n; ++i)
                        any |= (unsigned char)v.p[i];
        }
        return !(any & HIGH);
}

/* How many whole words of ASCII it begins with, in bytes. */
static size_t ascii_words(agx_view v)
{
        size_t n = 0;

        while (v.n - n >= 8 && !(word_at(v.p + n) & HIGH))
                n += 8;
        return n;
}

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
        size_t at = 0;

        if (is_ascii(v))
                return v.n;
        while (at < v.n) {
                size_t n = ascii_words(agx_view_from(v, at));

                if (!n)
                        n = sequence((const unsigned char *)v.p + at, v.n - at);
                if (!n)
                        break;
                at += n;
        }
        return at;
}

bool agx_utf8_valid(agx_view v)
{
        return agx_utf8_prefix(v) == v.n;
}
