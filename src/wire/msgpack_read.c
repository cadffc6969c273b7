/*
 * Reading msgpack: a cursor. A table says for each of the 256 lead bytes what it is, how wide the number behind it is
 * and what that number means; one function per meaning does the rest. No byte is looked at before take() has proved
 * that it is there, and no count is believed that the bytes left could not hold.
 */
#include "base/utf8.h"
#include "wire/msgpack.h"

typedef agx_mp_token (*read_fn)(agx_mp_reader *r, uint64_t number, size_t width);

typedef struct lead {
        read_fn read;
        uint8_t width; /* bytes of the big-endian number that follows */
        uint8_t mask;  /* if not 0: the number is in these bits of the lead byte itself */
} lead;

static agx_mp_token fail(agx_mp_reader *r, const char *what)
{
        r->error = what;
        return (agx_mp_token){.kind = AGX_MP_ERROR};
}

static bool take(agx_mp_reader *r, uint64_t n, agx_view *bytes)
{
        if (n > r->rest.n)
                return false;
        *bytes = agx_view_of(r->rest.p, (size_t)n);
        r->rest = agx_view_from(r->rest, (size_t)n);
        return true;
}

static uint64_t big_endian(agx_view v)
{
        uint64_t number = 0;

        for (size_t i = 0; i < v.n; ++i)
                number = number << 8 | (unsigned char)v.p[i];
        return number;
}

static agx_mp_token read_nothing(agx_mp_reader *r, uint64_t number, size_t width)
{
        (void)number, (void)width;
        return fail(r, "a byte that msgpack does not use");
}

static agx_mp_token read_nil(agx_mp_reader *r, uint64_t number, size_t width)
{
        (void)r, (void)number, (void)width;
        return (agx_mp_token){.kind = AGX_MP_NIL};
}

static agx_mp_token read_bool(agx_mp_reader *r, uint64_t number, size_t width)
{
        (void)r, (void)width;
        return (agx_mp_token){.kind = AGX_MP_BOOL, .b = number != 0};
}

static agx_mp_token read_uint(agx_mp_reader *r, uint64_t number, size_t width)
{
        (void)r, (void)width;
        return (agx_mp_token){.kind = AGX_MP_UINT, .u = number};
}

/* The sign bit of a number of `width` bytes decides; -1 of any width is one value. */
static agx_mp_token read_int(agx_mp_reader *r, uint64_t number, size_t width)
{
        uint64_t sign = 1ULL << (8 * width - 1);

        if (!(number & sign))
                return read_uint(r, number, width);
        return (agx_mp_token){.kind = AGX_MP_INT, .i = (int64_t)((number ^ sign) - sign)};
}

static agx_mp_token read_negative(agx_mp_reader *r, uint64_t number, size_t width)
{
        (void)r, (void)width;
        return (agx_mp_token){.kind = AGX_MP_INT, .i = (int64_t)number - 32};
}

static agx_mp_token read_float(agx_mp_reader *r, uint64_t number, size_t width)
{
        uint32_t low = (uint32_t)number;
        double wide;
        float narrow;

        (void)r;
        memcpy(&narrow, &low, sizeof(narrow));
        memcpy(&wide, &number, sizeof(wide));
        return (agx_mp_token){.kind = AGX_MP_FLOAT, .d = width == 4 ? (double)narrow : wide};
}

static agx_mp_token read_str(agx_mp_reader *r, uint64_t number, size_t width)
{
        agx_view v;

        (void)width;
        if (!take(r, number, &v))
                return fail(r, "a str longer than the bytes left");
        if (!agx_utf8_valid(v))
                return fail(r, "a str that is not UTF-8");
        return (agx_mp_token){.kind = AGX_MP_STR, .v = v};
}

static agx_mp_token read_bin(agx_mp_reader *r, uint64_t number, size_t width)
{
        agx_view v;

        (void)width;
        if (!take(r, number, &v))
                return fail(r, "a bin longer than the bytes left");
        return (agx_mp_token){.kind = AGX_MP_BIN, .v = v};
}

static agx_mp_token read_array(agx_mp_reader *r, uint64_t number, size_t width)
{
        (void)width;
        if (number > r->rest.n)
                return fail(r, "an array with more items than bytes left");
        return (agx_mp_token){.kind = AGX_MP_ARRAY, .count = (size_t)number};
}

static agx_mp_token read_map(agx_mp_reader *r, uint64_t number, size_t width)
{
        (void)width;
        if (number > r->rest.n / 2)
                return fail(r, "a map with more pairs than bytes left");
        return (agx_mp_token){.kind = AGX_MP_MAP, .count = (size_t)number};
}

