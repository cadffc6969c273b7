/*
 * Reading JSON: a cursor that knows what the grammar allows next and, for each open level, whether it is an object: one
 * bit each. A key is read together with its colon. No byte is looked at before the length says that it is there.
 */
#include "base/utf8.h"
#include "wire/json.h"

typedef enum expect {
        EXPECT_VALUE,
        EXPECT_FIRST, /* the first item of an array or key of an object, or its end */
        EXPECT_NEXT   /* a comma or the end of the level; at the top nothing */
} expect;

static agx_json_token fail(agx_json_reader *r, const char *what)
{
        if (!r->error)
                r->error = what;
        return (agx_json_token){.kind = AGX_JSON_ERROR};
}

static void skip_blanks(agx_json_reader *r)
{
        size_t n = 0;

        while (n < r->rest.n && (r->rest.p[n] == ' ' || (r->rest.p[n] >= '\t' && r->rest.p[n] <= '\r' &&
                                                         r->rest.p[n] != '\v' && r->rest.p[n] != '\f')))
                ++n;
        if (n)
                r->rest = agx_view_from(r->rest, n);
}

static bool next_is(const agx_json_reader *r, char c)
{
        return r->rest.n && r->rest.p[0] == c;
}

static bool take(agx_json_reader *r, char c)
{
        if (!next_is(r, c))
                return false;
        r->rest = agx_view_from(r->rest, 1);
        return true;
}

static bool in_object(const agx_json_reader *r)
{
        return r->depth && (r->objects >> (r->depth - 1) & 1);
}

/* ---- strings ---- */

static int hex_digit(char c)
{
        if (c >= '0' && c <= '9')
                return c - '0';
        if (c >= 'a' && c <= 'f')
                return c - 'a' + 10;
        return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* The number in "\uXXXX" at the front of `v`, or -1. */
static long unicode_escape(agx_view v)
{
        long number = 0;

        if (v.n < 6 || v.p[0] != '\\' || v.p[1] != 'u')
                return -1;
        for (size_t i = 2; i < 6; ++i) {
                int digit = hex_digit(v.p[i]);

                if (digit < 0)
                        return -1;
                number = number << 4 | digit;
        }
        return number;
}

/* The character that the escape at the front of `v` stands for, and its length; -1 if it is none. */
static long escaped_char(agx_view v, size_t *n)
{
        static const char names[] = "\"\"\\\\//b\bf\fn\nr\rt\t";
        long high, low;

        *n = 2;
        if (v.n >= 2)
                for (size_t i = 0; names[i]; i += 2)
                        if (v.p[1] == names[i])
                                return names[i + 1];
        *n = 6;
        high = unicode_escape(v);
        if (high < 0xd800 || high > 0xdfff)
                return high;
        low = high <= 0xdbff ? unicode_escape(agx_view_from(v, 6)) : -1;
        if (low < 0xdc00 || low > 0xdfff)
                return -1;
        *n = 12;
        return 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
}

static size_t plain_run(agx_view v)
{
        size_t n = 0;

        while (n < v.n && v.p[n] != '"' && v.p[n] != '\\' && (unsigned char)v.p[n] >= 0x20)
                ++n;
        return n;
}

/* A string whose opening quote is at the front. */
static agx_json_token read_string(agx_json_reader *r, agx_json_kind kind)
{
        agx_json_token t = {.kind = kind};
        agx_view at = agx_view_from(r->rest, 1);

        for (;;) {
                size_t n;

                at = agx_view_from(at, plain_run(at));
                if (!at.n)
                        return fail(r, "a string without an end");
                if (at.p[0] == '"')
                        break;
                if (at.p[0] != '\\')
                        return fail(r, "a control character in a string");
                if (escaped_char(at, &n) < 0)
                        return fail(r, "a malformed escape");
                t.escaped = true;
                at = agx_view_from(at, n);
        }
        t.v = agx_view_of(r->rest.p + 1, (size_t)(at.p - r->rest.p) - 1);
        if (!agx_utf8_valid(t.v))
                return fail(r, "a string that is not UTF-8");
        r->rest = agx_view_from(at, 1);
        return t;
}

/* ---- other values ---- */

static size_t digits(agx_view v, size_t at)
{
        size_t n = 0;

        while (at + n < v.n && v.p[at + n] >= '0' && v.p[at + n] <= '9')
                ++n;
        return n;
}

static bool char_at(agx_view v, size_t at, const char *set)
{
        return at < v.n && v.p[at] && strchr(set, v.p[at]);
}

/* How many bytes at the front are a number; 0: none, or a malformed one. */
static size_t number_length(agx_view v)
{
        size_t n = char_at(v, 0, "-"), more;

        if (!digits(v, n))
                return 0;
        n += char_at(v, n, "0") ? 1 : digits(v, n);
        if (char_at(v, n, ".")) {
                more = digits(v, n + 1);
                if (!more)
                        return 0;
                n += 1 + more;
        }
        if (char_at(v, n, "eE")) {
                n += 1 + char_at(v, n + 1, "+-");
                more = digits(v, n);
                if (!more)
                        return 0;
                n += more;
        }
        return n;
}

static agx_json_token read_number(agx_json_reader *r)
{
        agx_json_token t = {.kind = AGX_JSON_NUMBER, .v = agx_view_first(r->rest, number_length(r->rest))};

        if (!t.v.n)
                return fail(r, "a malformed number");
        r->rest = agx_view_from(r->rest, t.v.n);
        return t;
}

static agx_json_token read_word(agx_json_reader *r)
{
        static const struct {
                agx_view word;
                agx_json_token token;
        } words[] = {
                {{"null", 4}, {.kind = AGX_JSON_NULL}},
                {{"true", 4}, {.kind = AGX_JSON_BOOL, .b = true}},
                {{"false", 5}, {.kind = AGX_JSON_BOOL}},
        };

        for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); ++i)
                if (agx_view_starts(r->rest, words[i].word)) {
                        r->rest = agx_view_from(r->rest, words[i].word.n);
                        return words[i].token;
                }
        return fail(r, "not a value");
}

