/* Bytes as what hosts, POSTs, workers and time do to the road /rpc, judged by a checker: see support/rpc_trial.h. The first
 * byte picks the bounds and the manners. */
#include "support/rpc_trial.h"

#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const agx_ledger_bounds all[] = {
        {.calls_max = 1000,
         .kept_max = 1000,
         .kept_bytes = 1 << 20,
         .item_bytes = 1 << 20,
         .inline_ms = 30000,
         .window = 4096,
         .sessions_max = 1000,
         .forgotten_max = 1000,
         .foreign_max = 1000},
        {.calls_max = 20,
         .kept_max = 4,
         .kept_bytes = 40,
         .item_bytes = 60,
         .inline_ms = 500,
         .window = 4096,
         .sessions_max = 1000,
         .forgotten_max = 1000,
         .foreign_max = 1000},
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        rpc_trial trial = {0};

        if (size < 2 || size > 20000)
                return 0;
        trial.bounds = all[data[0] & 1];
        trial.polite = data[0] & 2;
        if (rpc_trial_run(&trial, agx_view_of(data + 1, size - 1))) {
                fprintf(stderr, "%s\n", trial.where);
                abort();
        }
        return 0;
}