static agx_mp_token read_ext(agx_mp_reader *r, uint64_t number, size_t width)
{
        agx_view type, v;

        (void)width;
        if (!take(r, 1, &type) || !take(r, number, &v))
                return fail(r, "an ext longer than the bytes left");
        return (agx_mp_token){.kind = AGX_MP_EXT, .ext_type = (int8_t)type.p[0], .v = v};
}

/* 0xc0 to 0xdf; fixext lengths and booleans are in the table as their bits allow: see lead_of(). */
static const lead leads[32] = {
        {read_nil, 0, 0},   {read_nothing, 0, 0}, {read_bool, 0, 1}, {read_bool, 0, 1}, /* nil, unused, false, true */
        {read_bin, 1, 0},   {read_bin, 2, 0},     {read_bin, 4, 0},                     /* bin 8 to 32 */
        {read_ext, 1, 0},   {read_ext, 2, 0},     {read_ext, 4, 0},                     /* ext 8 to 32 */
        {read_float, 4, 0}, {read_float, 8, 0},                                         /* float 32, 64 */
        {read_uint, 1, 0},  {read_uint, 2, 0},    {read_uint, 4, 0}, {read_uint, 8, 0}, /* uint 8 to 64 */
        {read_int, 1, 0},   {read_int, 2, 0},     {read_int, 4, 0},  {read_int, 8, 0},  /* int 8 to 64 */
        {read_ext, 0, 0},   {read_ext, 0, 0},     {read_ext, 0, 0},  {read_ext, 0, 0},  {read_ext, 0, 0}, /* fixext */
        {read_str, 1, 0},   {read_str, 2, 0},     {read_str, 4, 0},                    /* str 8 to 32 */
        {read_array, 2, 0}, {read_array, 4, 0},   {read_map, 2, 0},  {read_map, 4, 0}, /* array, map 16 and 32 */
};

static lead lead_of(unsigned char byte)
{
        if (byte < 0x80)
                return (lead){read_uint, 0, 0x7f};
        if (byte < 0x90)
                return (lead){read_map, 0, 0x0f};
        if (byte < 0xa0)
                return (lead){read_array, 0, 0x0f};
        if (byte < 0xc0)
                return (lead){read_str, 0, 0x1f};
        if (byte >= 0xe0)
                return (lead){read_negative, 0, 0x1f};
        return leads[byte - 0xc0];
}

/* The number that belongs to a lead byte: in it, behind it, or (fixext 1 to 16) implied by it. */
static bool number_of(agx_mp_reader *r, unsigned char byte, lead l, uint64_t *number)
{
        agx_view bytes = AGX_VIEW_NULL;

        if (l.mask) {
                *number = byte & l.mask;
                return true;
        }
        if (byte >= 0xd4 && byte <= 0xd8) {
                *number = 1ULL << (byte - 0xd4);
                return true;
        }
        if (!take(r, l.width, &bytes))
                return false;
        *number = big_endian(bytes);
        return true;
}

agx_mp_reader agx_mp_reader_on(agx_view bytes)
{
        return (agx_mp_reader){.rest = bytes};
}

agx_mp_token agx_mp_next(agx_mp_reader *r)
{
        uint64_t number;
        unsigned char byte;
        agx_view v;
        lead l;

        if (r->error)
                return (agx_mp_token){.kind = AGX_MP_ERROR};
        if (!take(r, 1, &v))
                return (agx_mp_token){.kind = AGX_MP_END};
        byte = (unsigned char)v.p[0];
        l = lead_of(byte);
        if (!number_of(r, byte, l, &number))
                return fail(r, "cut short");
        return l.read(r, number, l.width);
}

/* How many values a container announces that are still to come. */
static uint64_t inside(const agx_mp_token *t)
{
        if (t->kind == AGX_MP_ARRAY)
                return t->count;
        return t->kind == AGX_MP_MAP ? 2 * (uint64_t)t->count : 0;
}

bool agx_mp_skip(agx_mp_reader *r, size_t depth)
{
        uint64_t left[AGX_MP_DEPTH_MAX + 1]; /* each is set when its level is entered */
        size_t level = 0;

        left[0] = 1;
        if (depth > AGX_MP_DEPTH_MAX)
                depth = AGX_MP_DEPTH_MAX;
        for (;;) {
                agx_mp_token t;

                while (!left[level])
                        if (!level--)
                                return true;
                --left[level];
                t = agx_mp_next(r);
                if (t.kind == AGX_MP_END)
                        fail(r, "cut short");
                if (r->error)
                        return false;
                if (t.kind != AGX_MP_ARRAY && t.kind != AGX_MP_MAP)
                        continue;
                if (level == depth) {
                        fail(r, "nested too deep");
                        return false;
                }
                left[++level] = inside(&t);
        }
}

bool agx_mp_done(const agx_mp_reader *r)
{
        return !r->error && !r->rest.n;
}