static agx_json_token open_level(agx_json_reader *r, bool object)
{
        if (r->depth == r->depth_max)
                return fail(r, "nested too deep");
        r->rest = agx_view_from(r->rest, 1);
        r->objects = (r->objects & ~(1ULL << r->depth)) | (uint64_t)object << r->depth;
        ++r->depth;
        r->expect = EXPECT_FIRST;
        return (agx_json_token){.kind = object ? AGX_JSON_OBJECT : AGX_JSON_ARRAY};
}

static agx_json_token close_level(agx_json_reader *r)
{
        bool object = in_object(r);

        --r->depth;
        r->expect = EXPECT_NEXT;
        return (agx_json_token){.kind = object ? AGX_JSON_OBJECT_END : AGX_JSON_ARRAY_END};
}

static agx_json_token read_value(agx_json_reader *r)
{
        if (!r->rest.n)
                return fail(r, "cut short");
        if (next_is(r, '{') || next_is(r, '['))
                return open_level(r, next_is(r, '{'));
        r->expect = EXPECT_NEXT;
        if (next_is(r, '"'))
                return read_string(r, AGX_JSON_STRING);
        return char_at(r->rest, 0, "-0123456789") ? read_number(r) : read_word(r);
}

static agx_json_token read_key(agx_json_reader *r)
{
        agx_json_token t;

        if (!next_is(r, '"'))
                return fail(r, r->rest.n ? "a key that is not a string" : "cut short");
        t = read_string(r, AGX_JSON_KEY);
        skip_blanks(r);
        if (!r->error && !take(r, ':'))
                return fail(r, "a key without a colon");
        r->expect = EXPECT_VALUE;
        return t;
}

/* ---- verbs ---- */

