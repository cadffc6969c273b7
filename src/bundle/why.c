/* Fixed buffers: words must be had when memory is what is lacking. Too long a text is cut. */
#include "bundle/why.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

__attribute__((format(printf, 3, 0))) static void set(agx_why *w, const char *kind, const char *format, va_list args)
{
        if (w->text[0])
                return;
        w->kind = kind;
        if (!w->exit_code)
                w->exit_code = 1;
        vsnprintf(w->text, sizeof(w->text), format, args);
}

int agx_why_set(agx_why *w, const char *kind, const char *format, ...)
{
        va_list args;

        va_start(args, format);
        set(w, kind, format, args);
        va_end(args);
        return AGX_WHY_E_TOLD;
}

int agx_why_errno(agx_why *w, int error, const char *format, ...)
{
        va_list args;
        size_t n;

        if (w->text[0])
                return AGX_WHY_E_TOLD;
        va_start(args, format);
        set(w, "system", format, args);
        va_end(args);
        n = strlen(w->text);
        snprintf(w->text + n, sizeof(w->text) - n, ": %s", strerror(abs(error)));
        return AGX_WHY_E_TOLD;
}

int agx_why_hint(agx_why *w, const char *format, ...)
{
        va_list args;

        if (w->hint[0])
                return AGX_WHY_E_TOLD;
        va_start(args, format);
        vsnprintf(w->hint, sizeof(w->hint), format, args);
        va_end(args);
        return AGX_WHY_E_TOLD;
}

void agx_why_wrap(agx_why *w, const char *format, ...)
{
        char what[512], old[AGX_WHY_TEXT];
        va_list args;

        va_start(args, format);
        vsnprintf(what, sizeof(what), format, args);
        va_end(args);
        memcpy(old, w->text, sizeof(old));
        snprintf(w->text, sizeof(w->text), "%.500s: %.3500s", what, old);
}
