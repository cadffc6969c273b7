/* The map: SipHash against its published vectors, finding, removing, growing, and working on when it cannot grow. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>

#include "base/err.h"
#include "base/map.h"
#include "support/guard.h"
#include "support/oom.h"

enum { MANY = 5000 };

typedef struct entry {
        char key[24];
        bool in;
        agx_map_node node;
} entry;

static const uint8_t seed[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

/* From the reference implementation's vectors: key 00..0f, input 00, 01, ... of the given length. */
static void test_siphash(void **state)
{
        static const struct {
                size_t n;
                uint64_t hash;
        } rows[] = {
                {0, 0x726fdb47dd0e0e31}, {1, 0x74f839c593dc67fd},  {7, 0xab0200f58b01d137},
                {8, 0x93f5f5799a932462}, {15, 0xa129ca6149be45e5}, {63, 0x958a324ceb064572},
        };
        agx_map m;

        (void)state;
        agx_map_init(&m, seed);
        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
                uint8_t bytes[64];
                uint8_t *guarded;

                for (uint8_t k = 0; k < 64; ++k)
                        bytes[k] = k;
                guarded = agx_guard_new(bytes, rows[i].n);
                assert_true(agx_siphash(m.seed, agx_view_of(guarded, rows[i].n)) == rows[i].hash);
                agx_guard_free(guarded, rows[i].n);
        }
        agx_map_deinit(&m);
}

static void fill(entry *entries, size_t n)
{
        for (size_t i = 0; i < n; ++i) {
                snprintf(entries[i].key, sizeof(entries[i].key), "key-%zu", i);
                entries[i].node.key = agx_view_str(entries[i].key);
                entries[i].in = false;
        }
}

static void test_empty(void **state)
{
        agx_map m;

        (void)state;
        agx_map_init(&m, seed);
        assert_null(agx_map_find(&m, AGX_VIEW("x")));
        assert_null(agx_map_any(&m));
        agx_map_deinit(&m);
        agx_map_deinit(&m);
}

static void test_keys_are_bytes(void **state)
{
        static const agx_view keys[] = {{"", 0}, {"a", 1}, {"a\0", 2}, {"a\0b", 3}, {"A", 1}};
        agx_map_node nodes[5];
        agx_map m;

        (void)state;
        agx_map_init(&m, seed);
        for (int i = 0; i < 5; ++i) {
                nodes[i].key = keys[i];
                assert_int_equal(agx_map_insert(&m, &nodes[i]), 0);
        }
        for (int i = 0; i < 5; ++i)
                assert_ptr_equal(agx_map_find(&m, keys[i]), &nodes[i]);
        assert_null(agx_map_find(&m, AGX_VIEW("b")));
        assert_int_equal(m.count, 5);
        agx_map_deinit(&m);
}

/* A long random walk of inserting and removing; a flag in each entry says what the table must say. */
static void test_random_walk(void **state)
{
        static entry entries[MANY];
        uint64_t x = 99;
        size_t count = 0;
        agx_map m;

        (void)state;
        agx_map_init(&m, seed);
        fill(entries, MANY);
        for (int i = 0; i < 60000; ++i) {
                entry *e;

                x = x * 6364136223846793005u + 1442695040888963407u;
                e = &entries[(x >> 33) % MANY];
                assert_ptr_equal(agx_map_find(&m, agx_view_str(e->key)), e->in ? &e->node : NULL);
                if (e->in)
                        agx_map_remove(&m, &e->node);
                else
                        assert_int_equal(agx_map_insert(&m, &e->node), 0);
                e->in = !e->in;
                count += e->in ? 1 : (size_t)-1;
                assert_int_equal(m.count, count);
        }
        for (agx_map_node *node; (node = agx_map_any(&m)); --count)
                agx_map_remove(&m, node);
        assert_int_equal(count, 0);
        agx_map_deinit(&m);
}

static void test_out_of_memory(void **state)
{
        static entry entries[40];
        agx_map m;
        int r;

        (void)state;
        agx_map_init(&m, seed);
        fill(entries, 40);
        agx_oom_arm(1);
        r = agx_map_insert(&m, &entries[0].node);
        assert_true(agx_oom_disarm());
        assert_int_equal(r, -ENOMEM);
        assert_int_equal(m.count, 0);
        for (int i = 0; i < 40; ++i) {
                agx_oom_arm(i ? 1 : 0); /* the first table must come to be; after that growth may fail */
                assert_int_equal(agx_map_insert(&m, &entries[i].node), 0);
                agx_oom_disarm();
        }
        for (int i = 0; i < 40; ++i)
                assert_ptr_equal(agx_map_find(&m, agx_view_str(entries[i].key)), &entries[i].node);
        agx_map_deinit(&m);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_siphash),        cmocka_unit_test(test_empty),
                cmocka_unit_test(test_keys_are_bytes), cmocka_unit_test(test_random_walk),
                cmocka_unit_test(test_out_of_memory),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
