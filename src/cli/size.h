#ifndef AGX_CLI_SIZE_H
#define AGX_CLI_SIZE_H
/* Bytes for people. */
#include <stdint.h>

enum { AGX_SIZE_TEXT = 32 };

/* "512 B", "1.5 kB", "61.3 MB": units of a thousand. */
void agx_size_text(uint64_t bytes, char text[AGX_SIZE_TEXT]);

#endif