agx_json_reader agx_json_reader_on(agx_view bytes, unsigned depth_max)
{
        return (agx_json_reader){
                .rest = bytes.n ? bytes : AGX_VIEW(""),
                .depth_max = depth_max < AGX_JSON_DEPTH_MAX ? depth_max : AGX_JSON_DEPTH_MAX,
                .expect = EXPECT_VALUE,
        };
}

agx_json_token agx_json_next(agx_json_reader *r)
{
        if (r->error)
                return (agx_json_token){.kind = AGX_JSON_ERROR};
        skip_blanks(r);
        if (r->expect == EXPECT_VALUE)
                return read_value(r);
        if (!r->depth)
                return r->rest.n ? fail(r, "bytes behind the value") : (agx_json_token){.kind = AGX_JSON_END};
        if (take(r, in_object(r) ? '}' : ']'))
                return close_level(r);
        if (r->expect == EXPECT_NEXT) {
                if (!take(r, ','))
                        return fail(r, r->rest.n ? "neither a comma nor an end" : "cut short");
                skip_blanks(r);
        }
        return in_object(r) ? read_key(r) : read_value(r);
}

static bool begins_value(agx_json_kind kind)
{
        return kind != AGX_JSON_END && kind != AGX_JSON_ERROR && kind != AGX_JSON_KEY && kind != AGX_JSON_ARRAY_END &&
               kind != AGX_JSON_OBJECT_END;
}

/* Where the value that agx_json_next() is about to read begins. */
static const char *value_begin(const agx_json_reader *r)
{
        agx_json_reader ahead = *r;

        skip_blanks(&ahead);
        if (ahead.expect == EXPECT_NEXT && take(&ahead, ','))
                skip_blanks(&ahead);
        return ahead.rest.p;
}

agx_view agx_json_skip(agx_json_reader *r)
{
        unsigned depth = r->depth;
        const char *begin = value_begin(r);

        if (!begins_value(agx_json_next(r).kind))
                return AGX_VIEW_NULL;
        while (!r->error && r->depth > depth)
                agx_json_next(r);
        return r->error ? AGX_VIEW_NULL : agx_view_of(begin, (size_t)(r->rest.p - begin));
}

bool agx_json_done(agx_json_reader *r)
{
        return agx_json_next(r).kind == AGX_JSON_END;
}

/* ---- what tokens say ---- */

static size_t encode_utf8(long c, char to[4])
{
        size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
        static const unsigned char leads[] = {0, 0x00, 0xc0, 0xe0, 0xf0};

        for (size_t i = n; i-- > 1; c >>= 6)
                to[i] = (char)(0x80 | (c & 0x3f));
        to[0] = (char)(leads[n] | (unsigned char)c);
        return n;
}

/* The next piece of a string's text: a run of the input, or what an escape stands for, in `room`. */
static agx_view next_piece(agx_view *raw, char room[4])
{
        size_t n = plain_run(*raw);
        agx_view piece = agx_view_first(*raw, n);

        if (!n)
                piece = agx_view_of(room, encode_utf8(escaped_char(*raw, &n), room));
        *raw = agx_view_from(*raw, n);
        return piece;
}

bool agx_json_is(const agx_json_token *token, agx_view text)
{
        agx_view raw = token->v;
        char room[4];

        if (token->kind != AGX_JSON_STRING && token->kind != AGX_JSON_KEY)
                return false;
        if (!token->escaped)
                return agx_view_eq(raw, text);
        while (raw.n) {
                agx_view piece = next_piece(&raw, room);

                if (!agx_view_starts(text, piece))
                        return false;
                text = agx_view_from(text, piece.n);
        }
        return !text.n;
}

int agx_json_text(const agx_json_token *token, agx_buf *out)
{
        agx_view raw = token->v;
        size_t before = out->len;
        char room[4];
        int r = 0;

        while (raw.n && !r)
                r = agx_buf_append_view(out, next_piece(&raw, room));
        if (r)
                agx_buf_truncate(out, before);
        return r;
}

bool agx_json_u64(const agx_json_token *token, uint64_t max, uint64_t *value)
{
        return token->kind == AGX_JSON_NUMBER && agx_view_u64(token->v, max, value);
}
