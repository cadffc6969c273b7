/*
 * Large bytes of replies: which of them land in memory of the shell's, that what has landed is what was sent wherever it is
 * cut, and that nothing lands, or is kept, on the word of a server alone.
 */
#include "fast_rig.h"

#include "client/state.h"

enum { KIB = 1024, MIB = 1024 * KIB, LARGE = 700 * KIB, MIN = AGX_LANDING_MIN, ROOM = AGX_LANDING_ROOM };

/* ---- memory that is watched ---- */

typedef struct block {
        agx_landing_kind kind;
        size_t n;
        char *data;
} block;

static struct {
        size_t n, largest, made;
        size_t fail_at; /* the resize that fails, counted from 1; 0: none */
} memory;

static void drop_block(void *object)
{
        block *b = object;

        --memory.n;
        free(b->data);
        free(b);
}

/* Moves every time, so that what holds an old address is seen. */
static void *resize_block(void *object, agx_landing_kind kind, size_t n, char **data)
{
        block *b = object;
        char *moved;

        if (++memory.made == memory.fail_at) {
                if (b)
                        drop_block(b);
                return NULL;
        }
        if (!b) {
                b = calloc(1, sizeof(*b));
                assert_non_null(b);
                b->kind = kind;
                ++memory.n;
        }
        assert_int_equal(b->kind, kind);
        moved = malloc(n);
        assert_non_null(moved);
        if (b->n)
                memcpy(moved, b->data, b->n < n ? b->n : n);
        free(b->data);
        b->data = *data = moved;
        b->n = n;
        memory.largest = n > memory.largest ? n : memory.largest;
        return b;
}

static const agx_landing_memory watched = {.resize = resize_block, .drop = drop_block};

/* ---- values ---- */

static void put_n(agx_buf *to, size_t width, uint64_t n)
{
        for (size_t i = 0; i < width; ++i) {
                uint8_t byte = (uint8_t)(n >> (8 * i));

                assert_int_equal(agx_buf_append(to, &byte, 1), 0);
        }
}

/* `before`, an opcode with a length of `width` bytes, `n` bytes that are not all the same, `after`. */
static void make(agx_buf *to, agx_view before, char op, size_t width, size_t n, agx_view after)
{
        uint8_t *at;

        *to = AGX_BUF_NULL(SIZE_MAX);
        assert_int_equal(agx_buf_append_view(to, before), 0);
        assert_int_equal(agx_buf_append(to, &op, 1), 0);
        put_n(to, width, n);
        if (n)
                assert_int_equal(agx_buf_reserve(to, n, &at), 0);
        for (size_t i = 0; i < n; ++i)
                at[i] = (uint8_t)(i ^ i >> 8 ^ i >> 16);
        agx_buf_commit(to, n);
        assert_int_equal(agx_buf_append_view(to, after), 0);
}

/* What a finished call gave is `value`; gives whether some of it had landed. */
static bool assert_same(rig *r, agx_client_call *call, agx_view value)
{
        const agx_client_result *result = ended(&r->f, call);
        _cleanup_(agx_buf_deinitp) agx_buf whole = AGX_BUF_NULL(SIZE_MAX);
        agx_client_landed landed;
        agx_view rest;
        bool had;

        assert_int_equal(result->outcome, AGX_CLIENT_VALUE);
        rest = result->value;
        landed = agx_client_call_take_landed(call);
        had = landed.object != NULL;
        if (had) {
                block *b = landed.object;

                assert_int_equal((uint8_t)rest.p[landed.at], 0x97);
                assert_int_equal(b->n, landed.size);
                assert_int_equal(b->kind, landed.head[0] == 0x96 ? AGX_LANDING_BYTEARRAY : AGX_LANDING_BYTES);
                assert_int_equal(agx_buf_append_view(&whole, agx_view_first(rest, landed.at)), 0);
                assert_int_equal(agx_buf_append(&whole, landed.head, landed.n_head), 0);
                assert_int_equal(agx_buf_append(&whole, b->data, b->n), 0);
                assert_int_equal(agx_buf_append_view(&whole, agx_view_from(rest, landed.at + 1)), 0);
                drop_block(b);
                rest = agx_buf_view(&whole);
        }
        assert_true(agx_view_eq(rest, value));
        agx_client_call_free(r->f.client, call, r->f.now);
        assert_int_equal(memory.n, 0);
        return had;
}

