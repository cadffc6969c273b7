/* The server's proof against vectors made elsewhere. */
#include "proto/proof.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#include "proof_vectors.h"

static const struct vector {
        const char *token, *nonce, *instance, *proof;
} vectors[] = {
#define X(token, nonce, instance, proof) {token, nonce, instance, proof},
        PROOF_VECTORS(X)
#undef X
};

static uint8_t digit(char c)
{
        return (uint8_t)(c <= '9' ? c - '0' : c - 'a' + 10);
}

static void nonce_of(const struct vector *v, uint8_t nonce[AGX_NONCE_BYTES])
{
        for (size_t i = 0; i < AGX_NONCE_BYTES; ++i)
                nonce[i] = (uint8_t)(digit(v->nonce[2 * i]) << 4 | digit(v->nonce[2 * i + 1]));
}

static void test_make(void **state)
{
        uint8_t nonce[AGX_NONCE_BYTES];
        char out[AGX_PROOF_CHARS];

        (void)state;
        for (size_t i = 0; i < sizeof(vectors) / sizeof(*vectors); ++i) {
                nonce_of(&vectors[i], nonce);
                agx_proof_make(agx_view_str(vectors[i].token), nonce, agx_view_str(vectors[i].instance), out);
                assert_memory_equal(out, vectors[i].proof, AGX_PROOF_CHARS);
                assert_true(agx_proof_check(agx_view_str(vectors[i].token), nonce, agx_view_str(vectors[i].instance),
                                            agx_view_str(vectors[i].proof)));
        }
}

/* Any other token, nonce, instance or proof is refused. */
static void test_check_refuses(void **state)
{
        const struct vector *v = &vectors[1];
        agx_view token = agx_view_str(v->token), instance = agx_view_str(v->instance), proof = agx_view_str(v->proof);
        uint8_t nonce[AGX_NONCE_BYTES];
        char wrong[AGX_PROOF_CHARS + 1];

        (void)state;
        nonce_of(v, nonce);
        assert_false(agx_proof_check(agx_view_first(token, token.n - 1), nonce, instance, proof));
        assert_false(agx_proof_check(token, nonce, agx_view_first(instance, instance.n - 1), proof));
        assert_false(agx_proof_check(token, nonce, instance, agx_view_first(proof, proof.n - 1)));
        assert_false(agx_proof_check(token, nonce, instance, AGX_VIEW_NULL));
        for (size_t i = 0; i < AGX_PROOF_CHARS; ++i) {
                memcpy(wrong, v->proof, sizeof(wrong));
                wrong[i] = (char)(wrong[i] ^ 1);
                assert_false(agx_proof_check(token, nonce, instance, agx_view_of(wrong, AGX_PROOF_CHARS)));
        }
        memcpy(wrong, v->proof, sizeof(wrong));
        wrong[AGX_PROOF_CHARS] = '=';
        assert_false(agx_proof_check(token, nonce, instance, agx_view_of(wrong, sizeof(wrong))));
        nonce[31] ^= 1;
        assert_false(agx_proof_check(token, nonce, instance, proof));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_make),
                cmocka_unit_test(test_check_refuses),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
