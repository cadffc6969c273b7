/* The table-driven map reader: what its users' tests do not show. */
#include "proto/fault.h"
#include "proto/fields.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

typedef struct thing {
        agx_view str, bin, array, lax;
        bool flag;
        uint64_t u;
        int64_t i;
        agx_fault fault;
} thing;

enum { STR, BIN, ARRAY, LAX, FLAG, UINT, INT, FAULT, ROWS };

static const agx_field rows[ROWS] = {
        [STR] = AGX_FIELD(thing, str, "str", STR, "a str"),
        [BIN] = AGX_FIELD(thing, bin, "bin", BIN, "a bin"),
        [ARRAY] = AGX_FIELD(thing, array, "array", ARRAY, "an array"),
        [LAX] = AGX_FIELD(thing, lax, "lax", LAX_BIN, "a bin"),
        [FLAG] = AGX_FIELD(thing, flag, "flag", BOOL, "a bool"),
        [UINT] = AGX_FIELD(thing, u, "uint", UINT, "a non-negative int"),
        [INT] = AGX_FIELD(thing, i, "int", INT, "an int"),
        [FAULT] = AGX_FIELD(thing, fault, "fault", FAULT, "a map"),
};

static const char *read_depth(agx_view bytes, uint32_t known, size_t depth, thing *object, uint32_t *present)
{
        agx_mp_reader r = agx_mp_reader_on(bytes);
        bool ok;

        *object = (thing){.flag = false};
        ok = agx_fields_read(&r, (agx_fields){rows, ROWS, known}, depth, object, present);
        assert_int_equal(ok, r.error == NULL);
        return r.error;
}

#define ALL                                                                                                            \
        "\x88\xa3str\xa1s\xa3"                                                                                         \
        "bin\xc4\x01"                                                                                                  \
        "b\xa5"                                                                                                        \
        "array\x92\x01\x91\xc0\xa3lax\xc4\x01l\xa4"                                                                    \
        "flag\xc3\xa4uint\xcf\xff\xff\xff\xff\xff\xff\xff\xff\xa3int\xd0\x80\xa5"                                      \
        "fault\x82\xa4type\xa1t\xa7message\xa1m"

static void test_all_kinds(void **state)
{
        thing t;
        uint32_t present;

        (void)state;
        assert_null(read_depth(AGX_VIEW(ALL), UINT32_MAX, 3, &t, &present));
        assert_int_equal(present, (1 << ROWS) - 1);
        assert_true(agx_view_eq(t.str, AGX_VIEW("s")) && agx_view_eq(t.bin, AGX_VIEW("b")));
        assert_true(agx_view_eq(t.array, AGX_VIEW("\x92\x01\x91\xc0")) && agx_view_eq(t.lax, AGX_VIEW("l")));
        assert_true(t.flag && t.u == UINT64_MAX && t.i == -128);
        assert_true(agx_view_eq(t.fault.message, AGX_VIEW("m")));
}

/* Rows that do not count are passed over, whatever they hold and how often they come. */
static void test_known(void **state)
{
        thing t;
        uint32_t present;

        (void)state;
        assert_null(read_depth(AGX_VIEW(ALL), 1u << INT, 3, &t, &present));
        assert_int_equal(present, 1 << INT);
        assert_null(t.str.p);
        assert_int_equal(t.i, -128);
        assert_null(read_depth(AGX_VIEW("\x82\xa3str\x01\xa3str\x02"), 0, 3, &t, &present));
        assert_non_null(read_depth(AGX_VIEW("\x82\xa3str\x01\xa3str\x02"), 1u << STR, 3, &t, &present));
}

static void test_ints(void **state)
{
        static const struct {
                agx_view bytes;
                bool ok;
                int64_t i;
        } table[] = {
                {AGX_VIEW("\x81\xa3int\x05"), true, 5},
                {AGX_VIEW("\x81\xa3int\xff"), true, -1},
                {AGX_VIEW("\x81\xa3int\xcf\x7f\xff\xff\xff\xff\xff\xff\xff"), true, INT64_MAX},
                {AGX_VIEW("\x81\xa3int\xcf\x80\x00\x00\x00\x00\x00\x00\x00"), false, 0},
                {AGX_VIEW("\x81\xa3int\xd3\x80\x00\x00\x00\x00\x00\x00\x00"), true, INT64_MIN},
                {AGX_VIEW("\x81\xa3int\xc3"), false, 0},
        };
        thing t;
        uint32_t present;

        (void)state;
        for (size_t i = 0; i < sizeof(table) / sizeof(*table); ++i) {
                assert_int_equal(read_depth(table[i].bytes, UINT32_MAX, 3, &t, &present) == NULL, table[i].ok);
                assert_true(t.i == table[i].i);
        }
}

/* The map itself is one level; keys and values have the rest. */
static void test_depth(void **state)
{
        const agx_view flat = AGX_VIEW("\x81\xa1x\x01"), value = AGX_VIEW("\x81\xa1x\x90"),
                       key = AGX_VIEW("\x81\x90\x01"),
                       array = AGX_VIEW("\x81\xa5"
                                        "array\x91\x90"),
                       lax = AGX_VIEW("\x81\xa3lax\x90");
        thing t;
        uint32_t present;

        (void)state;
        assert_null(read_depth(flat, UINT32_MAX, 1, &t, &present));
        assert_non_null(read_depth(value, UINT32_MAX, 1, &t, &present));
        assert_null(read_depth(value, UINT32_MAX, 2, &t, &present));
        assert_non_null(read_depth(key, UINT32_MAX, 1, &t, &present));
        assert_null(read_depth(key, UINT32_MAX, 2, &t, &present));
        assert_non_null(read_depth(array, UINT32_MAX, 2, &t, &present));
        assert_null(read_depth(array, UINT32_MAX, 3, &t, &present));
        assert_non_null(read_depth(lax, UINT32_MAX, 1, &t, &present));
        assert_null(read_depth(lax, UINT32_MAX, 2, &t, &present));
        assert_int_equal(present, 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_all_kinds),
                cmocka_unit_test(test_known),
                cmocka_unit_test(test_ints),
                cmocka_unit_test(test_depth),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
