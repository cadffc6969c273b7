/*
 * agentix doctor: looks at what this machine has and lacks for each part of Agentix. Every check is a small function that
 * says ok, warning or failure, what it saw, and how to mend it. It changes nothing and always looks at everything.
 */
#include "bundle/cache.h"
#include "bundle/program.h"
#include "cli/commands.h"
#include "cli/json_field.h"
#include "cli/plugins.h"
#include "cli/unpacking.h"
#include "oci/engine.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>

enum { REPORT_MAX = 1 << 20, ANSWER_MAX = 64 << 10, ASK_MS = 10000 };

typedef enum level { OK, WARNING, FAILURE } level;

typedef struct finding {
        level level;
        char what[512];
        char mend[512]; /* empty: nothing to do */
} finding;

static void found(finding *f, level l, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void mend(finding *f, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void found(finding *f, level l, const char *format, ...)
{
        va_list args;

        f->level = l;
        va_start(args, format);
        vsnprintf(f->what, sizeof(f->what), format, args);
        va_end(args);
}

static void mend(finding *f, const char *format, ...)
{
        va_list args;

        va_start(args, format);
        vsnprintf(f->mend, sizeof(f->mend), format, args);
        va_end(args);
}

/* The first line that is not empty, or the last one, which is where programs that fail say why. */
static bool line_of(agx_view text, bool first, agx_view *line)
{
        agx_view next;

        *line = AGX_VIEW_NULL;
        while (!(first && line->n) && agx_view_split(&text, '\n', &next))
                if (next.n)
                        *line = next;
        return line->n > 0;
}

/* Runs a program; its first line of output in `line`. False: it is not there, or failed, and `line` says how. */
static bool first_line(const char *const *argv, char *line, size_t size)
{
        _cleanup_(agx_strv_deinitp) agx_strv list = AGX_STRV_NULL;
        _cleanup_(agx_program_deinitp) agx_program run = {0};
        agx_program_spec spec = {.keep = ANSWER_MAX, .timeout_ms = ASK_MS};
        agx_view text, head;
        bool fine;
        int r;

        for (; *argv; argv++)
                agx_strv_add_str(&list, *argv);
        r = agx_strv_end(&list);
        spec.argv = list.items;
        r = r ? r : agx_program_run(&run, &spec);
        fine = !r && !run.timed_out && !agx_program_code(&run);
        text = agx_buf_view(run.out.len && fine ? &run.out : &run.err);
        if (r)
                snprintf(line, size, "%s", r < 0 ? strerror(-r) : "not on PATH");
        else if (run.timed_out)
                snprintf(line, size, "no answer within %d s", ASK_MS / 1000);
        else if (line_of(text, fine, &head))
                snprintf(line, size, "%.*s", (int)head.n, head.p);
        else
                snprintf(line, size, "exit status %d", agx_program_code(&run));
        return fine;
}

/* ---- engines ---- */

static void check_engine(finding *f, const char *engine, const char *start)
{
        char line[400];

        if (!first_line((const char *[]){engine, "--version", NULL}, line, sizeof(line))) {
                found(f, WARNING, "%s", line);
                mend(f, "install %s, if you want to run sandboxes in its containers", engine);
                return;
        }
        if (first_line((const char *[]){engine, "info", "--format", "{{.ID}}", NULL}, line, sizeof(line)) ||
            (agx_oci_is_podman(agx_view_str(engine)) &&
             first_line((const char *[]){engine, "ps", "-q", NULL}, line, sizeof(line)))) {
                (void)first_line((const char *[]){engine, "--version", NULL}, line, sizeof(line));
                found(f, OK, "%s, answers", line);
                return;
        }
        found(f, WARNING, "installed, but does not answer: %s", line);
        mend(f, "%s", start);
}

static void check_docker(finding *f)
{
        check_engine(f, "docker",
                     "start its daemon (systemctl start docker), and be in its group (usermod -aG docker $USER)");
}

static void check_podman(finding *f)
{
        check_engine(f, "podman", "run `podman info` and follow what it says");
}

/* ---- tools ---- */

static void check_uv(finding *f)
{
        char line[400];

        if (first_line((const char *[]){"uv", "--version", NULL}, line, sizeof(line))) {
                found(f, OK, "%s", line);
                return;
        }
        found(f, WARNING, "%s", line);
        mend(f, "pip install uv: the uv backend and agentix build need it");
}

static void check_python(finding *f)
{
        _cleanup_(agx_plugins_deinitp) agx_plugins plugins = {0};
        char line[400];

        if (agx_plugins_init(&plugins)) {
                found(f, FAILURE, "out of memory");
                return;
        }
        if (first_line((const char *[]){plugins.python, "-P", "-c",
                                        "import sys, agentix; print(agentix.__version__, sys.version.split()[0])",
                                        NULL},
                       line, sizeof(line))) {
                found(f, OK, "%s imports agentix (versions %s)", plugins.python, line);
                return;
        }
        found(f, WARNING, "%s cannot import agentix: %s", plugins.python, line);
        mend(f, "install agentix for it, or name another interpreter in AGENTIX_PYTHON; plugins need it");
}

/* ---- the kernel ---- */

static void check_kernel(finding *f)
{
        static const struct {
                long number;
                const char *name;
        } calls[] = {{SYS_openat2, "openat2"}, {SYS_pidfd_open, "pidfd_open"}, {SYS_clone3, "clone3"}};
        char missing[128] = "";
        struct utsname name;

        uname(&name);
        for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
                /* Nonsense arguments: a call that is there says so in another way than ENOSYS. */
                if (syscall(calls[i].number, -1, 0, 0, 0) < 0 && errno == ENOSYS) {
                        size_t n = strlen(missing);

                        snprintf(missing + n, sizeof(missing) - n, " %s", calls[i].name);
                }
        }
        if (!*missing) {
                found(f, OK, "Linux %s", name.release);
                return;
        }
        found(f, WARNING, "Linux %s lacks%s; slower ways are used", name.release, missing);
        mend(f, "use Linux 5.6 or newer, or allow these calls in the seccomp profile of this container");
}

static void check_namespaces(finding *f)
{
        int status;
        pid_t pid = fork();

        if (!pid)
                _exit(unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0 ? errno : 0);
        if (pid < 0 || waitpid(pid, &status, 0) < 0 || !WIFEXITED(status)) {
                found(f, FAILURE, "cannot be tried: %s", strerror(errno));
                return;
        }
        if (!WEXITSTATUS(status)) {
                found(f, OK, "user and mount namespaces can be made");
                return;
        }
        found(f, WARNING, "user namespaces cannot be made: %s", strerror(WEXITSTATUS(status)));
        mend(f,
             "sysctl user.max_user_namespaces and kernel.unprivileged_userns_clone must be above 0; agentix build and "
             "apptainer need them");
}

static void check_landlock(finding *f)
{
        long version = syscall(SYS_landlock_create_ruleset, NULL, 0, 1);

        if (version > 0) {
                found(f, OK, "ABI %ld", version);
                return;
        }
        found(f, OK, "not there; nothing depends on it");
}

static void check_cgroups(finding *f)
{
        bool unified = !access("/sys/fs/cgroup/cgroup.controllers", R_OK);
        bool hybrid = !access("/sys/fs/cgroup/unified/cgroup.controllers", R_OK);

        if (unified || hybrid) {
                found(f, OK, "version 2%s%s", hybrid && !unified ? " beside version 1" : "",
                      access(unified ? "/sys/fs/cgroup/cgroup.procs" : "/sys/fs/cgroup/unified/cgroup.procs", W_OK)
                              ? ", not writable"
                              : ", writable");
                return;
        }
        found(f, WARNING, "no version 2 hierarchy: what a call leaves running is found less surely");
        mend(f, "boot with systemd.unified_cgroup_hierarchy=1");
}

/* ---- limits, places ---- */

static void check_limits(finding *f)
{
        struct rlimit files, processes;

        if (getrlimit(RLIMIT_NOFILE, &files) || getrlimit(RLIMIT_NPROC, &processes)) {
                found(f, FAILURE, "cannot be read: %s", strerror(errno));
                return;
        }
        found(f, files.rlim_max < 4096 ? WARNING : OK, "%llu open files (at most %llu), %llu processes",
              (unsigned long long)files.rlim_cur, (unsigned long long)files.rlim_max,
              (unsigned long long)processes.rlim_cur);
        if (files.rlim_max < 4096)
                mend(f, "raise the hard limit of open files (ulimit -Hn) to 4096 or more");
}

static void check_port(finding *f)
{
        struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        _cleanup_(agx_closep) int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        const struct sockaddr *address = (const struct sockaddr *)(const void *)&at;

        if (fd >= 0 && !bind(fd, address, sizeof(at)) && !listen(fd, 1)) {
                found(f, OK, "a port of 127.0.0.1 can be listened on");
                return;
        }
        found(f, FAILURE, "no port of 127.0.0.1 can be listened on: %s", strerror(errno));
        mend(f, "bring the loopback interface up (ip link set lo up)");
}

static void check_disk(finding *f, const char *what, const char *path)
{
        struct statvfs st;
        double gb;

        if (statvfs(path, &st) < 0) {
                found(f, WARNING, "%s: %s", path, strerror(errno));
                mend(f, "make the directory, or set %s", what);
                return;
        }
        gb = (double)st.f_bavail * (double)st.f_frsize / 1e9;
        found(f, gb < 2 || (st.f_flag & ST_RDONLY) ? WARNING : OK, "%s: %.1f GB free%s", path, gb,
              st.f_flag & ST_RDONLY ? ", read-only" : "");
        if (f->level == WARNING)
                mend(f, "free some space, or set %s to a place that has it", what);
}

static void check_temporary(finding *f)
{
        const char *path = getenv("TMPDIR");

        check_disk(f, "TMPDIR", path && *path ? path : "/tmp");
}

static void check_cache(finding *f)
{
        _cleanup_(agx_cache_closep) agx_cache c = AGX_CACHE_NULL;
        _cleanup_(agx_strv_deinitp) agx_strv names = AGX_STRV_NULL;
        agx_why why = AGX_WHY_NULL;
        size_t broken = 0;
        int r = agx_cli_open_cache(&c, NULL, false, &why);

        if (r == AGX_CACHE_E_NONE) {
                found(f, OK, "empty");
                return;
        }
        if (!r)
                r = agx_cache_list(&c, &names, &why);
        if (r) {
                found(f, FAILURE, "%s", why.text);
                mend(f, "%s", why.hint);
                return;
        }
        for (size_t i = 0; i < names.count; i++) {
                _cleanup_(agx_manifest_deinitp) agx_manifest m = AGX_MANIFEST_NULL;
                agx_why unused = AGX_WHY_NULL;

                broken += agx_cache_manifest(&c, names.items[i], &m, &unused) != 0;
        }
        check_disk(f, "AGENTIX_BUNDLE_CACHE_DIR", c.path);
        if (f->level != OK)
                return;
        found(f, broken ? WARNING : OK, "%s: %zu bundles, %zu of them broken", c.path, names.count, broken);
        if (broken)
                mend(f, "agentix bundle list shows which; agentix bundle rm removes them");
}

static const struct check {
        const char *name;
        void (*look)(finding *f);
} checks[] = {
        {"docker", check_docker},
        {"podman", check_podman},
        {"uv", check_uv},
        {"python", check_python},
        {"kernel", check_kernel},
        {"namespaces", check_namespaces},
        {"cgroups", check_cgroups},
        {"landlock", check_landlock},
        {"limits", check_limits},
        {"loopback", check_port},
        {"temporary files", check_temporary},
        {"bundle cache", check_cache},
};

static void print(agx_cli *cli, const char *name, const finding *f)
{
        static const char *const words[] = {"ok", "warning", "FAILURE"};
        static const char *const colors[] = {"\033[32m", "\033[33m", "\033[31m"};
        bool color = cli->say.color_out;

        agx_say_data(&cli->say, "%s%-7s%s  %-16s ", color ? colors[f->level] : "", words[f->level],
                     color ? "\033[0m" : "", name);
        agx_say_data_view(&cli->say, agx_view_str(f->what));
        agx_say_data(&cli->say, "\n");
        if (f->mend[0])
                agx_say_data(&cli->say, "         %-16s to mend: %s\n", "", f->mend);
}

static void put(agx_json_writer *w, const char *name, const finding *f)
{
        static const char *const words[] = {"ok", "warning", "failure"};

        agx_json_put_object(w);
        agx_json_field(w, "name", name);
        agx_json_field(w, "status", words[f->level]);
        agx_json_field(w, "found", f->what);
        agx_json_field(w, "mend", f->mend[0] ? f->mend : NULL);
        agx_json_put_object_end(w);
}

static int run(agx_cli *cli, void *unused)
{
        _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(REPORT_MAX);
        agx_json_writer w = agx_json_writer_on(&out);
        int code = AGX_EXIT_OK;

        (void)unused;
        agx_json_put_object(&w);
        agx_json_put_key(&w, AGX_VIEW("checks"));
        agx_json_put_array(&w);
        for (size_t i = 0; i < sizeof(checks) / sizeof(checks[0]); i++) {
                finding f = {0};

                checks[i].look(&f);
                put(&w, checks[i].name, &f);
                if (!cli->say.json)
                        print(cli, checks[i].name, &f);
                if (f.level == FAILURE)
                        code = AGX_EXIT_FAILURE;
        }
        agx_json_put_array_end(&w);
        agx_json_put_object_end(&w);
        if (cli->say.json && agx_json_writer_end(&w))
                return agx_say_no_memory(&cli->say);
        if (cli->say.json)
                agx_say_data_json(&cli->say, &out);
        return code;
}

const agx_command agx_command_doctor = {
        .name = "doctor",
        .summary = "Look at what this machine has for Agentix, and say how to mend what it lacks",
        .text = "The exit code is 1 if something is broken that everything needs, else 0: not every backend is for "
                "everyone.\n",
        .format = true,
        .run = run,
};