static void open_watched(rig *r, size_t reply_bytes)
{
        agx_client_config config = config_of(NULL);

        memset(&memory, 0, sizeof(memory));
        config.fast = true;
        config.reply_bytes = reply_bytes;
        config.land = &watched;
        open_rig_with(r, &config);
}

static void close_watched(rig *r)
{
        close_rig(r);
        assert_int_equal(memory.n, 0);
}

static bool trip(rig *r, agx_view value)
{
        agx_client_call *call = start(&r->f);

        r->n_begun = 0;
        settle(r);
        reply(r, r->first, 200, value);
        return assert_same(r, call, value);
}

/* ---- what lands ---- */

static void test_sizes(void **state)
{
        static const size_t sizes[] = {0, 1, 4 * KIB, MIN - 1, MIN, MIN + 1, 2 * MIN - 1, 2 * MIN, LARGE, 3 * MIB + 7};
        rig r;

        (void)state;
        open_watched(&r, 0);
        for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); ++i) {
                _cleanup_(agx_buf_deinitp) agx_buf v;

                make(&v, AGX_VIEW("\x80\x05"), 'B', 4, sizes[i], AGX_VIEW("."));
                memory.largest = 0;
                assert_int_equal(trip(&r, agx_buf_view(&v)), sizes[i] >= MIN);
                assert_true(memory.largest <= sizes[i]);
        }
        close_watched(&r);
}

static void test_forms(void **state)
{
        static const struct {
                agx_view before;
                char op;
                size_t width;
                agx_view after;
                bool lands;
        } forms[] = {
                {AGX_VIEW("\x80\x05"), '\x8e', 8, AGX_VIEW("\x94."), true},
                {AGX_VIEW("\x80\x05"), '\x96', 8, AGX_VIEW("\x94."), true},
                {AGX_VIEW("\x80\x04"), 'B', 4, AGX_VIEW("\x94."), true},
                {AGX_VIEW("\x80\x05\x95\x03\0\0\0\0\0\0\0(K\x01"), 'B', 4, AGX_VIEW("t."), true},
                {AGX_VIEW("\x80\x05}\x8c\x01k"), 'B', 4, AGX_VIEW("s."), true},
                {AGX_VIEW("\x80\x05\x95\xff\xff\xff\0\0\0\0\0"), 'B', 4, AGX_VIEW("."), false}, /* inside of a frame */
                {AGX_VIEW("\x80\x05"), 'X', 4, AGX_VIEW("."), false},                           /* a str */
                {AGX_VIEW("\x80\x05\xff"), 'B', 4, AGX_VIEW("."), false},                       /* no opcode */
                {AGX_VIEW("\x80\x05\x97"), 'B', 4, AGX_VIEW("\x97."), true}, /* refused later, for what it is */
        };
        rig r;

        (void)state;
        open_watched(&r, 0);
        for (size_t i = 0; i < sizeof(forms) / sizeof(*forms); ++i) {
                _cleanup_(agx_buf_deinitp) agx_buf v;

                make(&v, forms[i].before, forms[i].op, forms[i].width, LARGE, forms[i].after);
                assert_int_equal(trip(&r, agx_buf_view(&v)), forms[i].lands);
        }
        close_watched(&r);
}

/* However the bytes are read, byte by byte at their beginning. */
static void test_pieces(void **state)
{
        static const size_t cuts[] = {1, 17, 1000, 4095, 4097, 65536, 262144};

        (void)state;
        for (size_t i = 0; i < sizeof(cuts) / sizeof(*cuts); ++i) {
                _cleanup_(agx_buf_deinitp) agx_buf v;
                rig r;

                make(&v, AGX_VIEW("\x80\x05(K\x01"), '\x8e', 8, LARGE, AGX_VIEW("K\x02t."));
                open_watched(&r, 0);
                assert_true(trip(&r, agx_buf_view(&v)));
                r.f.cut = cuts[i];
                assert_true(trip(&r, agx_buf_view(&v)));
                close_watched(&r);
        }
}

/* ---- what is cut ---- */

