/* Bytes as operations on a ledger and its slow model, which must agree on everything; see support/ledger_trial.h. The
 * first byte picks the bounds. */
#include "support/ledger_trial.h"

#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const agx_ledger_bounds all[] = {
        {.calls_max = 24,
         .kept_max = 12,
         .kept_bytes = 2000,
         .inline_ms = 300,
         .window = 16,
         .sessions_max = 5,
         .forgotten_max = 1000000,
         .foreign_max = 1000000},
        {.calls_max = 6,
         .kept_max = 4,
         .kept_bytes = 300,
         .inline_ms = 100,
         .window = 5,
         .sessions_max = 3,
         .forgotten_max = 4,
         .foreign_max = 10},
        {.calls_max = 3,
         .kept_max = 1,
         .kept_bytes = 100,
         .inline_ms = 10,
         .window = 1,
         .sessions_max = 1,
         .forgotten_max = 1,
         .foreign_max = 1},
        {.calls_max = 3, .inline_ms = 10, .window = 2},
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        ledger_trial trial = {0};

        if (size < 2 || size > 20000)
                return 0;
        trial.ledger = trial.model = all[data[0] % 4];
        trial.nothing_forgotten = data[0] % 4 == 0;
        if (ledger_trial_run(&trial, agx_view_of(data + 1, size - 1))) {
                fprintf(stderr, "%s\n", trial.where);
                abort();
        }
        return 0;
}
