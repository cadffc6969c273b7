/*
 * Structures are copied out of the image, which may be aligned to nothing. The string table is found through the program
 * headers, as the loader does; section headers may have been stripped.
 */
#include "bundle/elf.h"
#include "base/err.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HEADERS_MAX = 4096 };

typedef struct image {
        const uint8_t *p;
        size_t n;
        Elf64_Ehdr head;
        uint64_t strings, strings_size; /* file offset and size of the dynamic string table */
} image;

static bool take(const image *im, uint64_t at, void *to, size_t n)
{
        if (at > im->n || im->n - at < n)
                return false;
        memcpy(to, im->p + at, n);
        return true;
}

static bool segment(const image *im, unsigned i, Elf64_Phdr *ph)
{
        return take(im, im->head.e_phoff + (uint64_t)i * sizeof(*ph), ph, sizeof(*ph));
}

static bool offset_of(const image *im, uint64_t address, uint64_t *offset)
{
        Elf64_Phdr ph;

        for (unsigned i = 0; i < im->head.e_phnum; i++) {
                if (!segment(im, i, &ph))
                        return false;
                if (ph.p_type == PT_LOAD && address >= ph.p_vaddr && address - ph.p_vaddr < ph.p_filesz) {
                        *offset = ph.p_offset + (address - ph.p_vaddr);
                        return true;
                }
        }
        return false;
}

/* A terminated string within [at, end of image). */
static bool text_at(const image *im, uint64_t at, agx_view *text)
{
        const void *end;

        if (at >= im->n)
                return false;
        end = memchr(im->p + at, 0, im->n - at);
        if (!end)
                return false;
        *text = agx_view_of(im->p + at, (size_t)((const uint8_t *)end - (im->p + at)));
        return true;
}

static int keep(char **slot, agx_view text)
{
        free(*slot);
        *slot = agx_strv_dup(text);
        return *slot ? 0 : agx_trace(-ENOMEM);
}

static int take_entry(agx_elf *elf, const image *im, const Elf64_Dyn *d)
{
        agx_view text;

        if (d->d_tag != DT_NEEDED && d->d_tag != DT_SONAME && d->d_tag != DT_RPATH && d->d_tag != DT_RUNPATH)
                return 0;
        if (d->d_un.d_val >= im->strings_size || !text_at(im, im->strings + d->d_un.d_val, &text))
                return AGX_ELF_E_NOT;
        switch (d->d_tag) {
        case DT_NEEDED:
                agx_strv_add(&elf->needed, text);
                return agx_strv_end(&elf->needed);
        case DT_SONAME:
                return keep(&elf->soname, text);
        case DT_RPATH:
                return keep(&elf->rpath, text);
        default:
                return keep(&elf->runpath, text);
        }
}

static bool find_strings(image *im, const Elf64_Phdr *ph)
{
        uint64_t address = 0;
        Elf64_Dyn d;

        for (uint64_t at = 0; at + sizeof(d) <= ph->p_filesz; at += sizeof(d)) {
                if (!take(im, ph->p_offset + at, &d, sizeof(d)))
                        return false;
                if (d.d_tag == DT_NULL)
                        break;
                if (d.d_tag == DT_STRTAB)
                        address = d.d_un.d_ptr;
                if (d.d_tag == DT_STRSZ)
                        im->strings_size = d.d_un.d_val;
        }
        return offset_of(im, address, &im->strings);
}

static int take_dynamic(agx_elf *elf, image *im, const Elf64_Phdr *ph)
{
        Elf64_Dyn d;
        int r = find_strings(im, ph) ? 0 : AGX_ELF_E_NOT;

        elf->dynamic = true;
        for (uint64_t at = 0; !r && at + sizeof(d) <= ph->p_filesz; at += sizeof(d)) {
                if (!take(im, ph->p_offset + at, &d, sizeof(d)))
                        return AGX_ELF_E_NOT;
                if (d.d_tag == DT_NULL)
                        break;
                r = take_entry(elf, im, &d);
        }
        return r;
}