/* The connection is lost after so many bytes of the reply: what had landed is gone, and the call is asked again. */
static void test_lost(void **state)
{
        _cleanup_(agx_buf_deinitp) agx_buf v;

        (void)state;
        make(&v, AGX_VIEW("\x80\x05"), '\x8e', 8, LARGE, AGX_VIEW("."));
        for (size_t after = 1; after < v.len + 120; after += after < 80 || after > v.len - 40 ? 1 : 26 * KIB + 11) {
                agx_client_call *call;
                rig r;

                open_watched(&r, 0);
                call = start(&r.f);
                settle(&r);
                r.f.budget = after;
                reply(&r, r.first, 200, agx_buf_view(&v));
                if (r.f.budget == SIZE_MAX) { /* it was cut */
                        assert_int_equal(memory.n, 0);
                        assert_null(agx_client_next_done(r.f.client));
                        settle(&r);
                        reply(&r, r.first, 200, agx_buf_view(&v));
                }
                r.f.budget = SIZE_MAX;
                assert_true(assert_same(&r, call, agx_buf_view(&v)));
                close_watched(&r);
        }
}

static void begin_reply(rig *r, agx_fast_value *v, agx_buf *head, agx_view value, size_t announced, size_t bytes)
{
        agx_mp_writer w = agx_mp_writer_on(head);

        agx_call_reply_put_value_head(&w, announced);
        *v = reply_of(r->first, 200, agx_buf_view(head), value);
        agx_fast_send(r->fast, v);
        let_out(r, bytes);
}

/* Nobody waits any more, or the server takes the reply back, when half of it has landed. */
static void test_left(void **state)
{
        (void)state;
        for (int how = 0; how < 3; ++how) {
                _cleanup_(agx_buf_deinitp) agx_buf value, head = AGX_BUF_NULL(100);
                agx_client_call *call;
                agx_fast_value v;
                rig r;

                make(&value, AGX_VIEW("\x80\x05"), 'B', 4, LARGE, AGX_VIEW("."));
                open_watched(&r, 0);
                call = start(&r.f);
                settle(&r);
                begin_reply(&r, &v, &head, agx_buf_view(&value), value.len, LARGE / 2);
                assert_int_equal(memory.n, 1);
                if (how == 0) {
                        agx_client_call_free(r.f.client, call, r.f.now);
                        assert_int_equal(memory.n, 0);
                        let_out(&r, SIZE_MAX); /* the rest is heard out */
                } else if (how == 1) {
                        r.n_begun = 0; /* it asks again at once */
                        agx_fast_withdraw(r.fast, &v);
                        let_out(&r, SIZE_MAX);
                        assert_int_equal(memory.n, 0);
                }
                agx_fast_withdraw(r.fast, &v);
                if (how == 1) {
                        settle(&r);
                        reply(&r, r.first, 200, agx_buf_view(&value));
                        assert_true(assert_same(&r, call, agx_buf_view(&value)));
                }
                close_watched(&r); /* with the call under way, the last time */
        }
}

/* ---- what lies ---- */

/* 200 MiB are announced, by all lengths there are, and a part of it comes. */
static void test_announced(void **state)
{
        static const size_t come[] = {4 * KIB, 100 * KIB, MIB, 5 * MIB};

        (void)state;
        for (size_t i = 0; i < sizeof(come) / sizeof(*come); ++i) {
                _cleanup_(agx_buf_deinitp) agx_buf value, head = AGX_BUF_NULL(100);
                const size_t huge = 200 * MIB;
                agx_client_call *call;
                agx_fast_value v;
                agx_buf lie = AGX_BUF_NULL(100);
                rig r;

                make(&value, AGX_VIEW("\x80\x05"), 'B', 4, 8 * MIB, AGX_VIEW("."));
                put_n(&lie, 4, huge);
                memcpy(value.data + value.head + 3, agx_buf_view(&lie).p, 4);
                agx_buf_deinit(&lie);
                open_watched(&r, 0);
                call = start(&r.f);
                settle(&r);
                begin_reply(&r, &v, &head, agx_buf_view(&value), huge + 8, come[i]);
                assert_int_equal(memory.n, come[i] > 8 * KIB);
                assert_true(memory.largest <= 2 * (come[i] + ROOM));
                let_out(&r, SIZE_MAX); /* it ends with less than it said */
                agx_fast_withdraw(r.fast, &v);
                work(&r.f);
                assert_null(agx_client_next_done(r.f.client));
                assert_int_equal(memory.n, 0);
                assert_true(memory.largest <= 2 * (8 * MIB + ROOM));
                agx_client_call_free(r.f.client, call, r.f.now);
                close_watched(&r);
        }
}

