/* One decimal is what anybody reads. */
#include "cli/size.h"

#include <stddef.h>
#include <stdio.h>

void agx_size_text(uint64_t bytes, char text[AGX_SIZE_TEXT])
{
        static const char *const units[] = {"B", "kB", "MB", "GB", "TB"};
        double n = (double)bytes;
        size_t unit = 0;

        while (n >= 1000 && unit < 4) {
                n /= 1000;
                unit++;
        }
        snprintf(text, AGX_SIZE_TEXT, unit ? "%.1f %s" : "%.0f %s", n, units[unit]);
}
