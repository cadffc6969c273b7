/* What is read of ELF objects: this very program, and every spoilt form of it. */
#include "bundle/elf.h"

#include "base/buf.h"
#include "bundle/tree.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "support/guard.h"

static void read_self(agx_buf *image)
{
        agx_why why = AGX_WHY_NULL;

        *image = AGX_BUF_NULL(256 << 20);
        assert_int_equal(agx_tree_read("/proc/self/exe", image, &why), 0);
}

static void understands_this_program(void **state)
{
        _cleanup_(agx_buf_deinitp) agx_buf image;
        _cleanup_(agx_elf_deinitp) agx_elf elf = AGX_ELF_NULL;
        bool libc = false;

        (void)state;
        read_self(&image);
        assert_int_equal(agx_elf_parse(&elf, image.data + image.head, image.len), 0);
        assert_true(elf.dynamic);
        assert_true(elf.runnable);
        assert_non_null(strstr(elf.interp, "/ld-linux"));
        assert_null(elf.soname);
        for (size_t i = 0; i < elf.needed.count; i++)
                libc = libc || !strcmp(elf.needed.items[i], "libc.so.6");
        assert_true(libc);
}

/* As programs of one file have it, which find a payload from their own end. */
static void sees_what_is_appended(void **state)
{
        _cleanup_(agx_buf_deinitp) agx_buf image;
        _cleanup_(agx_elf_deinitp) agx_elf elf = AGX_ELF_NULL, more = AGX_ELF_NULL;

        (void)state;
        read_self(&image);
        assert_int_equal(agx_elf_parse(&elf, image.data + image.head, image.len), 0);
        assert_int_equal(elf.tail, 0);
        for (size_t i = 0; i < 1000; i++)
                assert_int_equal(agx_buf_append(&image, "payload!", 8), 0);
        assert_int_equal(agx_elf_parse(&more, image.data + image.head, image.len), 0);
        assert_int_equal(more.tail, 8000);
        assert_true(more.runnable);
}

static void refuses_what_is_no_object(void **state)
{
        agx_elf elf;

        (void)state;
        assert_int_equal(agx_elf_parse(&elf, (const uint8_t *)"", 0), AGX_ELF_E_NOT);
        assert_int_equal(agx_elf_parse(&elf,
                                       (const uint8_t *)"\x7f"
                                                        "ELF",
                                       4),
                         AGX_ELF_E_NOT);
        assert_int_equal(agx_elf_read(&elf, "/etc/passwd"), AGX_ELF_E_NOT);
        assert_true(agx_elf_read(&elf, "/nonexistent") < 0);
}

/* Cut anywhere in its first 8 KiB, and with each byte of its headers spoilt: no read beyond the image. */
static void survives_spoilt_objects(void **state)
{
        enum { HEAD = 64 + 16 * 56 };
        _cleanup_(agx_buf_deinitp) agx_buf image;
        static const uint8_t values[] = {0x00, 0x01, 0x7f, 0xff};
        uint8_t *copy;
        agx_elf elf;

        (void)state;
        read_self(&image);
        for (size_t n = 0; n < 8192; n += n < HEAD ? 1 : 61) {
                copy = agx_guard_new(image.data + image.head, n);
                if (!agx_elf_parse(&elf, copy, n))
                        agx_elf_deinit(&elf);
                agx_guard_free(copy, n);
        }
        copy = agx_guard_new(image.data + image.head, image.len);
        for (size_t at = 0; at < HEAD; at++)
                for (size_t k = 0; k < sizeof(values); k++) {
                        uint8_t old = copy[at];

                        copy[at] = values[k];
                        if (!agx_elf_parse(&elf, copy, image.len))
                                agx_elf_deinit(&elf);
                        copy[at] = old;
                }
        agx_guard_free(copy, image.len);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(understands_this_program),
                cmocka_unit_test(sees_what_is_appended),
                cmocka_unit_test(refuses_what_is_no_object),
                cmocka_unit_test(survives_spoilt_objects),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