/* Lengths that do not fit each other, or are more than a message may have: nothing lands for them. */
static void test_unfit(void **state)
{
        static const size_t bins[] = {LARGE, LARGE + 6, (size_t)AGX_MAX_MESSAGE + MIB, UINT32_MAX};

        (void)state;
        for (size_t i = 0; i < sizeof(bins) / sizeof(*bins); ++i) {
                _cleanup_(agx_buf_deinitp) agx_buf value, head = AGX_BUF_NULL(100);
                agx_client_call *call;
                agx_fast_value v;
                rig r;

                make(&value, AGX_VIEW("\x80\x05"), 'B', 4, LARGE, AGX_VIEW("."));
                open_watched(&r, 0);
                call = start(&r.f);
                settle(&r);
                begin_reply(&r, &v, &head, agx_buf_view(&value), bins[i], SIZE_MAX);
                agx_fast_withdraw(r.fast, &v);
                work(&r.f);
                assert_int_equal(memory.n, 0);
                if (bins[i] != LARGE) /* else it ends before its bytes do */
                        assert_int_equal(memory.made, 0);
                assert_null(agx_client_next_done(r.f.client)); /* malformed: asked again */
                agx_client_call_free(r.f.client, call, r.f.now);
                close_watched(&r);
        }
}

/* What has landed counts among the replies that are not whole. */
static void test_crowded(void **state)
{
        _cleanup_(agx_buf_deinitp) agx_buf value, head = AGX_BUF_NULL(100);
        agx_client_call *calls[3];
        agx_fast_value values[3];
        agx_mp_writer w = agx_mp_writer_on(&head);
        size_t n_values = 0;
        rig r;

        (void)state;
        make(&value, AGX_VIEW("\x80\x05"), 'B', 4, LARGE, AGX_VIEW("."));
        open_watched(&r, 2 * LARGE);
        agx_call_reply_put_value_head(&w, value.len);
        for (size_t i = 0; i < 3; ++i)
                calls[i] = start(&r.f);
        settle(&r);
        for (uint32_t i = 0; i < 3; ++i) {
                values[i] = reply_of(r.first + i, 200, agx_buf_view(&head), agx_buf_view(&value));
                agx_fast_send(r.fast, &values[i]);
        }
        let_out(&r, SIZE_MAX);
        for (size_t i = 0; i < 3; ++i) {
                agx_client_call *call = agx_client_next_done(r.f.client);

                assert_non_null(call);
                n_values += agx_client_call_result(call)->outcome == AGX_CLIENT_VALUE;
                agx_client_call_free(r.f.client, call, r.f.now);
        }
        (void)calls;
        assert_in_range(n_values, 1, 2);
        close_watched(&r);
}

/* ---- lack of memory ---- */

static void test_no_memory(void **state)
{
        _cleanup_(agx_buf_deinitp) agx_buf value;
        size_t needed;

        (void)state;
        make(&value, AGX_VIEW("\x80\x05"), 'B', 4, 3 * MIB, AGX_VIEW("."));
        for (size_t at = 1, done = 0; !done; ++at) {
                agx_client_call *call;
                rig r;

                open_watched(&r, 0);
                memory.fail_at = at;
                call = start(&r.f);
                settle(&r);
                reply(&r, r.first, 200, agx_buf_view(&value));
                needed = memory.made;
                if (at == 1) { /* then it is gathered as any other */
                        assert_false(assert_same(&r, call, agx_buf_view(&value)));
                } else if (needed < at) {
                        done = 1;
                        assert_true(assert_same(&r, call, agx_buf_view(&value)));
                } else {
                        assert_int_equal(ended(&r.f, call)->outcome, AGX_CLIENT_NO_MEMORY);
                        agx_client_call_free(r.f.client, call, r.f.now);
                }
                close_watched(&r);
        }
        assert_in_range(needed, 2, 10);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_sizes), cmocka_unit_test(test_forms),   cmocka_unit_test(test_pieces),
                cmocka_unit_test(test_lost),  cmocka_unit_test(test_left),    cmocka_unit_test(test_announced),
                cmocka_unit_test(test_unfit), cmocka_unit_test(test_crowded), cmocka_unit_test(test_no_memory),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