static int take_segment(agx_elf *elf, image *im, const Elf64_Phdr *ph)
{
        agx_view text;

        if (ph->p_type == PT_DYNAMIC)
                return take_dynamic(elf, im, ph);
        if (ph->p_type != PT_INTERP)
                return 0;
        return text_at(im, ph->p_offset, &text) ? keep(&elf->interp, text) : AGX_ELF_E_NOT;
}

static void reach(uint64_t *end, uint64_t at, uint64_t size)
{
        if (size <= UINT64_MAX - at && at + size > *end)
                *end = at + size;
}

static uint64_t tail_of(const image *im)
{
        const Elf64_Ehdr *h = &im->head;
        uint64_t end = sizeof(*h);
        Elf64_Phdr ph;
        Elf64_Shdr sh;

        reach(&end, h->e_phoff, (uint64_t)h->e_phnum * sizeof(ph));
        for (unsigned i = 0; i < h->e_phnum && segment(im, i, &ph); i++)
                reach(&end, ph.p_offset, ph.p_filesz);
        if (h->e_shentsize == sizeof(sh) && h->e_shnum)
                reach(&end, h->e_shoff, (uint64_t)h->e_shnum * sizeof(sh));
        for (unsigned i = 0; h->e_shentsize == sizeof(sh) && i < h->e_shnum; i++)
                if (take(im, h->e_shoff + (uint64_t)i * sizeof(sh), &sh, sizeof(sh)) && sh.sh_type != SHT_NOBITS)
                        reach(&end, sh.sh_offset, sh.sh_size);
        return end < im->n ? im->n - end : 0;
}

static bool good_head(const image *im)
{
        const Elf64_Ehdr *h = &im->head;

        return !memcmp(h->e_ident, ELFMAG, SELFMAG) && h->e_ident[EI_CLASS] == ELFCLASS64 &&
               h->e_ident[EI_DATA] == ELFDATA2LSB && (h->e_type == ET_DYN || h->e_type == ET_EXEC) &&
               h->e_phentsize == sizeof(Elf64_Phdr) && h->e_phnum <= HEADERS_MAX;
}

int agx_elf_parse(agx_elf *elf, const uint8_t *bytes, size_t size)
{
        image im = {.p = bytes, .n = size};
        Elf64_Phdr ph;
        int r = 0;

        *elf = AGX_ELF_NULL;
        if (!take(&im, 0, &im.head, sizeof(im.head)) || !good_head(&im))
                return AGX_ELF_E_NOT;
        elf->machine = im.head.e_machine;
        for (unsigned i = 0; !r && i < im.head.e_phnum; i++)
                r = segment(&im, i, &ph) ? take_segment(elf, &im, &ph) : AGX_ELF_E_NOT;
        elf->runnable = elf->interp && !elf->soname;
        elf->tail = tail_of(&im);
        if (r)
                agx_elf_deinit(elf);
        return r;
}

int agx_elf_read(agx_elf *elf, const char *path)
{
        _cleanup_(agx_closep) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
        struct stat st;
        char magic[SELFMAG];
        void *map;
        int r;

        *elf = AGX_ELF_NULL;
        if (fd < 0 || fstat(fd, &st))
                return agx_trace(-errno);
        if (!S_ISREG(st.st_mode) || read(fd, magic, sizeof(magic)) != sizeof(magic) || memcmp(magic, ELFMAG, SELFMAG))
                return AGX_ELF_E_NOT;
        map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (map == MAP_FAILED)
                return agx_trace(-errno);
        r = agx_elf_parse(elf, map, (size_t)st.st_size);
        munmap(map, (size_t)st.st_size);
        return r;
}

void agx_elf_deinit(agx_elf *elf)
{
        free(elf->interp);
        free(elf->soname);
        free(elf->rpath);
        free(elf->runpath);
        agx_strv_deinit(&elf->needed);
        *elf = AGX_ELF_NULL;
}
