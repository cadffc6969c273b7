/* Bytes above 0x7f pass: paths and labels may be UTF-8, and no engine splits at them. */
#include "oci/word.h"

enum { NAME_MAX_BYTES = 128 };

static bool is_plain(char c)
{
        unsigned char u = (unsigned char)c;

        return u >= 0x20 && u != 0x7f;
}

static bool is_alnum(char c)
{
        return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

bool agx_oci_word(agx_view text)
{
        if (!text.n || text.p[0] == '-')
                return false;
        for (size_t i = 0; i < text.n; ++i)
                if (!is_plain(text.p[i]) || text.p[i] == ' ')
                        return false;
        return true;
}

bool agx_oci_source(agx_view text)
{
        if (!text.n || text.p[0] != '/')
                return false;
        for (size_t i = 0; i < text.n; ++i)
                if (!is_plain(text.p[i]) || text.p[i] == ',' || text.p[i] == '"')
                        return false;
        return true;
}

bool agx_oci_name(agx_view text)
{
        if (!text.n || text.n > NAME_MAX_BYTES || !is_alnum(text.p[0]))
                return false;
        for (size_t i = 1; i < text.n; ++i)
                if (!is_alnum(text.p[i]) && text.p[i] != '_' && text.p[i] != '.' && text.p[i] != '-')
                        return false;
        return true;
}

bool agx_oci_variable(agx_view text)
{
        if (!text.n || text.p[0] == '-' || text.p[0] == '#')
                return false;
        for (size_t i = 0; i < text.n; ++i)
                if (text.p[i] <= 0x20 || text.p[i] > 0x7e || text.p[i] == '=')
                        return false;
        return true;
}
