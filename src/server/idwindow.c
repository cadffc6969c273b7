/*
 * A ring of bits: number n has bit n mod 4,096. At most 4,096 numbers are in the window, so no two share a bit; the
 * bits of numbers that fall behind the mark are cleared and serve the numbers that come in above.
 */
#include "server/idwindow.h"

static uint64_t *word_of(agx_idwindow *w, uint64_t number)
{
        return &w->bits[number % AGX_LEDGER_WINDOW / 64];
}

static uint64_t bit_of(uint64_t number)
{
        return (uint64_t)1 << (number % 64);
}

void agx_idwindow_init(agx_idwindow *w, uint32_t size, uint64_t mark)
{
        *w = (agx_idwindow){.mark = mark, .newest = mark, .size = size};
}

bool agx_idwindow_has(const agx_idwindow *w, uint64_t number)
{
        if (number <= w->mark)
                return true;
        if (number - w->mark > w->size)
                return false;
        return w->bits[number % AGX_LEDGER_WINDOW / 64] & bit_of(number);
}

static void advance(agx_idwindow *w, uint64_t mark)
{
        if (mark - w->mark >= w->size)
                memset(w->bits, 0, sizeof(w->bits));
        else
                for (uint64_t n = w->mark + 1; n <= mark; ++n)
                        *word_of(w, n) &= ~bit_of(n);
        w->mark = mark;
}

void agx_idwindow_add(agx_idwindow *w, uint64_t number)
{
        if (number <= w->mark)
                return;
        if (number - w->mark > w->size)
                advance(w, number - w->size);
        *word_of(w, number) |= bit_of(number);
        if (number > w->newest)
                w->newest = number;
}
