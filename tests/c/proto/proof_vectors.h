/* Tokens, nonces (hex) and instances with the proofs that Python's hmac makes of them; tests/python/test_proof_vectors.py
 * makes them anew and compares. X(token, nonce, instance, proof) */
#define PROOF_VECTORS(X)                                                                                               \
        X("k", "0000000000000000000000000000000000000000000000000000000000000000", "",                                 \
          "F-a-YhsoLd1DgN7echXlv7wqxXDDHXN6ZCjHfCRihwg")                                                               \
        X("0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f",                                          \
          "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f", "8f14e45fceea167a5a36dedd4bea2543",      \
          "8HA2pfufsA1DZBVM2T9oFYIQ0xPF6I9-2xWRSRgwckc")                                                               \
        X("tttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttt",                                          \
          "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff", "instance",                              \
          "jEicgay2PKudfZDqNULArOCGAWqScxWRs6t7bMtAedg")                                                               \
        X("longer than a block longer than a block longer than a block longer than a block longer than a block "       \
          "longer than a block longer than a block ",                                                                  \
          "c8c9cacbcccdcecfd0d1d2d3d4d5d6d7d8d9dadbdcdddedfe0e1e2e3e4e5e6e7",                                          \
          "iiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiii",                                          \
          "NTyaKFuXkmidpXU2nSwjiIqC3hACXlJen0utQPdJ2WI")
