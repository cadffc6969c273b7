/* Replays a corpus without libFuzzer.
 *
 * Every argument is a file or a directory; each regular file is one input. The empty input always
 * runs first. An input lies flush against an unreadable page, so a parser that reads one byte too
 * far dies here even without a sanitizer. A directory that does not exist counts as empty: a new
 * target may come before its corpus. */

#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Runs one input from memory that ends where an unreadable page begins. */
static int run_guarded(const uint8_t *data, size_t size)
{
        size_t page = (size_t)sysconf(_SC_PAGESIZE);
        size_t room = (size + page - 1) / page * page;
        uint8_t *base = mmap(NULL, room + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (base == MAP_FAILED)
                return -errno;
        if (mprotect(base + room, page, PROT_NONE) != 0) {
                int error = -errno;
                munmap(base, room + page);
                return error;
        }
        if (size > 0)
                memcpy(base + room - size, data, size);
        LLVMFuzzerTestOneInput(base + room - size, size);
        munmap(base, room + page);
        return 0;
}

static int run_stream(FILE *stream, size_t size)
{
        uint8_t *data = malloc(size + 1);
        if (data == NULL)
                return -ENOMEM;
        size_t got = fread(data, 1, size, stream);
        int error = got == size ? run_guarded(data, size) : -EIO;
        free(data);
        return error;
}

static int run_file(const char *path)
{
        FILE *stream = fopen(path, "rb");
        if (stream == NULL)
                return -errno;
        struct stat info;
        int error = fstat(fileno(stream), &info) == 0 ? run_stream(stream, (size_t)info.st_size) : -errno;
        fclose(stream);
        return error;
}

static int run_path(const char *path, size_t *count);

static int run_directory(const char *path, size_t *count)
{
        struct dirent **names = NULL;
        int n = scandir(path, &names, NULL, alphasort);
        if (n < 0)
                return -errno;
        int error = 0;
        for (int i = 0; i < n; i++) {
                char child[4096];
                int length = snprintf(child, sizeof child, "%s/%s", path, names[i]->d_name);
                if (error == 0 && names[i]->d_name[0] != '.')
                        error = length < (int)sizeof child ? run_path(child, count) : -ENAMETOOLONG;
                free(names[i]);
        }
        free(names);
        return error;
}

static int run_path(const char *path, size_t *count)
{
        struct stat info;
        if (stat(path, &info) != 0)
                return errno == ENOENT ? 0 : -errno;
        if (S_ISDIR(info.st_mode))
                return run_directory(path, count);
        (*count)++;
        int error = run_file(path);
        if (error != 0)
                fprintf(stderr, "%s: %s\n", path, strerror(-error));
        return error;
}

int main(int argc, char **argv)
{
        size_t count = 0;
        int error = run_guarded(NULL, 0);
        for (int i = 1; i < argc && error == 0; i++)
                error = run_path(argv[i], &count);
        printf("%zu inputs replayed\n", count);
        return error == 0 ? 0 : 1;
}
