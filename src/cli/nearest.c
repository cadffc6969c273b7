/* The distance of Damerau and Levenshtein in its restricted form, over three rows of its table. */
#include "cli/nearest.h"

static size_t least(size_t a, size_t b)
{
        return a < b ? a : b;
}

size_t agx_nearest_distance(agx_view a, agx_view b)
{
        size_t rows[3][AGX_NEAREST_MAX + 1];

        if (a.n > AGX_NEAREST_MAX || b.n > AGX_NEAREST_MAX)
                return SIZE_MAX;
        for (size_t j = 0; j <= b.n; j++)
                rows[0][j] = j;
        for (size_t i = 1; i <= a.n; i++) {
                size_t *row = rows[i % 3], *above = rows[(i + 2) % 3], *two_above = rows[(i + 1) % 3];

                row[0] = i;
                for (size_t j = 1; j <= b.n; j++) {
                        row[j] = least(least(above[j], row[j - 1]) + 1, above[j - 1] + (a.p[i - 1] != b.p[j - 1]));
                        if (i > 1 && j > 1 && a.p[i - 1] == b.p[j - 2] && a.p[i - 2] == b.p[j - 1])
                                row[j] = least(row[j], two_above[j - 2] + 1);
                }
        }
        return rows[a.n % 3][b.n];
}

bool agx_nearest_resembles(agx_view text, agx_view candidate)
{
        return agx_nearest_distance(text, candidate) <= 1 + candidate.n / 4;
}
