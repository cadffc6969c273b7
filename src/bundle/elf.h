#ifndef AGX_BUNDLE_ELF_H
#define AGX_BUNDLE_ELF_H
/*
 * What the dynamic loader would read in a file: interpreter, needed libraries, search paths. 64-bit little-endian objects,
 * which is what our platforms have. A malformed file is one we do not understand, never a crash: every offset is checked.
 */
#include "base/strv.h"

#include <elf.h>

typedef struct agx_elf {
        unsigned machine; /* EM_X86_64, EM_AARCH64, ... */
        bool dynamic;     /* has a dynamic section */
        bool runnable;    /* an executable: has an interpreter and is no library with a name of its own */
        uint64_t tail;    /* bytes behind all that the headers tell of: what a program looks for at its end */
        char *interp;     /* the next four: owned, NULL if absent */
        char *soname;
        char *rpath;
        char *runpath;
        agx_strv needed;
} agx_elf;

#define AGX_ELF_NULL ((agx_elf){0})

enum { AGX_ELF_E_NOT = 1 }; /* no ELF object of this kind, or a malformed one */

/* Reads the object of `size` bytes at `image`. 0, AGX_ELF_E_NOT, or -ENOMEM; *elf is null-initialised first. */
int agx_elf_parse(agx_elf *elf, const uint8_t *image, size_t size);
/* The same of a file; other negated errnos too. */
int agx_elf_read(agx_elf *elf, const char *path);
void agx_elf_deinit(agx_elf *elf);
AGX_DEFINE_CLEANUP(agx_elf, agx_elf_deinit)

#endif
