#ifndef AGX_BASE_UTF8_H
#define AGX_BASE_UTF8_H
/* Strict UTF-8 (RFC 3629): no overlong forms, no surrogates, nothing above U+10FFFF. */
#include "base/view.h"

bool agx_utf8_valid(agx_view v);
/* How many bytes at the front are whole, well-formed characters. */
size_t agx_utf8_prefix(agx_view v);

#endif
