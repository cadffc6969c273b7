/* Test inputs that end at an unreadable page.
 *
 * `agx_guard_new` copies bytes so that the byte after the last one cannot be read: a parser that
 * looks past its input dies at once, with or without a sanitizer. The copy is writable and lives
 * until `agx_guard_free`, which takes the pointer and the same length; NULL is ignored. Returns
 * NULL only when memory is out. */
#ifndef AGX_TEST_GUARD_H
#define AGX_TEST_GUARD_H

#include <stddef.h>
#include <stdint.h>

uint8_t *agx_guard_new(const void *data, size_t size);
void agx_guard_free(uint8_t *data, size_t size);

#endif
